"""Agreement with the verdicts of seven public test suites and of recorded model outputs (shared/data)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(
        "grader_agreement", ROOT / "benchmarks" / "grader_agreement.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def graded(script, shared, pool):
    """{file name: (cases, our grades)}"""
    files = {name: script.load(shared / "data" / name) for name in script.FILES}
    return {name: (cases, pool.grade([script.item(c) for c in cases])) for name, cases in files.items()}


def test_no_source_is_worse_than_math_verify_alone_and_all_are_better(script, graded):
    rows = []
    for cases, grades in graded.values():
        rows += script.table(cases, [g.right for g in grades], None)
    assert len(rows) == 22
    assert [row for row in rows if row.ours < row.recorded] == []
    total = script.total(rows)
    assert total.cases == 1025 and total.ours > total.recorded


@pytest.mark.slow
def test_the_same_beside_the_installed_math_verify(script, graded):
    rows = []
    for cases, grades in graded.values():
        rows += script.table(cases, [g.right for g in grades], script.bare_verdicts(cases))
    assert [row for row in rows if row.ours < row.bare] == []
    assert script.total(rows).ours > script.total(rows).bare


def test_at_most_three_real_outputs_disagree_without_an_argument(script, graded):
    argued = {entry["id"] for entry in script.load(script.ADJUDICATION)}
    cases, grades = graded["grader_cases_real_outputs.jsonl"]
    against = [c["id"] for c, g in zip(cases, grades, strict=True) if g.right != c["expected"]]
    assert len(cases) == 607 and len([i for i in against if i not in argued]) <= 3


def test_the_adjudications_are_about_these_verdicts(script, graded):
    entries = {entry["id"]: entry for entry in script.load(script.ADJUDICATION)}
    found = {
        case["id"]: (grade.verdict, case["expected"])
        for cases, grades in graded.values()
        for case, grade in zip(cases, grades, strict=True)
        if grade.right != case["expected"]
    }
    assert {i: (e["verdict"], e["label"]) for i, e in entries.items()} == found


def test_each_adjudication_says_whose_fault_it_is_and_why(script):
    for entry in script.load(script.ADJUDICATION):
        assert set(entry) == {"id", "verdict", "label", "claim", "mathematics"}
        assert (
            entry["claim"] in ("label wrong", "convention", "ours wrong") and len(entry["mathematics"]) > 20
        )
