"""The parser reads what real models write, and says what a text lacks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meml_mel.mel.parse import HEADINGS, FormatError, MetaExperience, parse_meta_experience
from meml_mel.mel.run_on import analysis_runs_on
from meml_mel.prompts.library import load_template
from tests.linear import is_linear, repeated
from tests.mel.analyses import KEYS, PLAIN, READABLE, UNREADABLE, F, H, R, S


def test_there_are_more_than_forty_ways_to_write_it():
    assert len(READABLE) >= 40


@pytest.mark.parametrize("text", READABLE.values(), ids=READABLE.keys())
def test_each_section_is_found_with_its_own_text(text):
    parsed = parse_meta_experience(text)
    assert isinstance(parsed, MetaExperience), parsed
    for section in KEYS:
        for other, key in KEYS.items():
            assert (key in getattr(parsed, section)) == (section == other), (
                section,
                getattr(parsed, section),
            )
    assert parsed.raw == text


@pytest.mark.parametrize(("text", "missing"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_lacking_or_empty_section_is_named(text, missing):
    parsed = parse_meta_experience(text)
    assert isinstance(parsed, FormatError), parsed
    assert parsed.missing == missing
    assert parsed.reason


def test_the_reason_tells_absent_from_empty():
    absent = parse_meta_experience(PLAIN.split("## 4.")[0])
    empty = parse_meta_experience(PLAIN.replace(H, ""))
    assert absent == FormatError(("heuristics",), "section '4. Heuristics' is not there")
    assert empty == FormatError(("heuristics",), "section '4. Heuristics' is empty")
    unclosed = parse_meta_experience("<think> hm")
    assert isinstance(unclosed, FormatError) and "<think>" in unclosed.reason


@pytest.mark.parametrize(
    "line",
    [
        "The failure point is the sign.",
        "Failure point is where it left the path.",
        "In the heuristics section I said so.",
        "Rules such as these: look first.",
        "2. What worked for me was checking.",
        "1. Failure to check the sign: if seen, stop.",
        "**Rule 1:** if it is even, halve it.",
        "- Rule of thumb: look first.",
        "Heuristics say little.",
        "Success requires care: check.",
        "Reflection on this shows: check.",
        "What went wrong was the sign.",
        "Reflection. It helps, they say.",
        "Rules - some of them - are old.",
        "Failures and what they teach",
    ],
)
def test_prose_that_begins_with_a_name_is_no_heading(line):
    """Put ahead of the sections, a heading would change what is found, or be found as its own section."""
    parsed = parse_meta_experience(line + "\nmore text")
    assert isinstance(parsed, FormatError) and len(parsed.missing) == 4, line


def test_exact_texts():
    parsed = parse_meta_experience(READABLE["rules between"])
    assert isinstance(parsed, MetaExperience)
    assert (parsed.failure, parsed.success, parsed.reflection, parsed.heuristics) == (F, S, R, H)
    fenced = parse_meta_experience(READABLE["in a code fence"])
    assert isinstance(fenced, MetaExperience) and fenced.heuristics == H


def test_a_fence_inside_a_section_stays():
    body = "- Check: if in doubt, then run\n```python\nassert area > 0\n```"
    parsed = parse_meta_experience(PLAIN.replace(H, body))
    assert isinstance(parsed, MetaExperience) and parsed.heuristics == body


def test_the_papers_tuple_is_covered_by_its_parts():
    """M = (s*, C, H): s* is section 1's step, C the rest of 1 with 2 and 3, H is 4 (docs/mel.md)."""
    parsed = parse_meta_experience(PLAIN)
    assert isinstance(parsed, MetaExperience)
    assert parsed.bifurcation_point == "Step: it forgot to halve the product."
    assert parsed.critique == f"Cause: the formula was taken from memory.\n\n{S}\n\n{R}"
    assert parsed.heuristics == H


def test_without_a_cause_line_the_first_paragraph_is_the_bifurcation_point():
    parsed = parse_meta_experience(PLAIN.replace(F, "It halves twice.\n\nThe habit is haste."))
    assert isinstance(parsed, MetaExperience)
    assert parsed.bifurcation_point == "It halves twice."
    assert parsed.critique.startswith("The habit is haste.")
    one = parse_meta_experience(PLAIN.replace(F, "Cause: haste. It halves twice."))
    assert isinstance(one, MetaExperience)
    assert one.bifurcation_point == "Cause: haste. It halves twice."


def test_a_replay_reads_all_of_it_or_the_heuristics_alone():
    parsed = parse_meta_experience(READABLE["bare names with a colon"])
    assert isinstance(parsed, MetaExperience)
    assert parsed.knowledge("full") == PLAIN
    assert parsed.knowledge("heuristics_only") == f"## 4. Heuristics\n{H}"


def test_the_analysis_prompt_asks_for_the_headings_that_are_read():
    source = load_template("analyse", "analyse.v1").source
    positions = [source.index(f"## {heading}\n") for heading in HEADINGS.values()]
    assert positions == sorted(positions)


PIECES = "##|**|1.|Failure point|What worked|Reflection|Heuristics|:|text|<think>|</think>|```|---|(|)|and|{|}|：|🔍"
TRICKY = st.lists(
    st.sampled_from(["\n", " ", "\r", "\x00", "\\section{", *PIECES.split("|")]), max_size=60
).map("".join)


@given(st.one_of(st.text(max_size=400), TRICKY))
def test_any_text_is_answered(text):
    parsed = parse_meta_experience(text)
    if isinstance(parsed, FormatError):
        assert parsed.missing and set(parsed.missing) <= set(HEADINGS) and parsed.reason
    else:
        for section in HEADINGS:
            assert any(ch.isalnum() for ch in getattr(parsed, section))
    analysis_runs_on(text)


HOSTILE = [
    "#", "# ", "**", "*", "`", ">", "> ", " ", "\n", "\r\n", "(", "1. ", "1", "-", "- ", "_", "{", "\\", "\x00",
    "rules" + " " * 190 + "x\n", "1. Failure point " + "of a " * 40 + "\n", "## Rules and " + "and so on " * 9 + "\n",
    "Failure point (" * 16 + "\n", "</think>", "<think>", "```" + " " * 5000 + "!\n", "- - - - x\n", "---",
    "## 1. Failure point\n", "why the right attempt ", "cause ", "\n---\n", "[Problem", "Human", "<|", "**1. Rules, a",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_input_is_answered_with_linear_work(unit):
    assert is_linear(parse_meta_experience, repeated(unit))
    assert is_linear(analysis_runs_on, repeated(unit))


@pytest.mark.parametrize(
    "tail",
    ["\n\nHuman: and the next?", "\n\nQuestion: What is 2 + 2?", "\n<|im_start|>user", "\n\n[Problem]\nFind x.",
     "\n\n**Problem 2:** Find x.", "\n[End of the attempt with a RIGHT answer]", "\n\n" + PLAIN],
)  # fmt: skip
def test_text_after_the_end_is_run_on(tail):
    assert analysis_runs_on(PLAIN + tail)


@pytest.mark.parametrize("text", READABLE.values(), ids=READABLE.keys())
def test_no_readable_analysis_counts_as_run_on_except_one_that_repeats_itself(text):
    assert analysis_runs_on(text) == (text == READABLE["a repeated heading"])
