"""The grader as TRL calls a reward function (trl/trainer/grpo_trainer.py, `_calculate_rewards`)."""

from __future__ import annotations

import pickle

import pytest

from meml_mel.grading.reward import VerifiableReward, completion_text


@pytest.fixture
def reward(pool):
    reward = VerifiableReward(end_token_ids={0})
    reward.pool = pool  # one that runs already
    return reward


def call(reward, completions, answers, **columns):
    """With every argument that TRL 1.16 passes."""
    ids = columns.pop("completion_ids", [[7, 0]] * len(completions))
    extras = {
        "trainer_state": None,
        "log_extra": lambda *_: None,
        "log_metric": lambda *_: None,
        "source": ["x"] * len(answers),
    }
    return reward(
        prompts=["?"] * len(answers),
        completions=completions,
        completion_ids=ids,
        answer=answers,
        **extras | columns,
    )


def test_right_wrong_and_no_reward(reward):
    completions = [r"\boxed{1+x}", r"\boxed{x}", r"\boxed{5}", "We do not know."]
    assert call(reward, completions, ["x+1", "x+1", r"\frac{", "5"]) == [1.0, 0.0, None, 0.0]
    assert [g.reason for g in reward.grades] == [None, "different", "unparsable_gold", "no_answer"]


def test_conversational_completions(reward):
    message = {"role": "assistant", "content": r"\boxed{5}"}
    parts = {
        "role": "assistant",
        "content": [{"type": "text", "text": r"\boxed{"}, {"type": "text", "text": "5}"}],
    }
    assert call(reward, [[message], [parts], []], ["5", "5", "5"]) == [1.0, 1.0, 0.0]
    assert completion_text([{"role": "assistant", "content": None}]) == ""


def test_the_kind_column_is_optional_and_may_have_gaps(reward):
    completions = ["(B)", "yes", "0.5"]
    assert call(reward, completions, ["B", "True", "1/2"], kind=["choice", "boolean", None]) == [
        1.0,
        1.0,
        1.0,
    ]


def test_a_completion_cut_at_its_limit_is_wrong(reward):
    assert call(reward, [r"\boxed{5}"] * 3, ["5"] * 3, completion_ids=[[7, 0], [7, 7], []]) == [1.0, 0.0, 0.0]
    assert [g.reason for g in reward.grades] == [None, "truncated", "truncated"]


def test_golds_may_be_lists_and_missing_golds_give_no_reward(reward):
    assert call(reward, ["2, 1", "1", "5"], [["1", "2"], ["1", "2"], None]) == [1.0, 0.0, None]


def test_outcomes_are_logged_as_shares(reward):
    logged = {}
    call(reward, ["5", "6", "", "5"], ["5", "5", "5", ""], log_metric=logged.__setitem__)
    assert logged == {
        "grade/right": 0.25,
        "grade/different": 0.25,
        "grade/no_answer": 0.25,
        "grade/unparsable_gold": 0.25,
    }


def test_trl_finds_its_name_and_can_send_it_to_another_process(reward):
    assert reward.__name__ == "verifiable_reward"
    assert call(pickle.loads(pickle.dumps(reward)), ["5"], ["5"]) == [1.0]


def test_a_data_set_without_golds_is_named():
    with pytest.raises(ValueError, match="no 'answer' column"):
        VerifiableReward()(prompts=["?"], completions=["5"])
