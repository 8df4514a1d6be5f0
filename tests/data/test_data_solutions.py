"""Solutions of questions: matched by problem or id, from nested columns, with the source's own verdicts."""

from __future__ import annotations

import pytest
from data_helpers import FIXTURES, load, write_jsonl

from meml_mel.data.load import DataError, DataSource
from meml_mel.data.solutions import Solution, SolutionSource, load_solutions

EXPERTS = FIXTURES / "experts.jsonl"
DATA = DataSource(str(EXPERTS))
NAME = "experts.acme/solver-1.5"


@pytest.fixture
def questions():
    return load(EXPERTS).questions


def test_a_nested_column_of_the_questions_own_rows(questions):
    source = SolutionSource(column=f"{NAME}.response", correct_column=f"{NAME}.correct")
    assert load_solutions(source, questions, DATA) == {
        "x1": Solution("2 + 3 is 5.", True),
        "x2": Solution("8 + 8 = 16.", True),
    }  # the third is empty: no solution


def test_verdicts_may_be_missing_and_wrong(questions):
    source = SolutionSource(column="experts.slow.2.response", correct_column="experts.slow.2.correct")
    assert [s.correct for s in load_solutions(source, questions, DATA).values()] == [False, None, True]


def test_cuts_of_the_questions_do_not_cut_their_solutions(questions):
    data = DataSource(str(EXPERTS), start=1, max_questions=1)
    solutions = load_solutions(SolutionSource(column="experts.slow.2.response"), questions, data)
    assert set(solutions) == {"x1", "x2", "x3"}


def test_another_file_is_matched_by_problem_whatever_its_ids(questions, tmp_path):
    rows = [
        {"question": "Double  8.", "trace": "It is 16."},  # spacing aside
        {"question": "Unknown?", "trace": "?"},
    ]
    source = SolutionSource(path=write_jsonl(tmp_path / "traces.jsonl", rows), column="trace")
    assert load_solutions(source, questions) == {"x2": Solution("It is 16.", None)}


def test_or_by_id_without_any_problem_column(questions, tmp_path):
    rows = [{"key": "x3", "trace": "Six."}, {"key": "x9", "trace": "?"}]
    path = write_jsonl(tmp_path / "traces.jsonl", rows)
    source = SolutionSource(path=path, column="trace", match="id", mapping={"id": "key"})
    assert load_solutions(source, questions) == {"x3": Solution("Six.", None)}
    guessed = write_jsonl(tmp_path / "ids.jsonl", [{"id": "x3", "trace": "Six."}])
    assert load_solutions(SolutionSource(path=guessed, column="trace", match="id"), questions)


def test_of_several_solutions_the_first_correct_one_is_taken(questions, tmp_path):
    rows = [
        {"problem": "Double 8.", "trace": "first", "ok": 0},
        {"problem": "Double 8.", "trace": "second", "ok": 1},
        {"problem": "Double 8.", "trace": "third", "ok": 1},
    ]
    path = write_jsonl(tmp_path / "traces.jsonl", rows)
    assert load_solutions(SolutionSource(path=path, column="trace"), questions)["x2"].text == "first"
    judged = SolutionSource(path=path, column="trace", correct_column="ok")
    assert load_solutions(judged, questions)["x2"] == Solution("second", True)


def test_ground_truth_is_the_questions_own_solution():
    questions = load(FIXTURES / "gsm8k.jsonl", mapping="gsm8k").questions
    solutions = load_solutions(SolutionSource(ground_truth=True), questions)
    assert solutions[questions[2].id] == Solution("9 - 11 = -2.\n#### -2", True)


def refused(questions, **fields):
    with pytest.raises(DataError) as caught:
        load_solutions(SolutionSource(**fields), questions, DATA, who="expert 'r1'")
    return str(caught.value)


def test_what_is_missing_is_named(questions, tmp_path):
    assert "expert 'r1' has no solutions column: add solutions.column" in refused(questions)
    assert "none of the 3 questions has a solution" in refused(questions, ground_truth=True)
    message = refused(questions, column="experts.acme.response")
    assert "no row of experts.jsonl has the column 'experts.acme.response'" in message
    assert "'experts' holds: acme/solver-1.5, slow.2" in message
    assert "holds a mapping" in refused(questions, column=NAME) and "response" in refused(
        questions, column=NAME
    )
    assert "has the column 'nope' (solutions.correct_column)" in refused(
        questions, column=f"{NAME}.response", correct_column="nope"
    )
    assert "neither true nor false" in refused(questions, column=f"{NAME}.response", correct_column="problem")
    other = write_jsonl(tmp_path / "other.jsonl", [{"problem": "Never asked.", "trace": "?"}])
    assert "none of the 1 rows of other.jsonl is one of the 3 questions by problem" in refused(
        questions, path=other, column="trace"
    )
    blank = write_jsonl(tmp_path / "blank.jsonl", [{"problem": "Double 8.", "trace": " "}])
    assert "the column 'trace' of blank.jsonl is empty for all 1 questions" in refused(
        questions, path=blank, column="trace"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ground_truth": True, "column": "x"}, "solutions.ground_truth is true and solutions.column is set"),
        ({"column": "x", "mapping": {"problem": "p"}}, "solutions.mapping is set and solutions.path is not"),
        ({"column": "x", "path": "y", "mapping": {"id": "p"}}, "mapping lacks problem"),
        ({"column": "x", "ending": "done"}, "has no {answer}"),
    ],
)
def test_settings_that_contradict_each_other_fail_at_once(fields, message):
    with pytest.raises(DataError, match=message):
        SolutionSource(**fields)
