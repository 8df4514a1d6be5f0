"""The small-model example: calculations read from prose, slips found by rule, demonstrations that parse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from meml_mel.mel.parse import parse_meta_experience

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "smollm2"
sys.path.insert(0, str(FOLDER))

import rules  # noqa: E402
from calculations import calculations, has_algebra  # noqa: E402


@pytest.mark.parametrize(
    "text, read",
    [
        ("3 sprints * 60 meters/sprint = 180 meters", ["3 * 60 = 180"]),
        ("She pays $1,250 / 5 = $250.", ["1250 / 5 = 250"]),
        ("16-3-4=<<16-3-4=9>>9 eggs", ["16 - 3 - 4 = 9"]),
        ("30% of 180 = 54", ["30% * 180 = 54"]),
        ("180 × (1 - 0.30) = 180 × 0.7 = 126", ["180 * 0.7 = 126"]),
        ("$5*$2 = $10 and 2 x 3 = 6", ["5 * 2 = 10", "2 * 3 = 6"]),
        ("1. Hat: 5 + 6 = 11\n2. Coat: 11 ÷ 2 = 5.5", ["5 + 6 = 11", "11 / 2 = 5.5"]),
        ("3 boys and 2 girls = 5", []),
        ("2(x + 16) = 40", []),
        ("no numbers here", []),
    ],
)
def test_calculations_are_read_over_units_and_notes(text, read):
    assert [str(c) for c in calculations(text)] == read


@pytest.mark.parametrize(
    "text, holds",
    [
        ("60 / 3 = 25", False),
        ("60 / 3 = 20", True),
        ("100 / 3 = 33.33", True),  # rounded
        ("100 / 3 = 33", True),  # cut
        ("8 / 20 = 40%", True),
        ("8 / 20 * 100 = 40%", True),
        ("10 + 12 = 22.3. Next", True),  # the full stop of a sentence and a list's number, glued
        ("12 * 15 = 170", False),
    ],
)
def test_a_stated_result_holds_up_to_rounding(text, holds):
    assert [c.holds for c in calculations(text)] == [holds]


def test_algebra_is_told_from_prose():
    assert has_algebra("Let x be the cost, 3x + 4 = 28")
    assert not has_algebra("A train has 3 cars, and it's 4 * 3 = 12 seats")


PROBLEM = "Tom has 3 boxes with 4 pens each. He gives 2 pens away. How many pens are left?"
RIGHT = "He has 3 * 4 = 12 pens.\nThen 12 - 2 = 10 pens are left."


@pytest.mark.parametrize(
    "wrong, kind, step, instead",
    [
        ("He has 3 * 4 = 14 pens.\nThen 14 - 2 = 12 are left.", "arithmetic", "3 * 4 = 14", "None"),
        ("He has 3 + 4 = 7 pens.\nThen 7 - 2 = 5 are left.", "operation", "3 + 4 = 7", "3 * 4 = 12"),
        ("He has 3 * 4 = 12 pens.\nThen 12 - 4 = 8 are left.", "quantity", "12 - 4 = 8", "12 - 2 = 10"),
        ("He has 3 * 4 = 12 pens.", "stopped", "3 * 4 = 12", "12 - 2 = 10"),
        (f"{RIGHT}\nEach box has 10 / 3 = 3.33 pens.", "overshot", "10 / 3 = 3.33", "None"),
    ],
)
def test_the_first_difference_is_found_and_named(wrong, kind, step, instead):
    slip = rules.find_slip(PROBLEM, wrong, RIGHT)
    assert (slip.kind, str(slip.wrong), str(slip.right)) == (kind, step, instead)


def test_a_number_from_nowhere_is_called_that():
    slip = rules.find_slip(PROBLEM, "He has 3 * 4 = 12 pens, then 12 - 5 = 7.", RIGHT)
    assert slip.detail == "5, which is neither given nor computed before, in place of 2"


@pytest.mark.parametrize(
    "wrong, right",
    [
        ("no calculation", RIGHT),
        ("3 * 4 = 12 pens, 12 - 4 = 8", "He has 3 * 4 = 13, then 13 - 2 = 11."),  # the right one has a slip
        ("3x + 4 = 10, so x = 2", RIGHT),
        (RIGHT, RIGHT),
    ],
)
def test_where_the_rules_cannot_tell_there_is_no_analysis(wrong, right):
    assert rules.find_slip(PROBLEM, wrong, right) is None


@pytest.mark.parametrize("kind", rules.RULE)
def test_every_analysis_parses_and_its_general_sections_hold_no_number(kind):
    wrong, right = calculations("3 + 4 = 7")[0], calculations("3 * 4 = 12")[0]
    slip = rules.Slip(kind, wrong, right, 0, "3, in place of 4")
    read = parse_meta_experience(rules.analysis(PROBLEM, slip))
    assert "3 + 4 = 7" in read.bifurcation_point
    assert "Cause:" not in read.bifurcation_point
    for section in (read.reflection, read.heuristics):
        assert not re.search(r"\d", section)
    assert all(re.match(r"- [A-Z][^:]*: if .*, then ", line) for line in read.heuristics.splitlines())


def test_every_class_of_problem_has_a_rule_without_numbers():
    for _, rule in rules.CLASSES:
        assert re.match(r"- [A-Z][^:]*: if .*(, then |; )", rule) and not re.search(r"\d", rule)
    assert "Percent" in rules.class_rule("What is 30% of it?")
    assert "Groups" in rules.class_rule("3 bags of 4 pens")


def test_the_script_writes_rows_that_sft_reads(tmp_path):
    """From a file of experts' solutions to ready rows, through the SFT stage's own config and templates."""
    rows = [
        {
            "id": "q1",
            "problem": PROBLEM,
            "answer": "10",
            "experts": {
                "a": {"response": RIGHT, "answer": "10", "correct": True},
                "b": {
                    "response": "He has 3 + 4 = <<3+4=7>>7.\nThen 7 - 2 = 5.\nA: 5",
                    "answer": "5",
                    "correct": False,
                },
            },
        },
        {
            "id": "q2",
            "problem": "1 + 1?",
            "answer": "2",
            "experts": {"a": {"response": "It is 2.", "answer": "2", "correct": True}},
        },
    ]
    (tmp_path / "experts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "model_name_or_path": "x",
        "output_dir": "run",
        "data": {"path": str(tmp_path / "experts.jsonl")},
        "experts": [
            {
                "name": "A",
                "solutions": {
                    "column": "experts.a.response",
                    "correct_column": "experts.a.correct",
                    "ending": "\n\nThe answer is \\boxed{{answer}}.",
                },
            }
        ],
    }
    (tmp_path / "sft.yaml").write_text(json.dumps(config))
    command = [sys.executable, str(FOLDER / "make_analyses.py"), "--config", str(tmp_path / "sft.yaml")]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (analysis,) = [
        json.loads(line) for line in (tmp_path / "out" / "analyses.jsonl").read_text().splitlines()
    ]
    (replay,) = [json.loads(line) for line in (tmp_path / "out" / "replays.jsonl").read_text().splitlines()]
    assert analysis["kind"] == "operation"
    text = analysis["prompt"][-1]["content"]
    assert "3 + 4 = 7" in text and "<<" not in text and "\nA: 5" not in text and "\\boxed{5}" in text
    assert text.index("\\boxed{5}") < text.index("\\boxed{10}")  # the wrong attempt stands first
    assert replay["prompt"][0] == {"role": "system", "content": "You are A."}
    assert analysis["completion"].split("\n", 1)[1] in replay["prompt"][1]["content"]
    assert replay["completion"] == f"{RIGHT}\n\nThe answer is \\boxed{{10}}."
    assert Fraction(10) == calculations(replay["completion"])[-1].result
