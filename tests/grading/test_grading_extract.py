"""Where the answer of a response is found."""

from __future__ import annotations

import pytest

from meml_mel.grading import choice
from meml_mel.grading.extract import extract
from tests.linear import is_linear, repeated


@pytest.mark.parametrize(
    ("response", "text", "source"),
    [
        (r"so \boxed{x^2} it is", "x^2", "boxed"),
        (r"\boxed{\frac{1}{\{2\}}}", r"\frac{1}{\{2\}}", "boxed"),
        (r"#### 4, no: \boxed{5}", "5", "boxed"),
        (r"\boxed{5}. Answer: 6", "5", "boxed"),
        ("It is 4.\nAnswer: 5", "5", "marker"),
        ("$4$ at first, but the answer is 5.", "5", "marker"),
        ("4\n#### 5", "5", "marker"),
        ("So $n = 4$. It holds that $m = 5$.", "m = 5", "latex"),
        ("Then there are $5$ of 7", "5", "latex"),
        ("We count 4 cats and then 5 dogs", "5", "expression"),
        ("3/4", "3/4", "whole"),
        (r"$\frac{1}{2}$", r"$\frac{1}{2}$", "whole"),
        ("10 square units", "10 square units", "whole"),
        ("I do not know.", None, "none"),
        (r"\boxed{5} and \boxed{", None, "none"),
    ],
)
def test_boxed_then_marked_then_latex_then_plain(response, text, source):
    found = extract(response)
    assert (found.text, found.source) == (text, source)


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (r"\boxed{1}\boxed{1}", "1"),
        (r"\boxed{1} and \boxed{2}", "1, 2"),
        (r"$x = \boxed{1}$, $y = \boxed{2}$", "1, 2"),
        (r"\boxed{1} is wrong, it is \boxed{2}", "2"),
        ("\\boxed{1}\n\n\\boxed{2}", "2"),
        (r"\boxed{1}, hmm, \boxed{2}", "2"),
    ],
)
def test_boxes_are_joined_only_where_they_are_one_answer(response, text):
    assert extract(response).text == text


PIECES = [
    "\\boxed{", "\\boxed{1} and ", "$1$,", "$5 ", "\\(", "\\[", "$$", "\\frac{1}{", "answer ", "answer is ", "\nHuman:",
    "\nQuestion: ", "<think>", "</think>", "<|im_end|>", "1,000,", "1 ", "(A) ", "not ", "\x00\ud800", "yes or ", ".",
]  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "pieces"),
    [(extract, PIECES), (choice.choice_letter, PIECES[::4]), (choice.boolean_answer, PIECES[::4])],
)
def test_200_kilobytes_of_anything_take_linear_work(reader, pieces):
    """Extraction runs in the trainer's process without a clock: it must be linear, whatever it reads."""
    for piece in pieces:
        assert is_linear(reader, repeated(piece, " 5"), 50_000), f"{reader.__name__} on {piece!r}"
