"""Who grades needs neither torch nor TRL, and who does not grade needs no computer algebra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "trl", "datasets", "accelerate", "numpy")


def imported_by(statement: str) -> set[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {statement}; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return set(output.split())


@pytest.mark.parametrize("module", ["grading", "grading.pool", "grading.reward", "grading.cli"])
def test_importing_is_light(module):
    assert not imported_by(f"import meml_mel.{module}") & {
        *HEAVY,
        "sympy",
        "math_verify",
        "latex2sympy2_extended",
    }


def test_grading_needs_no_torch():
    statement = r"from meml_mel.grading import grade; assert grade('x+1', '\\boxed{1+x}').right"
    imported = imported_by(statement)
    assert "sympy" in imported and not imported & set(HEAVY)
