"""Each built-in mapping makes the question that a reader of the row would make."""

from __future__ import annotations

import pytest
from data_helpers import FIXTURES, load, write_jsonl

from meml_mel.data.columns import MISSING, RowRejected, lookup, text_of
from meml_mel.data.mappings import last_boxed
from meml_mel.data.options import boolean_gold, choice_gold, parse_options


def test_gsm8k_takes_the_gold_after_the_hashes_and_strips_calculator_notes():
    rolls, seats, balance = load(FIXTURES / "gsm8k.jsonl", mapping="gsm8k").questions
    assert (rolls.answer, seats.answer, balance.answer) == ("37", "3000", "-2")
    assert rolls.solution == "She bakes 3 * 14 = 42 rolls.\n42 - 5 = 37 are left.\n#### 37"
    assert rolls.kind == "math"


def test_mathqa_puts_the_options_under_the_problem_and_takes_the_letter():
    loaded = load(FIXTURES / "mathqa.json", mapping="mathqa")
    pens, pair, half = loaded.questions
    assert pens.problem == (
        "a shop sells 6 pens for 9 dollars . what does one pen cost ?\n\n"
        "Options:\n(A) 0.5\n(B) 1.5\n(C) 2.5\n(D) 3\n(E) none of these"
    )
    assert (pens.answer, pens.kind) == ("B", "choice")
    assert pens.solution == "9 / 6 = 1.5\nAnswer: B"
    assert "(A) 1 , 5\n(B) 2 , 4\n(C) 3 , 4" in pair.problem  # commas inside options
    assert pair.solution == "3 + 4 = 7\nAnswer: C"
    assert half.problem.endswith("(A) 5\n(B) 6\n(C) 7\n(D) 8\n(E) 9")  # the form of a printed list


def test_a_mathqa_rationale_that_ends_with_another_letter_is_no_solution():
    half = load(FIXTURES / "mathqa.json", mapping="mathqa").questions[2]
    assert half.answer == "A" and half.solution is None  # its rationale says d


def test_a_gold_letter_without_an_option_is_rejected_by_name():
    (rejected,) = load(FIXTURES / "mathqa.json", mapping="mathqa").report.rejected
    assert rejected.row == 3 and rejected.reason == "the answer is not one of the options"


def test_strategyqa_golds_are_yes_and_no_and_solutions_end_with_them():
    lisbon, piano = load(FIXTURES / "strategyqa.json", mapping="strategyqa").questions
    assert (lisbon.id, lisbon.answer, lisbon.kind) == ("s1", "yes", "boolean")
    assert lisbon.solution == "Lisbon and Madrid are on one peninsula. Penguins can walk.\nAnswer: yes"
    assert piano.answer == "no"


def test_math_takes_the_last_box_where_there_is_no_answer_column():
    loaded = load(FIXTURES / "math.jsonl", mapping="math")
    assert [q.answer for q in loaded.questions] == [r"\frac{5}{6}", r"\{-2, 2\}"]
    assert loaded.report.rejected[0].reason == "no \\boxed{} in the solution and no answer column"


def test_the_processed_dapo_copy_has_its_answer_in_the_solution_column():
    english, chinese = load(FIXTURES / "dapo_processed.jsonl", mapping="dapo_math_17k").questions
    assert (english.problem, english.answer, english.id) == ("Find the least prime above 24.", "29", "u-1")
    assert english.solution is None
    assert chinese.problem == "求 $7^2$ 的个位数字。"


def test_raw_dapo_rows_lose_their_instruction_and_their_copies():
    loaded = load(FIXTURES / "dapo_repeated.jsonl", mapping="dapo_math_17k")
    assert [q.problem for q in loaded.questions] == [
        "Find the least prime above 24.",
        "How many edges has a cube?",
        "What is $2^5$?",
    ]
    assert (loaded.report.rows, loaded.report.duplicates) == (12, 9)
    assert [(c.id, c.answers) for c in loaded.report.conflicts] == [("u-2", ("12", "13"))]


def test_verl_rows_use_the_raw_problem_and_else_keep_the_user_message(tmp_path):
    def row(prompt, extra):
        message = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}]
        return {
            "data_source": "mine",
            "prompt": message,
            "reward_model": {"ground_truth": "4", "style": "rule"},
            "extra_info": extra,
        }

    rows = [
        row("Solve: 2+2? Think.", {"index": 7, "raw_problem": "2+2?"}),
        row("1+3? Let's think step by step.", {"index": 8, "question": "1+3?"}),
        row("What is 8/2?", {"index": 9}),
    ]
    loaded = load(write_jsonl(tmp_path / "verl.jsonl", rows), mapping="verl")
    assert [q.problem for q in loaded.questions] == ["2+2?", "1+3?", "What is 8/2?"]
    assert [q.id for q in loaded.questions] == ["mine-7", "mine-8", "mine-9"]


@pytest.mark.parametrize(
    ("file", "mapping"),
    [
        ("gsm8k.jsonl", "gsm8k"),
        ("mathqa.json", "mathqa"),
        ("strategyqa.json", "strategyqa"),
        ("math.jsonl", "math"),
        ("dapo_processed.jsonl", "dapo_math_17k"),
        ("dapo_repeated.jsonl", "dapo_math_17k"),
    ],
)
def test_without_a_mapping_the_form_is_recognised_and_said(file, mapping, caplog):
    loaded = load(FIXTURES / file)
    assert loaded.report.mapping == f"{mapping} (guessed)"
    assert f"mapping guessed: {mapping}" in caplog.text
    assert loaded.questions == load(FIXTURES / file, mapping=mapping).questions


def test_plain_columns_are_no_guess(tmp_path, caplog):
    path = write_jsonl(tmp_path / "own.jsonl", [{"problem": "1+1?", "answer": 2}])
    assert load(path).report.mapping == "problem: problem, answer: answer"
    assert not caplog.records


def test_a_column_mapping_reaches_into_nested_columns_and_makes_choices(tmp_path):
    rows = [{"q": {"text": "Pick the even one."}, "gold": 1, "opts": ["3", "4", "5"], "k": "choice"}]
    columns = {"problem": "q.text", "answer": "gold", "options": "opts", "kind": "k"}
    (question,) = load(write_jsonl(tmp_path / "own.jsonl", rows), mapping=columns).questions
    assert question.problem == "Pick the even one.\n\nOptions:\n(A) 3\n(B) 4\n(C) 5"
    assert (question.answer, question.kind) == ("B", "choice")


def test_kinds_without_a_kind_column(tmp_path):
    rows = [
        {"problem": "Is ice cold?", "answer": True},
        {"problem": "Is ice hot?", "answer": "No"},
        {"problem": "1+1?", "answer": "2"},
        {"problem": "Pick a.", "answer": "x", "options": {"a": "x", "b": "y"}},
    ]
    loaded = load(write_jsonl(tmp_path / "own.jsonl", rows))
    assert [(q.kind, q.answer) for q in loaded.questions] == [
        ("boolean", "yes"),
        ("boolean", "no"),
        ("math", "2"),
        ("choice", "A"),
    ]


def test_a_list_of_golds_becomes_one_gold_of_several_answers(tmp_path):
    path = write_jsonl(tmp_path / "own.jsonl", [{"problem": "Roots of x^2=4?", "answer": ["-2", "2"]}])
    assert load(path).questions[0].answer == "-2, 2"


# Values and paths


def test_a_dotted_path_may_hold_keys_with_dots_and_slashes():
    row = {"experts": {"acme/solver-1.5": {"response": "yes"}, "acme/solver-1": {"5": {"response": "no"}}}}
    assert lookup(row, "experts.acme/solver-1.5.response") == "yes"
    assert lookup(row, "experts.acme/solver-1.6.response") is MISSING
    assert lookup({"a": {"b.c": {"x": 1}}, "a.b": {"c": {"d": 2}}}, "a.b.c.d") == 2  # backs out of dead ends
    assert lookup({"prompt": [{"content": "hi"}]}, "prompt.0.content") == "hi"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (27.0, "27"),
        (2.5, "2.5"),
        (10**30, "1" + "0" * 30),
        (True, "yes"),
        (None, ""),
        (" a ", "a"),
        ([1, 2], "1, 2"),
    ],
)
def test_values_become_the_text_a_person_would_write(value, text):
    assert text_of(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": 1}])
def test_values_that_are_no_answer_are_refused(value):
    with pytest.raises(RowRejected):
        text_of(value)


def test_options_are_split_at_letters_that_run_in_order():
    text = "a ) f ( a ) = 1 , b ) 3 , 5 , c ) none"
    assert parse_options(text) == {"A": "f ( a ) = 1", "B": "3 , 5", "C": "none"}
    assert parse_options({"label": ["A", "B"], "text": ["x", "y"]}) == {"A": "x", "B": "y"}
    with pytest.raises(RowRejected, match="does not split"):
        parse_options("12 or 16")


@pytest.mark.parametrize(
    ("value", "letter"), [("b", "B"), ("(B)", "B"), ("option b", "B"), (1, "B"), ("16", "B")]
)
def test_choice_golds(value, letter):
    assert choice_gold(value, {"A": "12", "B": "16"}) == letter


def test_a_choice_gold_outside_the_options_is_refused():
    for value in ("c", 2, -1, "17"):
        with pytest.raises(RowRejected):
            choice_gold(value, {"A": "12", "B": "16"})


def test_boolean_golds():
    assert [boolean_gold(v) for v in (True, False, "YES", "false", "No.")] == ["yes", "no", "yes", "no", "no"]
    with pytest.raises(RowRejected, match="neither yes nor no"):
        boolean_gold("maybe")


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"\boxed{1} then \boxed{\frac{a}{b}}", r"\frac{a}{b}"),
        (r"\fbox{3}", "3"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{2} and \boxed{cut off", "2"),
        ("none", None),
    ],
)
def test_last_boxed(text, boxed):
    assert last_boxed(text) == boxed
