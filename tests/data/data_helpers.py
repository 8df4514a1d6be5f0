"""Shared by the tests of data: fixtures, files in a temporary folder, and the real data where it is present."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from meml_mel.data.load import DataSource, LoadedQuestions, load_questions

FIXTURES = Path(__file__).parent / "fixtures"
_SHARED = Path(os.environ.get("MEML_MEL_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "data"


def shared(name: str) -> str:
    """The path of a real data file; the test is skipped where it is not on this machine."""
    path = _SHARED / name
    if not path.is_file():
        pytest.skip(f"{name} is not here: set MEML_MEL_SHARED to the folder that holds data/{name}")
    return str(path)


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def load(path: str | Path, **fields: Any) -> LoadedQuestions:
    """Load with a check that any non-empty gold passes: these tests are not about the grader."""
    return load_questions(DataSource(str(path), **fields), gradable=lambda gold, kind: bool(gold))
