"""The package and TRL's policy losses against vectors.json, which scripts/make_conformance.py writes."""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from meml_mel.data.question import Question
from meml_mel.grading.verdict import Grade
from meml_mel.mel.objective import MetaExperienceConfig, MetaExperienceObjective
from meml_mel.mel.parse import HEADINGS
from meml_mel.meml.hard_examples import HardExamplesConfig, HardExamplesObjective
from meml_mel.meml.mutual_learning import MutualLearningConfig, MutualLearningObjective
from meml_mel.prompts.library import Prompts
from meml_mel.rlvr.advantages import estimate
from meml_mel.rlvr.objective import Completion, StepContext, run_waves
from meml_mel.rlvr.rollouts import Rollout, ScoredBatch, ScoredQuestion

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make_conformance.py"
VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
BATCHES = VECTORS["batches"]
CASES = {case["name"]: case for case in VECTORS["cases"]}
EXACT = 1e-12

BATCH_NAMES = list(BATCHES)
OPTIONS = {  # name in the vectors -> arguments of `estimate`
    "rft_right": ("rft", {"rft_divisor": "right"}),
    "meml_printed": ("dr_grpo", {"negative_advantages": "drop"}),
}


def nll(logps: list[float]) -> float:
    return -sum(logps) / len(logps)


def solve_prompt(question, expert: int):
    return ({"role": "system", "content": f"e{expert}"}, {"role": "user", "content": f"{question}"})


def scored_batch(data: dict) -> ScoredBatch:
    """The batch of the vectors; a rollout's ids are its own, as many as it has log-probabilities."""

    def rollout(q: int, e: int, g: int) -> Rollout:
        reward, ids = data["rewards"][q][e][g], range(len(data["logps"][q][e][g]))
        verdict = "ungradable" if reward is None else "right" if reward else "wrong"
        return Rollout(
            question_id=str(q),
            expert=f"e{e}",
            sample=g,
            prompt_ids=(0,),
            completion_ids=tuple(1000 * q + 100 * e + 10 * g + i for i in ids),
            text="so \\boxed{1}",
            finish=data["finish"][q][e][g],
            grade=Grade(verdict),
        )

    questions = []
    for q, question in enumerate(data["rewards"]):
        solution = "The sum is 1." if data["has_solution"][q] else None
        questions.append(
            ScoredQuestion(
                question=Question(str(q), problem=f"problem {q}", answer="1", solution=solution),
                experts=tuple(f"e{e}" for e in range(len(question))),
                prompts=tuple(solve_prompt(q, e) for e in range(len(question))),
                groups=tuple(
                    tuple(rollout(q, e, g) for g in range(len(group))) for e, group in enumerate(question)
                ),
            )
        )
    return ScoredBatch(step=7, questions=tuple(questions))


def examples_of(objective, data: dict, generate=None):
    batch = scored_batch(data)
    context = StepContext(seed=0, step=7, questions=len(batch.questions))
    return run_waves([objective], batch, context, generate)[objective.name].examples


def by_prompt_and_target(examples) -> dict:
    assert len({(e.prompt[0]["content"], e.prompt[1]["content"], e.target_ids) for e in examples}) == len(
        examples
    )
    return {(e.prompt[0]["content"], e.prompt[1]["content"], e.target_ids): e.weight for e in examples}


# -- the file ----------------------------------------------------------------------------------------------


def test_plain_python_writes_this_very_file():
    # -S: no site-packages, so neither torch nor this package can be imported; -I: nothing from this folder.
    checked = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_the_description_names_every_field():
    fields = {key for batch in BATCHES.values() for key in batch} | {
        "objectives",
        "terms",
        "totals",
        *OPTIONS,
    }
    fields |= {"weight", "loss", "normalize", "form", "under", "before"}
    assert [field for field in sorted(fields) if field not in VECTORS["description"]] == []


# -- advantages and policy losses --------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCH_NAMES)
def test_advantages(batch):
    data = BATCHES[batch]
    rewards = scored_batch(data).rewards()
    assert torch.isnan(rewards).any()
    for name, expected in data["advantages"].items():
        estimator, options = OPTIONS.get(name, (name, {}))
        actual = estimate(estimator, rewards, **options)
        torch.testing.assert_close(
            actual, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=EXACT, msg=name
        )


@pytest.mark.parametrize("batch", BATCH_NAMES)
def test_policy_losses_are_trls(batch):
    data = BATCHES[batch]
    for name, by_type in data["policy_loss"].items():
        for loss_type, expected in by_type.items():
            actual = trl_policy_loss(data, data["advantages"][name], loss_type)
            assert actual == pytest.approx(expected, abs=EXACT), (name, loss_type)


def trl_policy_loss(data: dict, advantages: list, loss_type: str) -> float:
    """GRPOTrainer._compute_loss in float64 on the vectors' log-probabilities, as one micro-batch on one rank."""
    from trl import GRPOTrainer

    def flat(nested):
        return [x for question in nested for group in question for x in group]

    def padded(rows):
        return torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row, dtype=torch.float64) for row in rows], batch_first=True
        )

    logps, old = padded(flat(data["logps"])), padded(flat(data["old_logps"]))
    mask = padded([[1.0] * len(row) for row in flat(data["logps"])])
    low, high = data["clip"][loss_type]
    accelerator = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logps, torch.zeros_like(logps), None),
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(delta=None, steps_per_generation=1),
        accelerator=accelerator,
        loss_type=loss_type,
        importance_sampling_level="token",
        epsilon_low=low,
        epsilon_high=high,
        max_completion_length=data["max_completion_length"],
        current_gradient_accumulation_steps=1,
        beta=0.0,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        aux_loss_enabled=False,
        _entropy_bonus_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    empty = torch.zeros(len(logps), 0)
    inputs = {
        "prompt_ids": empty,
        "prompt_mask": empty,
        "completion_ids": torch.zeros_like(logps),
        "completion_mask": mask,
        "advantages": torch.tensor(flat(advantages), dtype=torch.float64),
        "old_per_token_logps": old,
        "num_items_in_batch": mask.sum(),
    }
    return GRPOTrainer._compute_loss(trainer, None, inputs).item()


# -- objectives --------------------------------------------------------------------------------------------

MUTUAL_CASES = [name for name, case in CASES.items() if "mutual_learning" in case["objectives"]]
HARD_CASES = [name for name, case in CASES.items() if "hard_examples" in case["objectives"]]
MEL_CASES = [name for name, case in CASES.items() if "meta_experience" in case["objectives"]]


def mutual_loss(case: dict, normalize: str, form: str) -> float:
    """The package's examples compared with the vectors' one by one; answers sum of weight * NLL."""
    data = BATCHES[case["batch"]]
    options = case["objectives"]["mutual_learning"]
    objective = MutualLearningObjective(MutualLearningConfig(normalize=normalize, form=form, **options))
    examples = examples_of(objective, data)
    rollouts = scored_batch(data).questions
    logps = {}  # (prompt, target) -> log-probabilities
    for q, question in enumerate(data["logps"]):
        for e, group in enumerate(question):
            for g, values in enumerate(group):
                logps[f"e{e}", str(q), rollouts[q].groups[e][g].completion_ids] = values
    for c in data["mutual_candidates"]:
        target = rollouts[c["question"]].groups[c["expert"]][c["sample"]].completion_ids
        logps[f"e{c['under']}", str(c["question"]), target] = c["logps"]
    expected = {}
    for e in case["terms"]["mutual_learning"][normalize][form]["examples"]:
        target = rollouts[e["question"]].groups[e["expert"]][e["sample"]].completion_ids
        expected[f"e{e['under']}", str(e["question"]), target] = e["weight"]
    assert by_prompt_and_target(examples) == pytest.approx(expected, abs=EXACT)
    return sum(weight * nll(logps[key]) for key, weight in by_prompt_and_target(examples).items())


def hard_loss(case: dict) -> float:
    data, options = BATCHES[case["batch"]], case["objectives"]["hard_examples"]
    objective = HardExamplesObjective(HardExamplesConfig(**options))
    before = [
        {
            "question_id": h["question"],
            "expert": f"e{h['expert']}",
            "prompt": list(solve_prompt(h["question"], h["expert"])),
            "target_text": "The sum is 1.",
            "step": 3,
        }
        for h in data["hard_examples"]
        if h["before"]
    ]
    objective.load_state_dict({"buffer": before, "flush_count": 0})
    actual = {
        (e.prompt[1]["content"], e.prompt[0]["content"]): e.weight for e in examples_of(objective, data)
    }
    expected = {
        (str(e["question"]), f"e{e['expert']}"): e["weight"]
        for e in case["terms"]["hard_examples"]["buffer"]["nll"]["examples"]
    }
    assert actual == pytest.approx(expected, abs=EXACT)
    logps = {(str(h["question"]), f"e{h['expert']}"): h["logps"] for h in data["hard_examples"]}
    return sum(weight * nll(logps[key]) for key, weight in actual.items())


ANALYSIS = "\n\n".join(
    f"## {heading}\nIt adds where it should count."
    if "Heuristics" not in heading
    else f"## {heading}\n- If it adds, then count."
    for heading in HEADINGS.values()
)


class Script:
    """Answers MEL's requests: every analysis is valid, and each question's first n replays are right."""

    def __init__(self, retained: dict[str, int]):
        self.left = dict(retained)
        self.analyses = 0

    def __call__(self, requests):
        return [self.analysis() if r.phase == "analysis" else self.replay(r.grade_for.id) for r in requests]

    def analysis(self) -> Completion:
        self.analyses += 1
        return Completion(ANALYSIS, (90_000 + self.analyses,), "stop")

    def replay(self, question_id: str) -> Completion:
        self.left[question_id] = self.left.get(question_id, 0) - 1
        right = self.left[question_id] >= 0
        return Completion("so it is", (1,), "stop", Grade("right") if right else Grade("wrong", "different"))


def mel_loss(case: dict, normalize: str) -> float:
    """The weights of the retained meta-experiences, question by question; answers sum of weight * NLL."""
    data, options = BATCHES[case["batch"]], case["objectives"]["meta_experience"]
    targets = data["meta_experiences"]
    config = MetaExperienceConfig(pairs_per_question="all", normalize=normalize, **options)
    script = Script(Counter(str(t["question"]) for t in targets))
    examples = examples_of(MetaExperienceObjective(config, Prompts.load()), data, script)
    assert script.analyses > len(targets)  # some pairs are not retained
    assert len({e.target_ids for e in examples}) == len(targets)
    expected = [
        (str(targets[e["target"]]["question"]), e["weight"])
        for e in case["terms"]["meta_experience"][normalize]["nll"]["examples"]
    ]
    assert [e.question_id for e in examples] == [question for question, _ in expected]
    assert [e.weight for e in examples] == pytest.approx([weight for _, weight in expected], abs=EXACT)
    return sum(e.weight * nll(t["logps"]) for e, t in zip(examples, targets, strict=True))


@pytest.mark.parametrize("form", ["nll", "printed"])
@pytest.mark.parametrize("normalize", ["questions", "kept"])
@pytest.mark.parametrize("name", MUTUAL_CASES)
def test_mutual_learning(name, normalize, form):
    expected = CASES[name]["terms"]["mutual_learning"][normalize][form]["loss"]
    assert mutual_loss(CASES[name], normalize, form) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("name", HARD_CASES)
def test_hard_examples(name):
    expected = CASES[name]["terms"]["hard_examples"]["buffer"]["nll"]["loss"]
    assert hard_loss(CASES[name]) == pytest.approx(expected, abs=EXACT)
    assert (expected == 0) == (name == "meml_unfilled_buffer")


@pytest.mark.parametrize("normalize", ["questions", "kept"])
@pytest.mark.parametrize("name", MEL_CASES)
def test_meta_experience(name, normalize):
    expected = CASES[name]["terms"]["meta_experience"][normalize]["nll"]["loss"]
    assert mel_loss(CASES[name], normalize) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("name", CASES)
def test_totals(name):
    """L_policy by TRL on our advantages + our objectives' weights times the vectors' NLLs."""
    case = CASES[name]
    data, objectives = BATCHES[case["batch"]], case["objectives"]
    rewards = scored_batch(data).rewards()
    for total in case["totals"]:
        value = trl_policy_loss(data, estimate(total["advantage"], rewards).tolist(), total["loss_type"])
        if "mutual_learning" in objectives:
            value += mutual_loss(case, total["normalize"], total["form"])
        if "hard_examples" in objectives:
            value += hard_loss(case)
        if "meta_experience" in objectives:
            value += mel_loss(case, total["normalize"])
        assert value == pytest.approx(total["value"], abs=EXACT), total
