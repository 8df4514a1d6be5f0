"""The objectives' generation: padded equal shards, lengths checked before generation, failures told to all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meml_mel.grading.verdict import Grade
from meml_mel.rlvr.generation import PhaseGenerator, shard_plan
from meml_mel.rlvr.objective import GenerationRequest
from meml_mel.rlvr.options import PhaseSampling
from meml_mel.rlvr.trainer import RLVRTrainer
from tests import tiny
from tests.rlvr.test_trl_equality import config


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 4), st.integers(1, 30), st.integers(1, 300))
def test_every_prompt_once_and_equal_counts_on_every_rank(lengths, ranks, max_tokens, budget):
    plan = shard_plan(lengths, ranks, max_tokens, budget)
    for sub_batch in plan:
        assert len({len(indices) for indices in sub_batch}) == 1
        for indices in sub_batch:
            longest = max(lengths[i] for i in indices) + max_tokens
            assert len(indices) == 1 or len(indices) * longest <= max(budget, longest)
    dealt = [i for sub_batch in plan for indices in sub_batch for i in indices]
    assert set(dealt) == set(range(len(lengths)))
    assert len(dealt) < len(lengths) + ranks  # only the last row is filled up


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    trainer = RLVRTrainer(
        tiny.model(),
        config(tmp_path_factory.mktemp("run")),
        tiny.rows(4),
        tiny.grade_by_length,
        processing_class=tiny.tokenizer(),
    )
    graded = []

    def grade(items):
        graded.append(items)
        return [Grade("right", None, text) for _, text, _ in items]

    made = PhaseGenerator(
        trainer,
        {"analysis": PhaseSampling(max_tokens=4), "replay": PhaseSampling(max_tokens=6)},
        grade,
        render=list,
        token_budget=40,
        max_length=30,
    )
    made.graded = graded
    return made


def request(phase, length, question=None):
    return GenerationRequest(phase, ({"role": "user", "content": "z" * length},), question)


def test_answers_come_in_order_with_phases_mixed(generator):
    question = tiny.questions(1)[0]
    requests = [request("replay", 3, question), request("analysis", 9), request("replay", 1, question)]
    answers = generator(requests)
    assert [a.grade is not None for a in answers] == [True, False, True]
    assert len(answers[1].token_ids) <= 4 and all(len(a.token_ids) <= 6 for a in answers)
    assert {item[0].id for item in generator.graded[-1]} == {"q0"}
    assert generator.tokens["analysis"] == len(answers[1].token_ids)


def test_prompts_without_room_are_left_out_before_generation(generator):
    # <u>z...z<end><a> is 3 tokens more than the text; analysis leaves 30 - 4 tokens of context
    answers = generator([request("analysis", 23), request("analysis", 24)])
    assert answers[0].finish != "prompt_too_long"
    assert answers[1].finish == "prompt_too_long" and answers[1].token_ids == () and answers[1].text == ""
    assert [a.finish for a in generator([request("analysis", 99)])] == ["prompt_too_long"]


def test_no_requests_no_work(generator):
    assert generator([]) == []
