"""The gradient test with MEL, mutual learning and the hard-example buffer all on, on recorded completions.

The expected loss is the equation of docs/training.md written out here: which pairs, which are retained, who is
best and worst, what the buffer holds are all decided again by hand from the recorded table.
"""

import hashlib
import math

import pytest

from meml_mel.mel.objective import MetaExperienceConfig, MetaExperienceObjective
from meml_mel.mel.parse import parse_meta_experience
from meml_mel.meml.hard_examples import HardExamplesConfig, HardExamplesObjective
from meml_mel.meml.mutual_learning import MutualLearningConfig, MutualLearningObjective
from meml_mel.prompts.library import Prompts
from tests import tiny
from tests.rlvr import brute_force
from tests.rlvr.test_gradient import END, EXPERTS, MAX, largest_difference, run, run_on_two_processes, spec

Q, G = 4, 2
C_MEL, C_MUTUAL, C_HARD = 1.0, 0.1, 0.7
RIGHT, WRONG = [10, 11, END], [10, END]  # even and odd text length
LONG_RIGHT, CUT_WRONG = [20, 21, 22, 23, END], [12] * (MAX + 1)
# question x expert x sample: mixed across experts; all right; all wrong; mixed within both, with a tie
TABLE = [
    [[RIGHT, LONG_RIGHT], [WRONG, CUT_WRONG]],
    [[RIGHT, RIGHT], [RIGHT, LONG_RIGHT]],
    [[WRONG, WRONG], [CUT_WRONG, WRONG]],
    [[RIGHT, WRONG], [WRONG, LONG_RIGHT]],
]


def fate(prompt: str) -> int:
    return hashlib.sha256(prompt.encode()).digest()[0]


def answer(prompt: str) -> list[int]:
    """Analyses: valid, cut off, or without a section; replays: right or wrong; by the prompt's hash."""
    tokenizer = tiny.tokenizer()
    draw = fate(prompt)
    if "Write four sections" not in prompt:
        return RIGHT if draw % 3 else WRONG
    sections = [
        "## 1. Failure point\nStep: f",
        "## 2. What worked\nw",
        "## 3. Reflection\nr" * (draw % 4 != 1),
    ]
    text = "\n".join([*sections, f"## 4. Heuristics\n- A: if {draw}, then y"])
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids if draw % 4 == 2 else [*ids, END]


def all_objectives():
    return [
        MetaExperienceObjective(
            MetaExperienceConfig(coefficient=C_MEL, pairs_per_question="all"), Prompts.load()
        ),
        MutualLearningObjective(MutualLearningConfig(coefficient=C_MUTUAL, max_targets="all")),
        HardExamplesObjective(HardExamplesConfig(coefficient=C_HARD, capacity=2, append_answer="none")),
    ]


def settings(folder, **changes):
    table = [ids for question in TABLE for group in question for ids in group]
    made = spec(
        folder,
        Q=Q,
        G=G,
        micro_batch=Q * G * len(EXPERTS),
        module="tests.rlvr.test_gradient_objectives",
        objectives="all_objectives",
        rollouts=table,
        max_completion_length=MAX + 1,
        token_budget=4000,
    )
    return made | changes


def text(ids):
    return tiny.tokenizer().decode(ids, skip_special_tokens=True)


def is_right(ids):
    return tiny.grade_by_length([(None, text(ids), ids[-1] != END)])[0].right


def expected(loss_type):
    model = tiny.exact(tiny.model(seed=3))
    rows = tiny.rows(Q, tuple(EXPERTS))
    prompts = Prompts.load()
    tokenizer = tiny.tokenizer()
    groups, l_mel, l_mutual, l_hard = [], 0.0, 0.0, []
    facts = {"retained": 0, "dropped": 0, "fired": 0, "hard": 0}
    for q, question in enumerate(tiny.questions(Q)):
        solve = [brute_force.encode(rows[q * 2 + e].prompt) for e in range(2)]
        rewards = [[float(is_right(ids)) for ids in group] for group in TABLE[q]]
        means = [sum(r) / G for r in rewards]
        for e in range(2):
            groups += [(solve[e], ids, r - means[e]) for ids, r in zip(TABLE[q][e], rewards[e], strict=True)]
        # MEL: all pairs of Y+ x Y-, over both experts; the replay under the wrong one's prompt
        right = [(e, ids) for e in range(2) for ids in TABLE[q][e] if is_right(ids)]
        wrong = [(e, ids) for e in range(2) for ids in TABLE[q][e] if not is_right(ids)]
        retained = []
        for _, good in right:
            for expert, bad in wrong:
                context = brute_force.encode(prompts.analyse(question, text(good), text(bad)))
                analysis = answer(tokenizer.decode(context))
                if analysis[-1] != END or fate(tokenizer.decode(context)) % 4 == 1:
                    facts["dropped"] += 1
                    continue
                experience = parse_meta_experience(text(analysis))
                system = rows[q * 2 + expert].prompt[0]["content"]
                replay = answer(
                    tokenizer.decode(brute_force.encode(prompts.replay(question, experience, system)))
                )
                if is_right(replay):
                    retained.append(brute_force.nll(model, context, analysis))
        facts["retained"] += len(retained)
        l_mel = l_mel + (sum(retained) / len(retained) / Q if retained else 0.0)
        # mutual learning: from the better expert's finished right responses to the worse one's prompt
        if means[0] != means[1]:
            facts["fired"] += 1
            best, worst = (0, 1) if means[0] > means[1] else (1, 0)
            targets = [ids for ids in TABLE[q][best] if is_right(ids) and ids[-1] == END]
            l_mutual = (
                l_mutual + sum(brute_force.nll(model, solve[worst], t) for t in targets) / len(targets) / Q
            )
        # hard examples: nobody right, the solution under each expert's prompt
        if not right:
            facts["hard"] += 1
            target = [*tokenizer(question.solution, add_special_tokens=False)["input_ids"], END]
            l_hard += [brute_force.nll(model, solve[e], target) for e in range(2)]
    assert facts["retained"] >= 2 and facts["dropped"] >= 1 and facts["fired"] == 1 and facts["hard"] == 1, (
        facts
    )
    policy = brute_force.policy_loss(model, groups, loss_type, MAX + 1)
    total = policy + C_MEL * l_mel + C_MUTUAL * l_mutual + C_HARD * sum(l_hard) / len(l_hard)
    assert math.isfinite(total.item())
    return brute_force.gradient(model, total)


@pytest.mark.parametrize("micro_batch, accumulation", [(16, 1), (4, 4), (2, 8)])
@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_all_objectives_equal_the_equation(tmp_path, loss_type, micro_batch, accumulation):
    made = settings(tmp_path, loss_type=loss_type, micro_batch=micro_batch, accumulation=accumulation)
    assert largest_difference(run(made), expected(loss_type)) < 1e-9


def test_all_objectives_on_two_processes(tmp_path):
    specs = []
    for index, (micro_batch, accumulation) in enumerate([(8, 1), (2, 4), (1, 8)]):
        (tmp_path / str(index)).mkdir()
        specs.append(settings(tmp_path / str(index), micro_batch=micro_batch, accumulation=accumulation))
    for gradient in run_on_two_processes(specs, tmp_path):
        assert largest_difference(gradient, expected("grpo")) < 1e-9
