"""The real data sets of shared/data load as the questions they are known to hold (counts from its README)."""

from __future__ import annotations

import pytest
from data_helpers import load, shared

from meml_mel.data.decontaminate import decontaminate, overlap
from meml_mel.data.load import DataSource, load_questions


def test_the_verl_fixture_of_960_rows_is_30_questions():
    loaded = load(shared("fixture_dapo_aime2024_verl.jsonl"))
    assert (loaded.report.rows, len(loaded.questions), loaded.report.duplicates) == (960, 30, 930)
    assert not any("step by step" in q.problem for q in loaded.questions)
    raw = load(
        shared("fixture_dapo_aime2024_verl.jsonl"), mapping="dapo_math_17k"
    )  # its regex, no raw_problem
    assert [(q.problem, q.answer) for q in raw.questions] == [(q.problem, q.answer) for q in loaded.questions]


def test_the_verl_fixture_holds_the_problems_of_aime_2024():
    verl = load(shared("fixture_dapo_aime2024_verl.jsonl")).questions
    aime = load(shared("aime2024.jsonl")).questions
    assert sorted(int(q.answer) for q in verl) == sorted(int(q.answer) for q in aime)


def test_dapo_instructions_come_off_real_prompts():
    path = shared("dapo_math_17k_sample20.jsonl")
    by_prompt = load(path, mapping={"problem": "prompt", "answer": "label", "id": "id"}).questions
    plain = load(path).questions  # `problem` as a person extracted it
    stripped = load(path, mapping="dapo_math_17k").questions
    assert len(plain) == 20 and [(q.problem, q.answer) for q in stripped] == [
        (q.problem, q.answer) for q in plain
    ]
    assert all(q.problem.startswith("Solve the following math problem") for q in by_prompt)


@pytest.mark.parametrize(("name", "count"), [("gsm8k_train", 7473), ("gsm8k_test", 1319)])
def test_gsm8k(name, count):
    loaded = load(shared(f"{name}.jsonl"), mapping="gsm8k")
    assert len(loaded.questions) == count and loaded.report.duplicates == 0
    assert all(q.answer.lstrip("-").isdigit() for q in loaded.questions)
    assert not any("<<" in (q.solution or "") for q in loaded.questions)
    assert all(
        q.solution.endswith(f"#### {q.answer}") for q in loaded.questions if "," not in q.solution[-8:]
    )


def test_mathqa_has_five_options_and_a_letter_each():
    loaded = load(shared("mathqa_test_1000.jsonl"), mapping="mathqa")
    assert len(loaded.questions) == 1000 and loaded.report.rejected == ()
    for question in loaded.questions:
        assert question.kind == "choice" and question.answer in "ABCDE"
        assert [f"\n({letter}) " in question.problem for letter in "ABCDE"] == [True] * 5
    with_solution = [q for q in loaded.questions if q.solution]
    # the rationale of two is nothing but "answer : c"
    assert len(with_solution) == 998 and all(
        q.solution.endswith(f"\nAnswer: {q.answer}") for q in with_solution
    )


@pytest.mark.parametrize(
    ("name", "rows", "questions"), [("strategyqa_dev", 229, 229), ("strategyqa_train", 2061, 2060)]
)
def test_strategyqa(name, rows, questions):
    loaded = load(shared(f"{name}.jsonl"), mapping="strategyqa")
    assert (loaded.report.rows, len(loaded.questions)) == (rows, questions)
    assert {q.answer for q in loaded.questions} == {"yes", "no"} and {q.kind for q in loaded.questions} == {
        "boolean"
    }


def test_math_train_has_one_duplicate_and_two_empty_golds():
    loaded = load(shared("math_train_deepscaler.jsonl"), mapping="math")
    report = loaded.report
    assert (report.rows, report.duplicates, len(report.rejected), len(loaded.questions)) == (7474, 1, 2, 7471)
    assert {r.reason for r in report.rejected} == {"empty answer"}


def test_math_golds_are_the_boxes_of_their_solutions():
    """MATH-500 has both columns, so the box rule can be held against the answers."""
    with_answers = load(shared("math500.jsonl"), mapping="math").questions
    from meml_mel.data.mappings import last_boxed

    agree = sum(
        "".join((last_boxed(q.solution) or "").split()) == "".join(q.answer.split()) for q in with_answers
    )
    assert agree >= 490


def test_olympiadbench_answer_lists_are_one_gold_each():
    loaded = load(shared("olympiadbench_math_en.jsonl"))
    assert len(loaded.questions) == 675
    assert not any(q.answer.startswith("[") and "'" in q.answer for q in loaded.questions)
    assert all(q.solution for q in loaded.questions)


def test_the_expert_files_overlap_the_evaluation_files_as_their_readme_says():
    test = load(shared("gsm8k_test.jsonl")).questions
    experts = load(shared("experts_gsm8k.jsonl")).questions
    assert overlap(experts, test) == tuple(q.id for q in experts) and len(experts) == 400
    assert overlap(experts, test[400:]) == ()
    assert overlap(load(shared("gsm8k_train.jsonl")).questions, test) == ()
    assert (
        len(
            overlap(
                load(shared("experts_strategyqa.jsonl")).questions,
                load(shared("strategyqa_dev.jsonl")).questions,
            )
        )
        == 229
    )


def test_8_grams_find_a_question_again_and_stock_phrases_too():
    math = load(shared("math_train_deepscaler.jsonl")).questions
    aime = load(shared("aime2024.jsonl")).questions
    kept, report = decontaminate(math, {"math500": load(shared("math500.jsonl")).questions, "aime2024": aime})
    assert len(kept) == len(math) and 0 < len(report.ids) < len(math) // 2
    left, itself = decontaminate(aime, {"aime2024": aime}, "remove")
    assert left == () and len(itself.ids) == 30


def test_the_grader_takes_nearly_every_real_gold():
    for name in ("aime2024", "aime2025", "amc2023", "gsm8k_test", "strategyqa_dev", "math500"):
        report = load_questions(DataSource(shared(f"{name}.jsonl"))).report
        assert len(report.rejected) <= report.rows // 100, report.description()
