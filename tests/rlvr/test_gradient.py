"""The gradient test: one optimizer step of RLVRTrainer against docs/training.md's equation by brute force.

Ragged prompts, completions and examples; any micro-batch and accumulation; 1 and 2 gloo processes; a rank
without examples; all three objectives, and scripted ones for the forms they don't reach.
"""

import json
import random
from pathlib import Path

import pytest
import torch

from meml_mel.rlvr.objective import Outcome, SupervisedExample
from tests import processes, tiny
from tests.rlvr import brute_force, recorded

EXPERTS = ["a", "bb"]
Q, G = 4, 4
END = 2
MAX = 12


def recorded_rollouts(seed=0):
    """Q x E x G ragged completions: most end with <end>, some are cut at the limit."""
    rng = random.Random(seed)
    rows = []
    for _ in range(Q * len(EXPERTS) * G):
        length = rng.randint(1, MAX)
        ids = [rng.randrange(6, 90) for _ in range(length)]
        rows.append(ids if length == MAX else [*ids[:-1], END])
    return rows


class Scripted:
    """Fixed supervised examples of every form: sampled ids, text, KL with a teacher, a negative weight."""

    name = "scripted"

    def __init__(self, count):
        self.count = count

    def examine(self, question, context):
        return question.question.id
        yield

    def reduce(self, batch, findings, context):
        assert findings == [q.question.id for q in batch.questions]
        examples = []
        for i in range(self.count):
            prompt = ({"role": "user", "content": "p" * (3 * i + 1)},)
            form = {"target_text": "t" * (2 * i + 1)} if i % 2 else {"target_ids": (*[7 + i] * (i + 1), END)}
            teacher = ({"role": "user", "content": "teacher"},) if i % 3 == 2 else None
            weight = (0.3 + 0.1 * i) * (-1 if i == 4 else 1)
            examples.append(
                SupervisedExample("scripted", f"q{i % Q}", prompt, weight, teacher_prompt=teacher, **form)
            )
        return Outcome(examples=examples)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def no_examples():
    return [Scripted(0)]


def one_example():
    return [Scripted(1)]


def many_examples():
    return [Scripted(7)]


def answer(prompt):
    raise AssertionError("the scripted objectives generate nothing")


def scripted_loss(model, count):
    """The scripted examples again, in token ids and by hand."""
    total = 0.0
    for i in range(count):
        prompt = brute_force.encode([{"role": "user", "content": "p" * (3 * i + 1)}])
        character = tiny.tokenizer().convert_tokens_to_ids("t")
        target = [*[character] * (2 * i + 1), END] if i % 2 else [*[7 + i] * (i + 1), END]
        weight = (0.3 + 0.1 * i) * (-1 if i == 4 else 1)
        if i % 3 == 2:
            teacher = brute_force.encode([{"role": "user", "content": "teacher"}])
            total = total + weight * brute_force.kl(model, prompt, teacher, target)
        else:
            total = total + weight * brute_force.nll(model, prompt, target)
    return total


def rollout_groups(rollouts):
    """(prompt, completion, reward) of every rollout, in the order of the rows."""
    prompts = [brute_force.encode(row.prompt) for row in tiny.rows(Q, tuple(EXPERTS)) for _ in range(G)]
    tokenizer = tiny.tokenizer()
    graded = tiny.grade_by_length(
        [(None, tokenizer.decode(ids, skip_special_tokens=True), ids[-1] != END) for ids in rollouts]
    )
    return [(p, c, g.reward) for p, c, g in zip(prompts, rollouts, graded, strict=True)]


def with_advantages(groups, advantage):
    """By hand, group by group: r - mean, or (r - mean)/(std + 1e-4) with Bessel's correction."""
    out = []
    for start in range(0, len(groups), G):
        rewards = [r for _, _, r in groups[start : start + G]]
        mean = sum(rewards) / G
        std = (sum((r - mean) ** 2 for r in rewards) / (G - 1)) ** 0.5
        for prompt, completion, reward in groups[start : start + G]:
            value = reward - mean
            out.append((prompt, completion, value / (std + 1e-4) if advantage == "grpo" else value))
    return out


def spec(folder, **changes):
    base = dict(
        folder=str(folder),
        out=str(folder / "gradient.pt"),
        Q=Q,
        G=G,
        experts=EXPERTS,
        micro_batch=Q * G * len(EXPERTS),
        accumulation=1,
        max_completion_length=MAX,
        loss_type="grpo",
        exact=True,
        module="tests.rlvr.test_gradient",
        objectives="many_examples",
        algorithm={"advantage": "dr_grpo"},
        token_budget=64,
        rollouts=recorded_rollouts(),
    )
    return base | changes


def run(settings):
    return recorded.first_gradient(settings)


def run_on_two_processes(all_settings, folder):
    """Each spec's gradient from one pair of gloo processes."""
    paths = []
    for settings in all_settings:
        paths.append(Path(settings["folder"]) / "spec.json")
        paths[-1].write_text(json.dumps(settings))
    codes = processes.run_together(
        recorded.write_gradients, ([str(p) for p in paths],), folder, 2, timeout=300
    )
    assert codes == [0, 0], processes.output(folder)
    return [torch.load(settings["out"]) for settings in all_settings]


def largest_difference(ours, theirs):
    """Over all parameters, relative to the largest entry of the gradient."""
    ours = {name.removeprefix("module."): value for name, value in ours.items()}
    assert set(ours) == set(theirs)
    scale = max(value.abs().max() for value in theirs.values())
    assert scale > 1e-3
    return max(((ours[name].double() - theirs[name]).abs().max() / scale).item() for name in theirs)


def expected(settings, examples):
    model = tiny.exact(tiny.model(seed=3))
    groups = with_advantages(rollout_groups(settings["rollouts"]), settings["algorithm"]["advantage"])
    temperature = settings.get("temperature", 1.0)
    loss = brute_force.policy_loss(model, groups, settings["loss_type"], MAX, temperature)
    return brute_force.gradient(model, loss + scripted_loss(model, examples))


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("micro_batch, accumulation", [(32, 1), (8, 4), (4, 8), (16, 2)])
def test_equals_the_equation_for_any_split(tmp_path, loss_type, micro_batch, accumulation):
    settings = spec(tmp_path, loss_type=loss_type, micro_batch=micro_batch, accumulation=accumulation)
    assert largest_difference(run(settings), expected(settings, 7)) < 1e-9


@pytest.mark.parametrize("maker, count", [("no_examples", 0), ("one_example", 1)])
def test_with_few_or_no_examples(tmp_path, maker, count):
    settings = spec(tmp_path, micro_batch=8, accumulation=4, objectives=maker)
    assert largest_difference(run(settings), expected(settings, count)) < 1e-9


@pytest.mark.parametrize("token_budget", [1, 40, 4096])
def test_does_not_depend_on_the_token_budget(tmp_path, token_budget):
    settings = spec(tmp_path, token_budget=token_budget)
    assert largest_difference(run(settings), expected(settings, 7)) < 1e-9


def test_supervised_targets_stay_at_temperature_one(tmp_path):
    settings = spec(tmp_path, temperature=0.6)
    assert largest_difference(run(settings), expected(settings, 7)) < 1e-9


def test_trl_advantages_are_the_grpo_formula(tmp_path):
    """TRL computes them in float32, so this one is bounded by that."""
    settings = spec(tmp_path, algorithm={"advantage": "grpo"})
    assert largest_difference(run(settings), expected(settings, 7)) < 1e-6


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_float32_fused_path_is_close(tmp_path, temperature):
    settings = spec(tmp_path, exact=False, temperature=temperature, micro_batch=8, accumulation=4)
    assert largest_difference(run(settings), expected(settings, 7)) < 2e-5


def test_skipping_rows_of_zero_advantage_changes_nothing(tmp_path):
    for loss_type in ("grpo", "dr_grpo", "dapo"):
        settings = spec(
            tmp_path,
            micro_batch=4,
            accumulation=8,
            loss_type=loss_type,
            algorithm={"advantage": "dr_grpo", "skip_zero_advantage_rows": True},
        )
        even = [6, 6, END]  # "right" and "right": four groups of equal rewards
        settings["rollouts"] = [even if (i // G) % 2 else ids for i, ids in enumerate(settings["rollouts"])]
        assert largest_difference(run(settings), expected(settings, 7)) < 1e-9


def test_two_processes_equal_the_equation(tmp_path):
    """Ragged examples over two ranks: many, one (so that a rank has none), none; split in several ways."""
    cases = [
        ("many_examples", 7, 4, 4, "dapo"),
        ("many_examples", 7, 16, 1, "grpo"),
        ("one_example", 1, 8, 2, "grpo"),
        ("no_examples", 0, 16, 1, "dr_grpo"),
        ("many_examples", 7, 2, 8, "dr_grpo"),  # a question's rows fall on both ranks' micro-batches
    ]
    specs = []
    for index, (maker, _, micro_batch, accumulation, loss_type) in enumerate(cases):
        folder = tmp_path / str(index)
        folder.mkdir()
        specs.append(
            spec(
                folder,
                micro_batch=micro_batch,
                accumulation=accumulation,
                loss_type=loss_type,
                objectives=maker,
            )
        )
    for settings, gradient, case in zip(specs, run_on_two_processes(specs, tmp_path), cases, strict=True):
        assert largest_difference(gradient, expected(settings, case[1])) < 1e-9, case
