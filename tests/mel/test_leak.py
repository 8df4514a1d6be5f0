"""Does a text state the gold answer? By hand-made cases for each kind of question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meml_mel.data.question import Question
from meml_mel.mel.leak import Leak, leaks, measure
from meml_mel.mel.parse import MetaExperience
from tests.linear import is_linear, repeated

OPTIONS = "How many? a ) 24 , b ) 120 , c ) 625 , d ) 720"
LINES = "Which is prime?\nA) 91\nB) 97\nC) 99"


def math(answer: str) -> Question:
    return Question("q", "p", answer)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("so there are 18.", "18"),
        ("= 18, as before", "18"),
        ("$18$", "18"),
        (r"\boxed{18}", "18"),
        ("**18**", "18"),
        ("18 cm", "18"),
        ("18cm", "18"),
        (r"costs \$18", "18"),
        ("18.0", "18"),
        ("x=18", "18"),
        ("24-18 is left", "18"),
        ("- 18 apples", "18"),
        ("1,000 people", "1000"),
        ("1000 people", "1,000"),
        (r"1{,}000", "1000"),
        (r"10\,000", "10000"),
        (r"it is \frac{1}{2}", "1/2"),
        ("it is 1/2.", r"\frac{1}{2}"),
        (r"it is \frac12", "0.5"),
        ("half, 0.5", r"\dfrac{1}{2}"),
        ("-18", "-18"),
        ("it is -18", "-18"),
        ("= - 18", "-18"),
        ("28%", r"28\%"),
        (r"90^\circ", "90"),
        ("x = 5", "x=5"),
        (r"so $3\sqrt{2}$ it is", r"3\sqrt{2}"),
        (r"3 \sqrt 2", r"3\sqrt{2}"),
        (r"\left(1, 2\right)", "(1,2)"),
        (r"\frac{3\pi}{4}", r"3\pi/4"),
        ("Evelyn won", r"\text{Evelyn}"),
    ],
)
def test_the_answer_is_found_however_it_is_written(text, gold):
    assert leaks(text, math(gold))


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("118 and 180 and 18.5 and 0.18 and 18,500 and 1,018", "18"),
        ("x^18, x^{18}, x_{18}, x18", "18"),
        ("18x + 18(y + 1)", "18"),
        (r"18\pi and \sqrt{18} and 18^2", "18"),
        ("the 18th", "18"),
        ("18/5 and 5/18", "18"),
        ("it is -18", "18"),
        ("18", "-18"),
        ("in step 18", "18"),
        ("1. Look first.\n2. Then count.\n- 3) Check.", "2"),
        (r"13\sqrt{2} and 3\sqrt{23}", r"3\sqrt{2}"),
        ("Everyone", "Eve"),
        ("x is unknown", "x"),
        ("eighteen", "18"),
        ("", "18"),
        ("anything", ""),
    ],
)
def test_another_number_or_a_label_is_no_leak(text, gold):
    assert not leaks(text, math(gold))


@pytest.mark.parametrize(
    "text", ["(B)", "option B", "The answer is B.", r"\boxed{B}", "option (b)", "it is 120"]
)
def test_a_choice_is_stated_by_its_letter_or_its_text(text):
    assert leaks(text, Question("q", OPTIONS, "B", "choice"))


@pytest.mark.parametrize(
    "text", ["Be careful", "option A", "option B is wrong", "B-splines", "a b c", "720 and 24"]
)
def test_other_letters_and_options_are_no_leak(text):
    assert not leaks(text, Question("q", OPTIONS, "B", "choice"))


def test_options_on_lines_of_their_own():
    assert leaks("97 has no divisor", Question("q", LINES, "B", "choice"))
    assert not leaks("91 = 7 * 13", Question("q", LINES, "B", "choice"))


@pytest.mark.parametrize(
    "text",
    [
        "The answer is yes.",
        "answer: Yes",
        r"\boxed{yes}",
        r"\boxed{\text{True}}",
        "the answer should be **yes**",
    ],
)
def test_a_boolean_is_stated_in_so_many_words(text):
    assert leaks(text, Question("q", "p", "yes", "boolean"))
    assert not leaks(text, Question("q", "p", "no", "boolean"))


@pytest.mark.parametrize(
    "text", ["Yes, it can.", "the answer is no", "yesterday", "no rule, yes", "true enough"]
)
def test_a_mere_yes_is_no_leak(text):
    assert not leaks(text, Question("q", "p", "yes", "boolean"))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("failure", Leak(True, False)),
        ("success", Leak(True, False)),
        ("reflection", Leak(False, True)),
        ("heuristics", Leak(False, True)),
    ],
)
def test_sections_1_and_2_are_measured_apart_from_3_and_4(place, expected):
    texts = dict.fromkeys(("failure", "success", "reflection", "heuristics"), "nothing here")
    experience = MetaExperience(**(texts | {place: "it is 18"}), raw="")
    assert measure(experience, math("18")) == expected
    assert expected.anywhere


def test_section_numbers_are_no_numbers_of_the_text():
    experience = MetaExperience("a", "b", "c", "d", raw="")
    assert not any(leaks(experience.knowledge(), math(gold)) for gold in "1234")


@given(st.text(max_size=200), st.text(max_size=30), st.sampled_from(["math", "choice", "boolean"]))
def test_any_text_and_any_gold_are_answered(text, gold, kind):
    assert leaks(text, Question("q", text, gold, kind)) in (True, False)


@given(st.integers(0, 10**6), st.sampled_from(["so {}", "= {}.", "${}$", r"\boxed{{{}}}", "{} apples"]))
def test_every_whole_number_is_found_and_its_neighbours_are_not(number, sentence):
    text = sentence.format(number)
    assert leaks(text, math(str(number)))
    assert not leaks(text, math(str(number + 1))) and not leaks(text, math(f"{number}7"))


@pytest.mark.parametrize("kind", ["math", "choice", "boolean"])
@pytest.mark.parametrize(
    "unit",
    ["1", "1 ", "1,", "1/", "\\frac{", "\\text{", "\\boxed{", "answer ", "- ", "\n", "^{", "((", "A ) "],
)
def test_hostile_input_is_answered_with_linear_work(unit, kind):
    """In the problem, in the gold and in the text."""

    def work(text: str) -> None:
        leaks(text, Question("q", text, "B" if kind == "choice" else "1/7", kind))

    assert is_linear(work, repeated(unit))
    assert kind != "math" or is_linear(lambda text: leaks(text, math(text)), repeated(unit))
