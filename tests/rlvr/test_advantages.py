"""Advantage estimators: values by hand, TRL's own formula, and the invariances their definitions promise."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from meml_mel.rlvr.advantages import (
    ADVANTAGES,
    EPSILON,
    apply_negative,
    dr_grpo,
    estimate,
    grpo,
    reinforce_pp,
    reinforce_pp_baseline,
    rft,
    rloo,
    validate,
)

NAN = float("nan")
GROUP_ESTIMATORS = (grpo, dr_grpo, rloo)
ZERO_MEAN_PER_GROUP = (grpo, dr_grpo, rloo, reinforce_pp_baseline)
BASELINES = (grpo, dr_grpo, rloo, reinforce_pp, reinforce_pp_baseline)


def rewards_of(*groups: list[float]) -> torch.Tensor:
    """Groups of one expert each: (Q, 1, G)."""
    return torch.tensor(groups, dtype=torch.float64).unsqueeze(1)


def close(actual: torch.Tensor, expected: torch.Tensor, atol: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=atol)


VERDICTS = st.sampled_from([0.0, 1.0, NAN])
REAL = st.floats(-2, 2, allow_nan=False).map(lambda x: round(x, 3))
REAL_OR_NAN = st.one_of(REAL, st.just(NAN))


@st.composite
def reward_tensors(draw, values=VERDICTS, min_g=1):
    q, e, g = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(min_g, 5))
    flat = draw(st.lists(values, min_size=q * e * g, max_size=q * e * g))
    return torch.tensor(flat, dtype=torch.float64).reshape(q, e, g)


class TestByHand:
    def test_grpo_divides_by_the_bessel_deviation_plus_1e_4(self):
        # mean 1/4, variance (9/16 + 3/16) / 3 = 1/4
        close(grpo(rewards_of([1, 0, 0, 0])), rewards_of([0.75 / 0.5001] + [-0.25 / 0.5001] * 3))

    def test_dr_grpo_subtracts_the_group_mean_only(self):
        close(
            dr_grpo(rewards_of([1, 0, 0, 0], [1, 1, 0, 0])),
            rewards_of([0.75, *[-0.25] * 3], [0.5, 0.5, -0.5, -0.5]),
        )

    def test_rloo_subtracts_the_mean_of_the_others(self):
        close(rloo(rewards_of([1, 0, 0, 0])), rewards_of([1.0, -1 / 3, -1 / 3, -1 / 3]))

    def test_reinforce_pp_normalises_over_the_whole_batch_without_a_group_mean(self):
        # batch mean 3/4, variance (1/16 * 3 + 9/16) / 3 = 1/4: the all-right group keeps a positive advantage
        close(reinforce_pp(rewards_of([1, 0], [1, 1])), rewards_of([0.25, -0.75], [0.25, 0.25]) / 0.5001)

    def test_reinforce_pp_baseline_subtracts_the_group_mean_first(self):
        deviation = math.sqrt(0.5 / 3) + 1e-4  # of +1/2, -1/2, 0, 0
        close(reinforce_pp_baseline(rewards_of([1, 0], [1, 1])), rewards_of([0.5, -0.5], [0, 0]) / deviation)

    def test_rft_is_one_on_right_responses(self):
        close(rft(rewards_of([1, 0, NAN], [0, 0, 1])), rewards_of([1, 0, 0], [0, 0, 1]))

    def test_rft_over_right_responses_scales_by_rollouts_over_right(self):
        close(rft(rewards_of([1, 0, NAN], [0, 0, 1]), "right"), rewards_of([3, 0, 0], [0, 0, 3]))

    def test_meml_printed_is_the_group_baseline_with_negatives_dropped(self):
        printed = estimate("dr_grpo", rewards_of([1, 0, 0, 0]), negative_advantages="drop")
        close(printed, rewards_of([0.75, 0, 0, 0]))

    def test_a_group_is_one_expert_of_one_question(self):
        rewards = torch.tensor([[[1.0, 1.0], [0.0, 1.0]]], dtype=torch.float64)  # one question, two experts
        close(dr_grpo(rewards), torch.tensor([[[0.0, 0.0], [-0.5, 0.5]]], dtype=torch.float64))


@pytest.mark.parametrize("estimator", BASELINES)
class TestEdges:
    def test_equal_rewards_in_the_whole_batch_give_zero(self, estimator):
        for reward in (0.0, 1.0):
            close(
                estimator(torch.full((2, 2, 4), reward, dtype=torch.float64)), torch.zeros(2, 2, 4).double()
            )

    def test_an_ungradable_batch_gives_zero(self, estimator):
        close(estimator(torch.full((2, 1, 3), NAN, dtype=torch.float64)), torch.zeros(2, 1, 3).double())

    def test_one_gradable_rollout_in_the_batch_gives_zero(self, estimator):
        close(estimator(rewards_of([1, NAN, NAN])), rewards_of([0, 0, 0]))

    def test_a_tensor_without_the_three_dimensions_is_refused(self, estimator):
        with pytest.raises(ValueError, match=r"questions, experts, samples.*\(2, 4\)"):
            estimator(torch.zeros(2, 4))


@pytest.mark.parametrize("estimator", [*GROUP_ESTIMATORS, reinforce_pp_baseline])
def test_groups_of_one_give_zero(estimator):
    close(estimator(rewards_of([1], [0], [1])), rewards_of([0], [0], [0]))


def test_an_ungradable_group_leaves_the_others_alone():
    close(dr_grpo(rewards_of([NAN, NAN], [1, 0])), rewards_of([0, 0], [0.5, -0.5]))


@settings(deadline=None, max_examples=60)
@given(rewards=reward_tensors(min_g=2))
def test_grpo_agrees_with_trl(rewards):
    from trl.trainer.utils import nanstd

    # The lines of GRPOTrainer._generate_and_score_completions for scale_rewards="group", in its float32.
    flat = rewards.float().reshape(-1)
    groups = flat.view(-1, rewards.shape[2])
    mean = torch.nanmean(groups, dim=1).repeat_interleave(rewards.shape[2])
    std = nanstd(groups, dim=1).repeat_interleave(rewards.shape[2])
    trl = torch.nan_to_num((flat - mean) / (std + 1e-4), nan=0.0)
    torch.testing.assert_close(grpo(rewards).float().reshape(-1), trl, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(rewards=reward_tensors(REAL_OR_NAN))
def test_advantages_are_finite_and_zero_where_ungradable(rewards):
    for name in ADVANTAGES:
        advantages = estimate(name, rewards)
        assert advantages.shape == rewards.shape and advantages.dtype == torch.float64
        assert torch.isfinite(advantages).all()
        assert (advantages[torch.isnan(rewards)] == 0).all()


@settings(deadline=None, max_examples=60)
@given(rewards=reward_tensors(REAL_OR_NAN))
def test_the_mean_is_zero(rewards):
    for estimator in ZERO_MEAN_PER_GROUP:  # divided by at least 1e-4: rounding grows to 1e-16 / 1e-4
        close(estimator(rewards).sum(dim=2), torch.zeros(rewards.shape[:2]).double())
    close(reinforce_pp(rewards).sum(), torch.zeros(()).double())


@settings(deadline=None, max_examples=60)
@given(rewards=reward_tensors(), shift=REAL, scale=st.floats(1, 8))
def test_shift_and_scale_of_the_rewards(rewards, shift, scale):
    for estimator in BASELINES:
        close(estimator(rewards + shift), estimator(rewards))
    for estimator in (dr_grpo, rloo):
        close(estimator(scale * rewards), scale * estimator(rewards))
    for estimator in (
        grpo,
        reinforce_pp,
        reinforce_pp_baseline,
    ):  # but for the 1e-4 beside a deviation >= 0.12
        torch.testing.assert_close(estimator(scale * rewards), estimator(rewards), rtol=1e-3, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(rewards=reward_tensors(REAL_OR_NAN), data=st.data())
def test_permuting_rollouts_permutes_advantages(rewards, data):
    q, e, g = (torch.tensor(data.draw(st.permutations(range(n)))) for n in rewards.shape)
    for name in ADVANTAGES:
        permuted = estimate(name, rewards[q][:, e][:, :, g])
        close(permuted, estimate(name, rewards)[q][:, e][:, :, g])


@settings(deadline=None, max_examples=60)
@given(rewards=reward_tensors(REAL_OR_NAN))
def test_ungradable_rollouts_are_as_if_never_there(rewards):
    for estimator in GROUP_ESTIMATORS:
        whole = estimator(rewards)
        for q, e in [(q, e) for q in range(rewards.shape[0]) for e in range(rewards.shape[1])]:
            graded = ~torch.isnan(rewards[q, e])
            if graded.any():
                alone = estimator(rewards[q, e][graded].reshape(1, 1, -1))
                close(whole[q, e][graded], alone.reshape(-1))
    graded = ~torch.isnan(rewards)
    if graded.any():
        close(reinforce_pp(rewards)[graded], reinforce_pp(rewards[graded].reshape(1, 1, -1)).reshape(-1))
    ungradable = torch.full_like(rewards[:1], NAN)
    for name in ADVANTAGES:
        close(estimate(name, torch.cat([rewards, ungradable]))[:-1], estimate(name, rewards))


@settings(deadline=None, max_examples=30)
@given(rewards=reward_tensors(REAL))
def test_reinforce_pp_baseline_is_normalised_over_the_batch(rewards):
    centred = dr_grpo(rewards)
    if rewards.numel() > 1 and centred.std() > 0.01:
        close(reinforce_pp_baseline(rewards).std(), centred.std() / (centred.std() + EPSILON))


@pytest.mark.parametrize("divisor, denominator", [("rollouts", 4), ("right", 2)])
def test_rft_gradient_is_that_of_the_nll_of_right_responses(divisor, denominator):
    """-A * ratio under TRL's `grpo` mean, old = current, against the NLL mean by hand; ragged lengths."""
    lengths, right = (2, 3, 1, 4), (0, 3)
    logps = torch.linspace(-2.0, -0.1, 10, dtype=torch.float64).requires_grad_()
    parts = torch.split(logps, lengths)
    advantages = rft(rewards_of([1, 0, 0, 1]), divisor).reshape(-1)
    ratios = [torch.exp(part - part.detach()) for part in parts]
    policy = torch.stack([-(a * ratio).mean() for a, ratio in zip(advantages, ratios)]).mean()
    (actual,) = torch.autograd.grad(policy, logps)
    nll = sum(-parts[i].mean() for i in right) / denominator
    (expected,) = torch.autograd.grad(nll, logps)
    close(actual, expected)


class TestNegative:
    def test_keep_changes_nothing_and_drop_clamps_at_zero(self):
        advantages = torch.tensor([-1.0, 0.0, 2.0])
        assert apply_negative(advantages, "keep").tolist() == [-1.0, 0.0, 2.0]
        assert apply_negative(advantages, "drop").tolist() == [0.0, 0.0, 2.0]

    def test_another_word_is_refused(self):
        with pytest.raises(ValueError, match=r"negative_advantages 'dorp'.*did you mean 'drop'"):
            apply_negative(torch.zeros(1), "dorp")


class TestValidate:
    @pytest.mark.parametrize("scale", [None, "group", "batch", "none", True, False])
    @pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "luspo"])
    def test_grpo_leaves_all_of_trl_free(self, scale, loss_type):
        validate("grpo", scale, loss_type)

    @pytest.mark.parametrize(
        "advantage, matching",
        [
            ("dr_grpo", "none"),
            ("dr_grpo", False),
            ("rloo", "none"),
            ("reinforce_pp", "batch"),
            ("rft", "none"),
        ],
    )
    def test_other_estimators_take_an_unset_or_the_matching_scale(self, advantage, matching):
        validate(advantage, None, "grpo")
        validate(advantage, matching, "grpo")

    @pytest.mark.parametrize(
        "advantage, scale",
        [
            ("dr_grpo", "group"),
            ("dr_grpo", True),
            ("rloo", "batch"),
            ("reinforce_pp", "group"),
            ("rft", "group"),
        ],
    )
    def test_a_written_scale_that_contradicts_is_refused(self, advantage, scale):
        with pytest.raises(ValueError, match=f"{scale!r} contradicts advantage '{advantage}'.*set it to"):
            validate(advantage, scale, "grpo")

    def test_rft_is_refused_with_several_updates_per_generation(self):
        with pytest.raises(ValueError, match=r"one update per generation, got 2.*num_iterations to 1"):
            validate("rft", None, "grpo", updates_per_generation=2)

    @pytest.mark.parametrize("loss_type", ["dapo", "bnpo", "cispo", "vespo"])
    def test_a_mean_over_right_responses_needs_a_divisor_of_rollouts(self, loss_type):
        with pytest.raises(ValueError, match=f"contradicts loss_type '{loss_type}'.*'grpo'"):
            validate("rft", None, loss_type, rft_divisor="right")
        validate("rft", None, loss_type)
        validate("rft", None, "grpo", rft_divisor="right")

    def test_an_rft_divisor_without_rft_is_refused(self):
        with pytest.raises(ValueError, match="no effect with advantage 'grpo'"):
            validate("grpo", None, "grpo", rft_divisor="right")

    @pytest.mark.parametrize(
        "arguments, message",
        [
            (("dr_gpro", None, "grpo"), "did you mean 'dr_grpo'"),
            (("grpo", None, "dapoo"), "did you mean 'dapo'"),
            (("grpo", "groups", "grpo"), "did you mean 'group'"),
        ],
    )
    def test_unknown_names_name_the_nearest(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            validate(*arguments)

    def test_the_known_loss_types_are_trls(self):
        from trl.trainer.grpo_config import GRPOConfig

        from meml_mel.rlvr.advantages import LOSS_TYPES

        text = GRPOConfig.__dataclass_fields__["loss_type"].metadata["help"]
        supported = text[text.index("Supported values are") :].split(".")[0]
        assert set(re.findall(r"'(\w+)'", supported)) == set(LOSS_TYPES)


def test_an_unknown_estimator_is_refused():
    with pytest.raises(ValueError, match=r"advantage 'rlo'.*did you mean 'rloo'"):
        estimate("rlo", torch.zeros(1, 1, 2))
