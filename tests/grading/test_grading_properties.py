"""What holds for every text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from grading_cases import BOOLEAN, CHOICE, MATH
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from meml_mel.grading import grade
from meml_mel.grading.extract import extract

ALPHABET = [
    *"0123456789xyabi+-*/=<>(){}[],.;:%$^_!| \\\n",
    *("\\frac{1}{2}", "\\sqrt{2}", "\\boxed{", "\\text{", "\\pm ", "\\le ", "\\cup ", "\\infty"),
    *("answer is ", "\x00", "\ud800", "é", "²"),
]
hostile = st.text() | st.lists(st.sampled_from(ALPHABET), max_size=14).map("".join)
small = st.integers(-999, 999)
answers = (
    small.map(str)
    | st.builds(lambda a, b: f"{a}/{b}", small, st.integers(1, 99))
    | st.builds(lambda a, b: f"\\frac{{{a}}}{{{b}}}", st.integers(1, 99), st.integers(1, 99))
    | st.builds(lambda a, b: f"({a}, {b})", small, small)
    | st.builds(lambda a, b: f"{a}x + {b}", st.integers(2, 99), st.integers(1, 99))
    | st.builds(lambda a, b: f"{a}, {b}", small, small)
    | st.builds(lambda a: f"\\sqrt{{{a}}}", st.integers(2, 99))
)


@settings(max_examples=200)
@given(hostile, hostile, st.sampled_from(["math", "choice", "boolean"]), st.booleans())
def test_grading_never_raises(gold, answer, kind, truncated):
    result = grade(gold, answer, kind, truncated)
    assert (result.verdict == "right") == (result.reason is None)
    assert result.verdict != "ungradable" or result.reason in ("unparsable_gold", "timeout")
    assert result.verdict == "ungradable" or result.reason != "unparsable_gold"
    assert result.reward == {"right": 1.0, "wrong": 0.0, "ungradable": None}[result.verdict]


@settings(max_examples=200)
@given(hostile)
@example("1/2")
@example("\\{1, 2\\}")
def test_a_gold_against_itself_is_right_or_ungradable(text):
    boxed = "\\boxed{" + text + "}"
    assume(extract(boxed).text == text.strip() != "")
    assert grade(text, boxed).verdict in ("right", "ungradable")


@settings(max_examples=40)
@given(answers, answers)
def test_wrapping_and_prose_do_not_change_a_verdict(gold, answer):
    bare = grade(gold, answer).verdict
    assert bare in ("right", "wrong")
    for response in (
        f"\\boxed{{{answer}}}",
        f"We find $z = 3$ first.\n\nSo it is $\\boxed{{{answer}}}$, as was to be shown.",
        f"<think>\\boxed{{17}}? no</think>\\boxed{{{answer}}}",
        f"\\boxed{{{answer}}}\n\nQuestion: what is 1+1?\n\\boxed{{2}}",
        f"Answer: ${answer}$",
    ):
        assert grade(gold, response).verdict == bare, response


@settings(max_examples=40)
@given(small, st.integers(1, 99), st.integers(2, 9))
def test_equal_fractions_are_equal_in_every_spelling(up, down, factor):
    value = Fraction(up, down)
    spellings = [f"{up}/{down}", f"\\frac{{{up * factor}}}{{{down * factor}}}"]
    spellings.append(f"\\dfrac{{{value.numerator}}}{{{value.denominator}}}")
    if value.denominator == 1:
        spellings += [f"{value.numerator}", f"{value.numerator}.0", f"x = {value.numerator}"]
    other = f"\\frac{{{up + 1}}}{{{down}}}"
    for gold in spellings:
        assert all(grade(gold, answer).right for answer in spellings)
        assert grade(gold, other).verdict == "wrong"


@settings(max_examples=40)
@given(st.lists(small, min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_a_list_has_no_order_and_no_part_of_it_is_enough(values, random):
    gold = ", ".join(map(str, values))
    shuffled = values[:]
    random.shuffle(shuffled)
    assert grade(gold, "\\boxed{" + ", ".join(map(str, shuffled)) + "}").right
    assert grade(gold, str(values[0])).verdict == "wrong"
    assert grade([str(v) for v in values], ", ".join(map(str, shuffled[:-1]))).verdict == "wrong"


@settings(max_examples=40)
@given(st.integers(2, 9), st.integers(1, 9), st.integers(1, 9))
def test_two_equations_are_equal_only_up_to_a_factor(a, b, factor):
    gold = f"y = {a}x + {b}"
    assert grade(gold, f"{factor}y = {a * factor}x + {b * factor}").right
    assert grade(gold, f"y = {a}x + {b + 1}").verdict == "wrong"
    assert grade(gold, f"y = {a + 1}x + {b}").verdict == "wrong"


CASES = [(g, a, "math", v) for rows in MATH.values() for g, a, v in rows]
CASES += [(g, a, "choice", v) for g, a, v in CHOICE] + [(g, a, "boolean", v) for g, a, v in BOOLEAN]


@pytest.mark.parametrize(
    "end", ["<|im_end|>", "<|endoftext|>\n\\boxed{99}", "\n\nHuman: and then?\n\nAssistant: \\boxed{99}"]
)
def test_what_follows_the_end_changes_no_verdict(end):
    for gold, answer, kind, expected in CASES[::3]:
        if "think>" in answer or not answer.strip():
            continue
        assert grade(gold, answer + end, kind).verdict == expected, (gold, answer + end)
