"""The verdicts that docs/grading.md promises, on cases labelled by hand (grading_cases.py)."""

from __future__ import annotations

import pytest
from grading_cases import BOOLEAN, CHOICE, MATH

from meml_mel.grading import Grade, grade


def disagreements(rows, kind):
    found = [(gold, answer, expected, grade(gold, answer, kind)) for gold, answer, expected in rows]
    wrong = [row for row in found if row[3].verdict != row[2]]
    return [f"{gold!r} | {answer[:80]!r}: {expected}, not {got}" for gold, answer, expected, got in wrong]


def test_there_are_at_least_150_cases():
    assert sum(map(len, MATH.values())) + len(CHOICE) + len(BOOLEAN) >= 150


@pytest.mark.parametrize("subject", MATH)
def test_mathematics(subject):
    assert not disagreements(MATH[subject], "math")


def test_choices():
    assert not disagreements(CHOICE, "choice")


def test_yes_and_no():
    assert not disagreements(BOOLEAN, "boolean")


@pytest.mark.parametrize(
    ("gold", "answer", "truncated", "expected"),
    [
        ("5", r"\boxed{5}", False, Grade("right", None, "5")),
        ("5", r"\boxed{6}", False, Grade("wrong", "different", "6")),
        ("5", r"\boxed{5}", True, Grade("wrong", "truncated", "5")),
        ("5", "I am still thinking", True, Grade("wrong", "truncated", None)),
        ("5", "I have no idea", False, Grade("wrong", "no_answer", None)),
        ("5", r"\boxed{", False, Grade("wrong", "no_answer", None)),
        ("5", r"\boxed{9^{9^{9^9}}}", False, Grade("wrong", "timeout", "9^{9^{9^9}}")),
        (r"\frac{1", r"\boxed{5}", False, Grade("ungradable", "unparsable_gold", None)),
        (r"\frac{1", r"\boxed{5}", True, Grade("ungradable", "unparsable_gold", None)),
        ("9^{9^{9^9}}", r"\boxed{5}", False, Grade("ungradable", "timeout", None)),
    ],
)
def test_each_verdict_says_why(gold, answer, truncated, expected):
    assert grade(gold, answer, truncated=truncated) == expected


@pytest.mark.parametrize(("kind", "gold"), [("choice", "B"), ("boolean", "yes")])
def test_letters_and_truth_values_have_the_same_reasons(kind, gold):
    assert grade(gold, gold, kind).extracted == gold
    assert grade(gold, gold, kind, truncated=True).reason == "truncated"
    assert grade(gold, "", kind).reason == "no_answer"
    assert grade("no such gold", gold, kind).reason == "unparsable_gold"


def test_misuse_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown kind 'maths': use one of math, choice, boolean"):
        grade("5", "5", "maths")
    with pytest.raises(TypeError, match="the gold is int"):
        grade(5, "5")
    with pytest.raises(TypeError, match="the answer is NoneType"):
        grade("5", None)


def test_the_gold_stands_first():
    """A gold "x = 5" only names its value; an equation given as the gold is asked for as a whole."""
    assert grade("x = 5", "5").right and grade("5", "x = 5").right
    assert grade("x + y = 5", "5").verdict == "wrong" and grade("5", "x + y = 5").right
