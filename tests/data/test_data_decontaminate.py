"""The 8-gram rule, by hand: eight words in a row, or all the words where there are fewer."""

from __future__ import annotations

import pytest

from meml_mel.data.decontaminate import decontaminate, grams, overlap, words
from meml_mel.data.load import DataError
from meml_mel.data.question import Question


def q(id, problem):
    return Question(id, problem, "1")


EIGHT = "one two three four five six seven eight"


def hits(train, test, **fields):
    _, report = decontaminate([q("t", train)], {"eval": [q("e", test)]}, **fields)
    return report.ids == ("t",)


def test_eight_words_in_a_row_overlap_and_seven_do_not():
    assert hits(f"zero {EIGHT} nine", f"alpha beta {EIGHT} gamma")
    assert not hits("one two three four five six seven X nine", f"{EIGHT} nine")


def test_words_are_compared_without_case_punctuation_and_latex_marks():
    assert words(r"Find $\frac{1}{2}$ of X_1, PLEASE!") == [
        "find",
        "frac",
        "1",
        "2",
        "of",
        "x",
        "1",
        "please",
    ]
    assert words(r"\dfrac{a}{b} \left( \text{if } x\right) \textbf{x}") == ["frac", "a", "b", "if", "x", "x"]
    assert hits("One, two: THREE ($four$) five \\textbf{six} seven eight.", EIGHT)


def test_a_short_question_overlaps_only_with_the_same_words():
    assert grams("what is 2 + 3 ?", 8) == ["what is 2 3"]
    assert hits("What is 2+3?", "what is 2 + 3")
    assert not hits(
        "What is 2+3?", f"what is 2 + 3 {EIGHT}"
    )  # a short one inside a longer one is a stock phrase
    assert not hits(f"what is 2 + 3 {EIGHT}", "What is 2+3?")


def test_chinese_characters_are_words():
    assert words("求7的平方") == ["求", "7", "的", "平", "方"]
    assert hits("请问：求七的平方的个位数字是什么", "求七的平方的个位数字")


def test_report_keeps_and_remove_drops():
    train = [q("a", EIGHT), q("b", "something else entirely")]
    evaluation = {"amc": [q("x", "nothing here")], "aime": [q("e1", f"so {EIGHT}")]}
    kept, report = decontaminate(train, evaluation, "report")
    assert [k.id for k in kept] == ["a", "b"] and report.ids == ("a",)
    left, removed = decontaminate(train, evaluation, "remove")
    assert [k.id for k in left] == ["b"]
    assert "8-gram overlap with amc, aime: 1 of 2 questions (removed)" in removed.description()
    assert f"a ~ aime/e1: '{EIGHT}'" in removed.description()


def test_an_empty_problem_overlaps_with_nothing():
    assert not hits("...", "!?")


def test_unknown_modes_are_refused():
    with pytest.raises(DataError, match="'delete' is unknown: use 'report' or 'remove'"):
        decontaminate([], {}, "delete")  # type: ignore[arg-type]


def test_overlap_is_exact_apart_from_spacing():
    train = [q("a", "What is  2+3?"), q("b", "What is 2+4?")]
    assert overlap(train, [q("e", " What is 2+3? ")]) == ("a",)
