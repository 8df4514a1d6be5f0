"""Mutual learning: when it fires, which targets it takes, their weights, and the sign of each form."""

import math
import re
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from meml_mel.meml.hard_examples import HardExamplesConfig
from meml_mel.meml.mutual_learning import (
    RECORD_FIELDS,
    MutualLearningConfig,
    MutualLearningObjective,
)
from meml_mel.rlvr.advantages import validate
from tests.meml.meml_batches import FORBIDDEN, imported_by, prompt, run, scored


def objective(score=None, has_run_on=None, **options) -> MutualLearningObjective:
    return MutualLearningObjective(MutualLearningConfig(**options), score, has_run_on)


def ids(question, expert: str, *samples: int):
    group = question.groups[question.experts.index(expert)]
    return [group[s].completion_ids for s in samples]


class TestFiring:
    def test_the_worst_experts_prompt_learns_a_right_response_of_the_best(self):
        question = scored("q", e0="RWWW", e1="WRRR", e2="WWWW")
        outcome = run(objective(), question)
        (example,) = outcome.examples
        assert example.prompt == prompt("q", "e2")
        assert example.target_ids in ids(question, "e1", 1, 2, 3)
        assert example.weight == pytest.approx(0.1) and example.teacher_prompt is None
        assert example.objective == "mutual_learning" and example.question_id == "q"

    @pytest.mark.parametrize(
        "groups, result",
        [
            ({"e0": "RW", "e1": "WR"}, "ties"),
            ({"e0": "RR", "e1": "RR"}, "ties"),
            ({"e0": "WW", "e1": "WW"}, "best_without_right"),
            ({"e0": "RW"}, "one_expert"),
            ({"e0": "RW", "e1": "UU"}, "one_expert"),
            ({"e0": "LL", "e1": "WW"}, "without_target"),
        ],
    )
    def test_it_does_not_fire(self, groups, result):
        outcome = run(objective(), scored("q", **groups))
        assert outcome.examples == [] and outcome.records == []
        assert outcome.metrics[result] == 1 and outcome.metrics["fired"] == 0
        assert (
            sum(
                outcome.metrics[key] for key in ("ties", "best_without_right", "one_expert", "without_target")
            )
            == 1
        )

    def test_means_are_over_gradable_rollouts(self):
        # e0: 1 of 2 gradable; e1: 2 of 4. Equal means: a tie.
        assert run(objective(), scored("q", e0="RWUU", e1="RRWW")).metrics["ties"] == 1

    def test_experts_tied_for_best_or_worst_are_drawn_by_the_key_alone(self):
        def drawn(seed, *before):
            outcome = run(objective(), *before, scored("q", a="RW", b="RW", c="WW", d="WW"), seed=seed)
            (record,) = [r for r in outcome.records if r["question_id"] == "q"]
            return record["best"], record["worst"]

        draws = {seed: drawn(seed) for seed in range(40)}
        assert set(draws.values()) == {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")}
        assert all(drawn(seed, scored("other", a="RW", b="WW")) == pair for seed, pair in draws.items())
        many = run(objective(), *(scored(f"q{i}", a="RW", b="RW", c="WW") for i in range(20)))
        assert {record["best"] for record in many.records} == {"a", "b"}  # each question has a key of its own


class TestTargets:
    def test_unfinished_and_run_on_responses_are_left_out_and_counted(self):
        question = scored("q", e0="LRRR", e1="WWWW")
        outcome = run(objective(max_targets="all", has_run_on=lambda text: text.endswith("/2>")), question)
        assert sorted(e.target_ids for e in outcome.examples) == ids(question, "e0", 1, 3)
        assert outcome.metrics["excluded_unfinished"] == 1 and outcome.metrics["excluded_run_on"] == 1
        assert {e.weight for e in outcome.examples} == {0.1 / 2}  # n_q counts what is left

    def test_random_targets_are_drawn_without_replacement_by_the_key_alone(self):
        question, other = scored("q", e0="RRRRRR", e1="WWWWWW"), scored("other", e0="RRRRRR", e1="WWWWWW")

        def drawn(step, *questions):
            outcome = run(objective(max_targets=2), *questions, step=step)
            return [e.target_ids for e in outcome.examples if e.question_id == "q"]

        draws = [drawn(step, question, other) for step in range(12)]
        assert all(len(set(draw)) == 2 for draw in draws)
        assert len({tuple(draw) for draw in draws}) > 3
        assert draws == [drawn(step, other, question) for step in range(12)]

    def test_shortest(self):
        question = scored("q", e0="WRRR", e1="WWWW")  # sample s has s + 2 ids
        outcome = run(objective(target_choice="shortest", max_targets=2), question)
        assert [e.target_ids for e in outcome.examples] == ids(question, "e0", 1, 2)
        assert outcome.records[0]["target_samples"] == "1 2"

    def test_most_likely_asks_once_for_the_whole_step_under_the_worst_experts_prompt(self):
        first, second = scored("q", e0="WRRR", e1="WWWW"), scored("p", e0="WWWW", e1="RRWW")
        likelihood = {("q", 1): -2.0, ("q", 2): -0.5, ("q", 3): -1.0, ("p", 0): -3.0, ("p", 1): -4.0}
        calls = []

        def score(candidates):
            calls.append(candidates)
            return [likelihood[messages[1]["content"], len(target) - 2] for messages, target in candidates]

        idle = scored("idle", e0="WWWW", e1="WWWW")
        outcome = run(objective(score, target_choice="most_likely"), first, idle, second)
        assert len(calls) == 1
        assert [messages for messages, _ in calls[0]] == [prompt("q", "e1")] * 3 + [prompt("p", "e0")] * 2
        assert [e.target_ids for e in outcome.examples] == ids(first, "e0", 2) + ids(second, "e1", 0)

    def test_most_likely_without_candidates_asks_nothing(self):
        def score(candidates):
            raise AssertionError("nothing to score")

        assert (
            run(objective(score, target_choice="most_likely"), scored("q", e0="WW", e1="WW")).examples == []
        )

    def test_most_likely_without_a_scorer_is_refused(self):
        with pytest.raises(ValueError, match=r"most_likely.*pass score=.*'shortest'"):
            objective(target_choice="most_likely")

    def test_a_scorer_that_loses_candidates_is_refused(self):
        with pytest.raises(ValueError, match="answered 1 of 2"):
            run(
                objective(lambda candidates: [0.0], target_choice="most_likely"),
                scored("q", e0="RR", e1="WW"),
            )


class TestWeights:
    # q1 has two targets, q2 one, q3 ties, q4 cannot be graded: Q = 4, N = 3.
    QUESTIONS = (
        scored("q1", e0="RRW", e1="WWW"),
        scored("q2", e0="WWW", e1="RWW"),
        scored("q3", e0="RWW", e1="WRW"),
        scored("q4", e0="UUU", e1="UUU"),
    )

    def test_questions_divides_by_q_and_by_each_questions_targets(self):
        outcome = run(objective(coefficient=0.5, max_targets="all"), *self.QUESTIONS)
        weights = [(e.question_id, e.weight) for e in outcome.examples]
        assert weights == [("q1", 0.5 / 8), ("q1", 0.5 / 8), ("q2", 0.5 / 4)]

    def test_kept_divides_by_all_targets_of_the_step(self):
        outcome = run(objective(coefficient=0.5, max_targets="all", normalize="kept"), *self.QUESTIONS)
        assert [e.weight for e in outcome.examples] == [0.5 / 3] * 3

    def test_metrics_and_records(self):
        outcome = run(objective(max_targets="all"), *self.QUESTIONS)
        assert outcome.metrics == {
            "fired": 2, "ties": 1, "best_without_right": 0, "one_expert": 0, "without_target": 0,
            "targets": 3, "excluded_unfinished": 0, "excluded_run_on": 0, "compared": 3,
            "gap": pytest.approx((2 / 3 + 1 / 3 + 0) / 3),
        }  # fmt: skip
        assert [(r["question_id"], r["best"], r["worst"], r["targets"]) for r in outcome.records] == [
            ("q1", "e0", "e1", 2),
            ("q2", "e1", "e0", 1),
        ]
        assert all(set(record) == set(RECORD_FIELDS) for record in outcome.records)

    @settings(deadline=None, max_examples=60)
    @given(
        groups=st.lists(st.tuples(*[st.text("RWLU", min_size=3, max_size=3)] * 3), min_size=1, max_size=4),
        form=st.sampled_from(["nll", "kl", "printed"]),
        max_targets=st.sampled_from([1, 2, "all"]),
        normalize=st.sampled_from(["questions", "kept"]),
    )  # fmt: skip
    def test_weights_sum_to_the_coefficient_times_the_share_that_fires(
        self, groups, form, max_targets, normalize
    ):
        questions = [scored(f"q{i}", e0=a, e1=b, e2=c) for i, (a, b, c) in enumerate(groups)]
        outcome = run(
            objective(coefficient=0.3, form=form, max_targets=max_targets, normalize=normalize), *questions
        )
        fired = outcome.metrics["fired"]
        share = fired / len(questions) if normalize == "questions" else float(fired > 0)
        total = sum(e.weight for e in outcome.examples)
        assert total == pytest.approx(0.0 if form == "printed" else 0.3 * share)
        assert sum(abs(e.weight) for e in outcome.examples) == pytest.approx(
            0.3 * share * (2 if form == "printed" else 1)
        )


class TestForms:
    """Against brute force: log-probabilities from a table of logits, a row of positions for each prompt."""

    QUESTION = scored("q", e0="RRR", e1="WWW")
    COEFFICIENT = 0.7

    def examples(self, form):
        return run(
            objective(coefficient=self.COEFFICIENT, form=form, max_targets="all"), self.QUESTION
        ).examples

    @staticmethod
    def logits() -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(2, 4, 40, generator=generator, dtype=torch.float64)  # (prompt, position, token)

    @staticmethod
    def mean_logp(logits: torch.Tensor, expert: int, target) -> torch.Tensor:
        rows = logits[expert, : len(target)].log_softmax(-1)
        return rows[range(len(target)), list(target)].mean()

    def loss(self, examples, logits):
        """sum_i w_i * tokenmeanNLL_i: the contract of supervised examples."""
        rows = [prompt("q", "e0"), prompt("q", "e1")]
        return sum(e.weight * -self.mean_logp(logits, rows.index(e.prompt), e.target_ids) for e in examples)

    def printed(self, logits):
        """c * mean over targets of log p(O+|P_worst) - log p(O+|P_best), e0 best, e1 worst, one question."""
        targets = [r.completion_ids for r in self.QUESTION.groups[0]]
        gaps = [self.mean_logp(logits, 1, t) - self.mean_logp(logits, 0, t) for t in targets]
        return self.COEFFICIENT * sum(gaps) / len(gaps)

    def test_printed_equals_the_printed_formula_in_value_and_in_every_derivative(self):
        logits = self.logits()
        examples = self.examples("printed")
        assert self.loss(examples, logits).item() == pytest.approx(self.printed(logits).item(), abs=1e-12)
        variable = logits.clone().requires_grad_()
        self.loss(examples, variable).backward()
        step = 1e-6
        for index in [(1, 0, 0), (1, 1, 10), (0, 0, 0), (0, 1, 11), (1, 2, 22), (0, 3, 5)]:
            up, down = logits.clone(), logits.clone()
            up[index] += step
            down[index] -= step
            slope = (self.printed(up) - self.printed(down)) / (2 * step)
            assert variable.grad[index].item() == pytest.approx(slope.item(), abs=1e-8)

    @pytest.mark.parametrize("form, sign", [("nll", 1), ("printed", -1)])
    def test_the_sign_trap(self, form, sign):
        """A descent step on nll raises the worst expert's likelihood of O+; on printed it lowers it."""
        logits = self.logits().requires_grad_()
        self.loss(self.examples(form), logits).backward()
        stepped = logits.detach() - 0.1 * logits.grad
        for rollout in self.QUESTION.groups[0]:
            change = self.mean_logp(stepped, 1, rollout.completion_ids) - self.mean_logp(
                logits.detach(), 1, rollout.completion_ids
            )
            assert math.copysign(1, change.item()) == sign

    def test_printed_has_each_target_under_both_prompts_with_opposite_weights(self):
        weight = self.COEFFICIENT / 3
        pairs = sorted((e.target_ids, e.prompt[0]["content"], e.weight) for e in self.examples("printed"))
        expected = []
        for target in ids(self.QUESTION, "e0", 0, 1, 2):
            expected += [(target, "You are e0.", weight), (target, "You are e1.", -weight)]
        assert pairs == expected

    def test_kl_is_nll_with_the_best_experts_prompt_as_teacher(self):
        for nll, kl in zip(self.examples("nll"), self.examples("kl"), strict=True):
            assert kl.teacher_prompt == prompt("q", "e0") and kl.prompt == nll.prompt == prompt("q", "e1")
            assert (kl.weight, kl.target_ids) == (nll.weight, nll.target_ids)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"coefficient": -0.1}, r"coefficient is -0\.1"),
        ({"coefficient": float("inf")}, "coefficient is inf.*finite"),
        ({"max_targets": 0}, "max_targets is 0.*1 or more, or 'all'"),
        ({"max_targets": "two"}, "max_targets is 'two'"),
        ({"form": "mse"}, "form is 'mse'.*nll, kl, printed"),
        ({"target_choice": "longest"}, "target_choice is 'longest'"),
        ({"normalize": "rows"}, "normalize is 'rows'"),
    ],
)
def test_bad_options_are_refused_with_the_limit(options, message):
    with pytest.raises(ValueError, match=message):
        MutualLearningConfig(**options)


def test_it_has_no_state():
    mutual = objective()
    run(mutual, scored("q", e0="RW", e1="WW"))
    assert mutual.state_dict() == {}
    mutual.load_state_dict({})


def test_memls_objectives_need_no_trainer():
    assert not imported_by("meml_mel.meml.mutual_learning, meml_mel.meml.hard_examples") & FORBIDDEN


def recipes() -> dict[str, dict]:
    """Recipe name -> its YAML, as docs/meml-grpo.md prints it."""
    text = (Path(__file__).parents[2] / "docs" / "meml-grpo.md").read_text()
    found = re.findall(r"^`(\w+)`:[^`]*?(?:`[^`]*`[^`]*?)*?```yaml\n(.*?)```", text, flags=re.M | re.S)
    return {name: yaml.safe_load(block) for name, block in found}


@pytest.mark.parametrize("name", ["meml", "meml_literal", "meml_expert_trigger"])
def test_the_documented_recipes_are_valid(name):
    recipe = recipes()[name]
    algorithm, objectives = recipe["algorithm"], recipe["objectives"]
    validate(
        algorithm["advantage"],
        recipe.get("scale_rewards"),
        recipe.get("loss_type", "dapo"),
        negative_advantages=algorithm.get("negative_advantages", "keep"),
    )
    mutual = MutualLearningConfig(**objectives["mutual_learning"])
    hard = HardExamplesConfig(**objectives["hard_examples"])
    hard.check_group_size(recipe["num_generations"])
    literal = name == "meml_literal"
    assert (mutual.form == "printed", algorithm.get("negative_advantages") == "drop") == (literal, literal)
    assert (hard.trigger == "all_experts") == (name == "meml")
    assert name != "meml" or (mutual, hard) == (MutualLearningConfig(), HardExamplesConfig())
