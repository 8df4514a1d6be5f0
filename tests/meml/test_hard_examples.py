"""The hard-example buffer: who is admitted, when it is flushed and with which weights, and its state."""

import itertools
import json
import math
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meml_mel.data.question import Question
from meml_mel.grading.grader import grade
from meml_mel.meml.hard_examples import (
    RECORD_FIELDS,
    HardExamplesConfig,
    HardExamplesObjective,
    last_box,
    solution_text,
)
from tests.meml.meml_batches import prompt, run, scored


def objective(**options) -> HardExamplesObjective:
    return HardExamplesObjective(HardExamplesConfig(**{"append_answer": "none", **options}))


def failed(question_id: str, **options):
    return scored(question_id, e0="WWW", e1="WWW", **options)


def buffered(hard: HardExamplesObjective) -> list[tuple[str, str]]:
    return [(b.question_id, b.expert) for b in hard.buffer]


class TestTriggerAllExperts:
    @pytest.mark.parametrize(
        "groups, admitted",
        [
            ({"e0": "WWW", "e1": "WWW"}, ["e0", "e1"]),
            ({"e0": "WWW", "e1": "WWR"}, []),
            ({"e0": "RRR", "e1": "RRR"}, []),
            ({"e0": "UUU", "e1": "UUU"}, []),
            ({"e0": "WWW"}, ["e0"]),
        ],
    )
    def test_admits_one_example_per_expert_where_no_expert_is_right(self, groups, admitted):
        hard = objective()
        assert run(hard, scored("q", **groups)).examples == []
        assert buffered(hard) == [("q", expert) for expert in admitted]

    def test_the_example_is_the_solution_under_the_experts_prompt(self):
        hard = objective(capacity=2)
        outcome = run(hard, failed("q", solution="It is 2."))
        assert [(e.prompt, e.target_text, e.target_ids) for e in outcome.examples] == [
            (prompt("q", "e0"), "It is 2.", None),
            (prompt("q", "e1"), "It is 2.", None),
        ]

    def test_a_probability_admits_a_question_under_all_experts_or_none(self):
        hard = objective(admission_probability=0.25, capacity=10_000)
        outcome = run(hard, *(failed(f"q{i}") for i in range(400)))
        questions = [question_id for question_id, _ in buffered(hard)]
        assert all(questions.count(question_id) == 2 for question_id in set(questions))
        # Binomial(400, 1/4): standard deviation 8.7
        assert abs(len(set(questions)) - 100) < 4 * math.sqrt(400 * 0.25 * 0.75)
        assert outcome.metrics["not_drawn"] + outcome.metrics["admitted"] == 800


class TestTriggerExpert:
    def test_more_than_k_of_g_wrong_triggers_that_expert_alone(self):
        hard = objective(trigger="expert", threshold=2, capacity=100)
        # Keyed draws admit with 2/4; over 30 questions each expert that can be admitted is.
        run(hard, *(scored(f"q{i}", e0="WWWW", e1="WWWR", e2="WWRR") for i in range(30)))
        assert {expert for _, expert in buffered(hard)} == {"e0", "e1"}

    def test_admits_with_probability_k_over_g(self):
        hard = objective(trigger="expert", threshold=6, capacity=10_000)
        outcome = run(hard, *(scored(f"q{i}", e0="WWWWWWWR", e1="RRRRRRRR") for i in range(400)))
        # Binomial(400, 6/8): standard deviation 8.7
        assert abs(outcome.metrics["admitted"] - 300) < 4 * math.sqrt(400 * 0.75 * 0.25)
        assert outcome.metrics["triggered"] == 400

    def test_experts_are_drawn_apart(self):
        hard = objective(trigger="expert", threshold=1, capacity=10_000)
        run(hard, *(scored(f"q{i}", e0="WW", e1="WW") for i in range(100)))
        alone = [q for q, _ in buffered(hard) if [b for b, _ in buffered(hard)].count(q) == 1]
        assert len(alone) > 25  # half of them on average

    def test_a_threshold_that_no_group_can_exceed_is_refused(self):
        with pytest.raises(ValueError, match=r"threshold is 6.*group of 4.*below 4.*above 6"):
            run(objective(trigger="expert"), scored("q", e0="WWWW"))
        with pytest.raises(ValueError, match="threshold is 6"):
            HardExamplesConfig(trigger="expert").check_group_size(6)
        HardExamplesConfig(trigger="expert").check_group_size(8)
        HardExamplesConfig().check_group_size(2)


def test_draws_depend_on_the_key_alone():
    def admitted(*questions, step=0):
        hard = objective(admission_probability=0.5, capacity=1000)
        run(hard, *questions, step=step)
        return {question_id for question_id, _ in buffered(hard)}

    questions = [failed(f"q{i}") for i in range(20)]
    assert admitted(*questions) == admitted(*reversed(questions))
    assert admitted(*questions[:5]) == admitted(*questions) & {f"q{i}" for i in range(5)}
    assert admitted(*questions) != admitted(*questions, step=1)


class TestFlush:
    def test_no_loss_until_the_buffer_is_full_then_c_over_b_then_empty(self):
        hard = objective(coefficient=0.5, capacity=4)
        assert run(hard, failed("q1"), step=0).examples == []
        assert run(hard, scored("easy", e0="RRR", e1="RRR"), step=1).examples == []
        outcome = run(hard, failed("q2"), step=2)
        assert [(e.question_id, e.weight) for e in outcome.examples] == [("q1", 0.125)] * 2 + [
            ("q2", 0.125)
        ] * 2
        assert outcome.own_step == [] and hard.buffer == []
        assert run(hard, scored("easy", e0="RRR", e1="RRR"), step=3).examples == []

    def test_a_step_that_exceeds_the_capacity_flushes_everything_as_one_mean(self):
        outcome = run(objective(coefficient=1.0, capacity=4), *(failed(f"q{i}") for i in range(5)))
        assert [e.weight for e in outcome.examples] == [0.1] * 10
        assert outcome.metrics["flushed"] == 10 and outcome.metrics["buffer_size"] == 0

    def test_own_step_keeps_the_examples_out_of_the_loss(self):
        outcome = run(objective(capacity=2, flush="own_step"), failed("q"))
        assert outcome.examples == [] and [e.weight for e in outcome.own_step] == [0.5, 0.5]

    @settings(deadline=None, max_examples=50)
    @given(
        steps=st.lists(st.lists(st.sampled_from(["WW", "RW"]), max_size=6), min_size=1, max_size=6),
        capacity=st.integers(1, 7),
    )
    def test_every_admitted_example_is_flushed_once_or_still_buffered(self, steps, capacity):
        hard = objective(coefficient=2.0, capacity=capacity)
        admitted, flushed = [], []
        for step, groups in enumerate(steps):
            questions = [scored(f"{step}-{i}", e0=group) for i, group in enumerate(groups)]
            outcome = run(hard, *questions, step=step)
            admitted += [q.question.id for q in questions if not q.right]
            flushed += [e.question_id for e in outcome.examples]
            assert sum(e.weight for e in outcome.examples) == pytest.approx(2.0 if outcome.examples else 0.0)
            assert len(hard.buffer) < capacity
        assert flushed + [b.question_id for b in hard.buffer] == admitted


class TestBookkeeping:
    def test_questions_without_a_solution_are_counted(self):
        hard = objective()
        outcome = run(hard, failed("q1", solution=None), failed("q2", solution="  "), failed("q3"))
        assert outcome.metrics["without_solution"] == 2 and outcome.metrics["triggered"] == 3
        assert {question_id for question_id, _ in buffered(hard)} == {"q3"}

    def test_what_is_in_the_buffer_is_not_admitted_twice_until_it_was_flushed(self):
        hard = objective(capacity=4)
        run(hard, failed("q1"), step=0)
        outcome = run(hard, failed("q1"), step=1)
        assert outcome.metrics["duplicates"] == 2 and outcome.metrics["admitted"] == 0
        run(hard, failed("q2"), step=2)  # flushes
        assert run(hard, failed("q1"), step=3).metrics["admitted"] == 2

    def test_examples_older_than_max_age_are_dropped_unused(self):
        hard = objective(capacity=100, max_age_steps=2)
        run(hard, failed("q0"), step=0)
        run(hard, failed("q1"), step=1)
        assert run(hard, step=2).metrics["expired"] == 0
        assert run(hard, step=3).metrics["expired"] == 2
        assert {question_id for question_id, _ in buffered(hard)} == {"q1"}

    def test_metrics_and_records(self):
        hard = objective(coefficient=1.0, capacity=3)
        first = run(hard, failed("q1"), step=0)
        second = run(hard, failed("q2"), step=1)
        assert first.metrics == {
            "triggered": 1, "without_solution": 0, "duplicates": 0, "not_drawn": 0, "admitted": 2,
            "expired": 0, "flushed": 0, "flush_count": 0, "buffer_size": 2,
        }  # fmt: skip
        assert second.metrics["flushed"] == 4 and second.metrics["flush_count"] == 1
        rows = [
            (r["event"], r["step"], r["question_id"], r["admitted_step"], r["weight"])
            for r in (*first.records, *second.records)
        ]
        assert (
            rows
            == [("admitted", 0, "q1", 0, 0.0)] * 2
            + [("admitted", 1, "q2", 1, 0.0)] * 2
            + [("flushed", 1, "q1", 0, 0.25)] * 2
            + [("flushed", 1, "q2", 1, 0.25)] * 2
        )
        assert all(set(record) == set(RECORD_FIELDS) for record in (*first.records, *second.records))


def test_a_restored_buffer_continues_like_the_unbroken_one():
    steps = [[failed("q1"), failed("q2")], [failed("q3")], [failed("q3"), failed("q4")], [failed("q5")]]

    def go(hard, first, last):
        return [run(hard, *steps[step], step=step) for step in range(first, last)]

    unbroken = objective(capacity=4)
    expected = go(unbroken, 0, 4)
    assert [outcome.metrics["flushed"] for outcome in expected] == [4, 0, 4, 0]
    assert expected[2].metrics["duplicates"] == 2

    first = objective(capacity=4)
    outcomes = go(first, 0, 2)  # after a flush, with something in the buffer
    resumed = objective(capacity=4)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert resumed.buffer == first.buffer != []
    assert outcomes + go(resumed, 2, 4) == expected
    assert resumed.state_dict() == unbroken.state_dict()


class TestTargetText:
    @pytest.mark.parametrize(
        "solution, answer, kind, expected",
        [
            ("3 + 4 = 7", "7", "math", "3 + 4 = 7\n\nThe answer is \\boxed{7}."),
            ("So $x = \\boxed{7}$.", "7", "math", "So $x = \\boxed{7}$."),
            ("So \\boxed{\\frac{1}{2}}", "\\frac{1} {2}", "math", "So \\boxed{\\frac{1}{2}}"),
            ("First \\boxed{3}.", "7", "math", "First \\boxed{3}.\n\nThe answer is \\boxed{7}."),
            ("It is a half.", "$\\frac12$", "math", "It is a half.\n\nThe answer is \\boxed{\\frac12}."),
            ("Cut off: \\boxed{7", "7", "math", "Cut off: \\boxed{7\n\nThe answer is \\boxed{7}."),
            ("Yes, it can.", "True", "boolean", "Yes, it can.\n\nThe answer is \\boxed{yes}."),
            ("Either.", '["1", "2"]', "math", "Either.\n\nThe answer is \\boxed{1, 2}."),
            ("Hence b.", "B", "choice", "Hence b.\n\nThe answer is \\boxed{B}."),
        ],
    )  # fmt: skip
    def test_a_solution_ends_with_its_boxed_answer(self, solution, answer, kind, expected):
        assert solution_text(Question("q", "?", answer, kind, solution)) == expected

    @pytest.mark.parametrize(
        "name, kind",
        [
            ("gsm8k_train", "math"),
            ("math500", "math"),
            ("mathqa_test_1000", "choice"),
            ("strategyqa_train", "boolean"),
        ],
    )
    def test_the_grader_finds_the_answer_in_real_solutions(self, name, kind):
        shared = Path(os.environ.get("MEML_MEL_SHARED", Path(__file__).parents[3] / "shared"))
        if not (shared / "data" / f"{name}.jsonl").exists():
            pytest.skip(
                f"no data/{name}.jsonl in {shared}: set MEML_MEL_SHARED to the folder that holds data/"
            )
        with (shared / "data" / f"{name}.jsonl").open() as file:
            rows = [json.loads(line) for line in itertools.islice(file, 100)]
        for row in rows:  # as the data layer reads them: GSM8K's calculator notes and last line are cut
            solution = re.sub("<<.*?>>", "", row["solution"]).split("####")[0]
            question = Question(row["id"], row["problem"], row["answer"], kind, solution)
            assert grade(question.answer, solution_text(question), kind).right, row["id"]

    def test_the_grader_finds_each_kinds_answer(self):
        for kind, answer in [("math", "72"), ("math", '["1", "2"]'), ("choice", "B"), ("boolean", "False")]:
            question = Question("q", "?", answer, kind, "It follows from 48 and 24 that it is so.")
            assert grade(answer, solution_text(question), kind).right, (kind, answer)

    def test_none_leaves_the_solution_as_it_is(self):
        assert solution_text(Question("q", "?", "7", solution=" 3 + 4 = 7\n"), "none") == "3 + 4 = 7"

    def test_the_default_target_boxes_the_answer_and_a_hook_replaces_it(self):
        config = HardExamplesConfig(capacity=1)
        question = scored("q", solution="1 + 1 = 2", e0="WW")
        (default,) = run(HardExamplesObjective(config), question).examples
        assert default.target_text == "1 + 1 = 2\n\nThe answer is \\boxed{2}."
        (hooked,) = run(HardExamplesObjective(config, lambda q: f"<{q.answer}>"), question).examples
        assert hooked.target_text == "<2>"

    def test_last_box(self):
        assert last_box(r"\boxed{1} and \boxed{\sqrt{2}}.") == r"\sqrt{2}"
        assert last_box(r"\boxed {1} and \boxed{2") == "1"
        assert last_box("none") is None


@pytest.mark.parametrize(
    "options, message",
    [
        ({"coefficient": -1.0}, r"coefficient is -1\.0.*0 or more"),
        ({"capacity": 0}, "capacity is 0.*1 or more"),
        ({"threshold": -1}, "threshold is -1"),
        ({"admission_probability": 0.0}, r"admission_probability is 0\.0.*above 0"),
        ({"admission_probability": 1.5}, r"admission_probability is 1\.5"),
        ({"max_age_steps": 0}, "max_age_steps is 0"),
        ({"trigger": "any"}, "trigger is 'any'.*all_experts, expert"),
        ({"flush": "later"}, "flush is 'later'"),
        ({"append_answer": "yes"}, "append_answer is 'yes'"),
    ],
)
def test_bad_options_are_refused_with_the_limit(options, message):
    with pytest.raises(ValueError, match=message):
        HardExamplesConfig(**options)
