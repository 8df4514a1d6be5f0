"""Golds are judged by the grader, under a time limit: a data file must not hang a start."""

from __future__ import annotations

import pytest
from data_helpers import load, shared, write_jsonl

from meml_mel.data import load as data
from meml_mel.data.load import DataSource, GoldCheck, load_questions
from meml_mel.grading import grade
from meml_mel.grading.pool import GradingPool

ENDLESS = r"\sum_{k=1}^{10^{9}} \frac{1}{k^2+x}"  # the computer algebra would go on for years
TOWER = "5^{5^{5^{5^{5}}}}"
POISON = {
    "tower": TOWER,
    "endless": ENDLESS,
    "endless again": ENDLESS,
    "200 kB": "x+" * 100_000,
    "200 kB of digits": "7" * 200_000,
    "deep": "{" * 100_000,
    "deeper": r"\frac{" * 150 + "1",
    "NUL": "\x00",
    "prose": "it depends on what the author of the question wanted to hear",
}
HEALTHY = {
    "number": "18",
    "text": "blue",
    "formula": r"\frac{x+1}{2}",
    "set": r"\{1, 2\}",
    "root": r"2\sqrt{3}",
}


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    rows = [{"id": i, "problem": f"p {i}", "answer": gold} for i, gold in (HEALTHY | POISON).items()]
    rows.sort(key=lambda row: row["id"])  # mixed
    path = write_jsonl(tmp_path_factory.mktemp("golds") / "rows.jsonl", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "GOLD_SECONDS", 1.0)
        return load_questions(DataSource(path))


def test_healthy_golds_are_untouched_by_poisoned_ones(poisoned):
    assert {q.id: q.answer for q in poisoned.questions} == HEALTHY


def test_poisoned_golds_are_rejected_by_name_and_reason(poisoned):
    reasons = {rejection.id: rejection.reason for rejection in poisoned.report.rejected}
    assert set(reasons) == set(POISON)
    timed_out = {"tower", "endless", "endless again"}
    assert {i for i, reason in reasons.items() if reason == "ungradable math answer (timed out)"} == timed_out
    assert {reasons[i] for i in set(POISON) - timed_out} == {"ungradable math answer"}
    assert "endless" in poisoned.report.description() and "timed out" in poisoned.report.description()


def test_plain_golds_start_no_process(tmp_path, monkeypatch):
    def refuse(self):
        raise AssertionError("a process was started for numbers and words")

    monkeypatch.setattr(GradingPool, "_launch", refuse)
    golds = [
        "18",
        "-3",
        "1,200",
        "1/2",
        r"\frac{1}{2}",
        "28%",
        "$5",
        "12 km",
        "(1, 2)",
        "1, 2",
        "yes",
        "x = 5",
    ]
    rows = [{"problem": f"p{i}", "answer": gold} for i, gold in enumerate(golds)]
    assert len(load_questions(DataSource(write_jsonl(tmp_path / "plain.jsonl", rows))).questions) == len(
        golds
    )


def test_an_equal_gold_is_asked_about_once(monkeypatch):
    asked: list[str] = []

    class Counting(GradingPool):
        def grade(self, items):
            asked.extend(item.gold for item in items)
            return super().grade(items)

    check = GoldCheck(Counting())
    assert [check("5", "math"), check("5", "math"), check("6", "math"), check("5", "math")] == [True] * 4
    assert asked == ["5", "6"]


@pytest.mark.parametrize("name", ["math500.jsonl", "olympiadbench_math_en.jsonl"])
def test_the_check_agrees_with_the_grader_on_real_golds(name, tmp_path):
    """What is decided without the computer algebra is what the computer algebra says."""
    golds = sorted({q.answer for q in load(shared(name)).questions})[::5]
    assert len(golds) > 50
    path = write_jsonl(tmp_path / name, [{"problem": gold, "answer": gold} for gold in golds])
    taken = {q.answer for q in load_questions(DataSource(path)).questions}
    assert taken == {gold for gold in golds if grade(gold, "").verdict != "ungradable"}
