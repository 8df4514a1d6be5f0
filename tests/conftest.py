"""What all tests share: the folder of real data beside the project, where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A shared machine is slow at times; that is no failure of a property.
settings.register_profile("meml_mel", deadline=None)
settings.load_profile("meml_mel")


@pytest.fixture(scope="session")
def shared() -> Path:
    """`../shared` beside the checkout, or the folder that MEML_MEL_SHARED names; skips where it is not there."""
    named = os.environ.get("MEML_MEL_SHARED")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "data").is_dir():
        pytest.skip(f"no shared data in {folder}: set MEML_MEL_SHARED to a folder that has it")
    return folder
