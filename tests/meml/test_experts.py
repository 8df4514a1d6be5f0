"""Experts: question x expert rows, and multi-expert SFT rows with what was dropped and why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meml_mel.data.load import DataSource, load_questions
from meml_mel.data.question import Question
from meml_mel.data.solutions import load_solutions
from meml_mel.grading.verdict import Grade
from meml_mel.meml.experts import (
    NAMELESS,
    Expert,
    Solution,
    SolutionSource,
    check_experts,
    question_expert_rows,
    require_solutions,
    sft_rows,
)

Q = [Question(f"q{i}", f"{i}+{i}?", str(2 * i)) for i in range(3)]
TRUTH = SolutionSource(ground_truth=True)
E0, R1 = Expert("E0", solutions=TRUTH), Expert("r1", "Think.", SolutionSource(column="response"))
SOLUTIONS = {
    "E0": {"q0": Solution("0", True), "q1": Solution("2", True), "q2": Solution("4", True)},
    "r1": {"q0": Solution("0 by luck", False), "q1": Solution("2!", None)},
}


def grade(gold, answer, kind):
    """A stand-in that is right where the answer begins with the gold, and cannot read a gold of 4."""
    if gold == "4":
        return Grade("ungradable", "unparsable_gold")
    return Grade("right") if answer.startswith(gold) else Grade("wrong", "different")


def shared(name):
    root = Path(os.environ.get("MEML_MEL_SHARED", Path(__file__).resolve().parents[3] / "shared"))
    if not (root / "data" / name).is_file():
        pytest.skip(f"{name} is not here: set MEML_MEL_SHARED to the folder that holds data/{name}")
    return str(root / "data" / name)


def test_rows_are_question_major():
    rows = question_expert_rows(Q, [E0, R1])
    assert [(q.id, e.name) for q, e in rows] == [(q.id, name) for q in Q for name in ("E0", "r1")]
    assert rows[2 * 1 + 1] == (Q[1], R1)  # row q * E + e


def test_without_experts_there_is_one_nameless_expert():
    assert question_expert_rows(Q) == [(q, NAMELESS) for q in Q]
    assert NAMELESS.name == NAMELESS.system_prompt == ""


def test_only_correct_solutions_are_kept_and_the_rest_is_counted():
    rows, report = sft_rows(Q, [E0, R1], SOLUTIONS)
    assert [(r.question.id, r.expert.name, r.response) for r in rows] == [
        ("q0", "E0", "0"),
        ("q1", "E0", "2"),
        ("q2", "E0", "4"),
    ]
    assert report.kept == {"E0": 3, "r1": 0}
    assert report.dropped == {"E0": {}, "r1": {"wrong": 1, "ungraded": 1, "no solution": 1}}
    assert "r1: 0 rows (dropped: 1 wrong, 1 ungraded, 1 no solution)" in report.description()


def test_a_grader_judges_what_the_source_does_not():
    rows, report = sft_rows(Q, [R1], SOLUTIONS, grade=grade)
    assert [(r.response, r.correct) for r in rows] == [("2!", True)]
    assert report.dropped == {
        "r1": {"wrong": 1, "no solution": 1}
    }  # q0: the source says wrong, not asked again


def test_a_gold_that_cannot_be_graded_leaves_its_solution_ungraded():
    rows, report = sft_rows(Q[2:], [R1], {"r1": {"q2": Solution("4", None)}}, grade=grade)
    assert rows == [] and report.dropped == {"r1": {"ungraded": 1}}


def test_keeping_all_keeps_what_is_known_of_each():
    rows, report = sft_rows(Q, [R1], SOLUTIONS, keep_only_correct=False)
    assert [(r.response, r.correct) for r in rows] == [("0 by luck", False), ("2!", None)]
    assert report.kept == {"r1": 2} and report.dropped == {"r1": {"no solution": 1}}


def test_an_ending_is_put_to_right_solutions_with_the_gold():
    expert = Expert(
        "r1", solutions=SolutionSource(column="response", ending="\nThe answer is \\boxed{{answer}}.")
    )
    rows, _ = sft_rows(Q, [expert], SOLUTIONS, keep_only_correct=False, grade=grade)
    assert [r.response for r in rows] == ["0 by luck", "2!\nThe answer is \\boxed{2}."]


@pytest.mark.parametrize("name", ["a b", "../up", "r1/x", "-x", ".x", "ü", "x" * 65])
def test_names_that_cannot_stand_in_file_names_are_refused(name):
    with pytest.raises(ValueError, match="cannot stand in file names"):
        Expert(name)


def test_names_are_unique_whatever_their_case():
    for twice in (["r1", "r1"], ["r1", "R1"], ["R1", "r1"]):
        with pytest.raises(ValueError, match=f"two experts are named '{twice[1]}'"):
            check_experts([Expert(name) for name in twice])
    with pytest.raises(ValueError, match="expert 0 has an empty name"):
        question_expert_rows(Q, [Expert("")])


def test_sft_needs_a_solution_source_for_each_expert():
    message = "expert 'r1' has no solutions column: add solutions.column or drop it from the experts of the SFT stage"
    for expert in (Expert("r1"), Expert("r1", solutions=SolutionSource())):
        with pytest.raises(ValueError, match=message.replace(".", r"\.")):
            require_solutions([E0, expert])
        with pytest.raises(ValueError, match=r"no solutions column"):
            sft_rows(Q, [expert], {"r1": {}})
    with pytest.raises(ValueError, match="has no experts"):
        sft_rows(Q, [], {})
    with pytest.raises(ValueError, match="expert 'r1' has no loaded solutions"):
        sft_rows(Q, [E0, R1], {"E0": SOLUTIONS["E0"]})


def test_eleven_real_experts_of_gsm8k():
    """Counts of correct solutions among the 400 test items, as their source recorded them."""
    correct = {
        "Meta-Llama-3.1-8B-Instruct": 343,
        "deepseek-v2.5-0908": 372,
        "gemma-2-2b-it": 213,
        "openai_6b_finetuning": 89,
        "human_gold": 400,
    }
    data = DataSource(shared("experts_gsm8k.jsonl"))
    questions = load_questions(data, gradable=lambda gold, kind: True).questions
    experts, solutions = [], {}
    for name in correct:
        source = SolutionSource(column=f"experts.{name}.response", correct_column=f"experts.{name}.correct")
        experts.append(Expert(name, solutions=source))
        solutions[name] = load_solutions(source, questions, data, who=name)
    rows, report = sft_rows(questions, experts, solutions)
    assert report.kept == correct and len(rows) == sum(correct.values())
    assert report.dropped["gemma-2-2b-it"] == {"wrong": 187}
    every, _ = sft_rows(questions, experts, solutions, keep_only_correct=False)
    assert len(every) == 400 * 5


def test_solutions_of_test_items_reach_their_gsm8k_questions_by_problem():
    """The experts file and the questions are two files with one text; ids play no part."""
    test = load_questions(
        DataSource(shared("gsm8k_test.jsonl"), mapping="gsm8k"), lambda g, k: True
    ).questions
    source = SolutionSource(path=shared("experts_gsm8k.jsonl"), column="experts.human_gold.response")
    assert set(load_solutions(source, test)) == {f"gsm8k-test-{i}" for i in range(400)}


def test_mathqa_and_strategyqa_experts():
    data = DataSource(shared("experts_mathqa_human.jsonl"))
    questions = load_questions(data, lambda g, k: True).questions
    program = SolutionSource(
        column="experts.annotated_program.response", correct_column="experts.annotated_program.correct"
    )
    expert = Expert("program", solutions=program)
    _, report = sft_rows(questions, [expert], {"program": load_solutions(program, questions, data)})
    assert report.dropped["program"]["ungraded"] == 1000  # the source does not judge programs

    data = DataSource(shared("experts_strategyqa.jsonl"))
    questions = load_questions(data, lambda g, k: True).questions
    teacher = SolutionSource(column="experts.teacher_llm_cot (unnamed, icml_kd).response")
    assert len(load_solutions(teacher, questions, data)) > 1150
