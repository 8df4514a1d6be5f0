"""What RLVRTrainer does around the loss: advantages, dynamic sampling, own steps, evaluation, refusals."""

import json

import pyarrow.parquet as pq
import pytest
import torch
from transformers import TrainerCallback

from meml_mel.data.question import Question
from meml_mel.grading.verdict import Grade
from meml_mel.rlvr.objective import GenerationRequest, Outcome, SupervisedExample
from meml_mel.rlvr.options import AlgorithmConfig, PhaseSampling
from meml_mel.rlvr.rows import Row
from meml_mel.rlvr.trainer import RLVRTrainer
from tests import tiny
from tests.rlvr.brute_force import encode, gradient, nll
from tests.rlvr.test_trl_equality import config

DEFAULT = AlgorithmConfig()


class Watch:
    """Notes every batch it is shown; answers with `outcome(batch)`."""

    name = "watch"

    def __init__(self, outcome=lambda batch: Outcome()):
        self.batches, self.outcome = [], outcome

    def examine(self, question, context):
        return None
        yield

    def reduce(self, batch, findings, context):
        self.batches.append(batch)
        return self.outcome(batch)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def make(folder, rows=None, grade=tiny.grade_by_length, objectives=(), algorithm=DEFAULT, **changes):
    changes = dict(max_steps=1, max_grad_norm=0.0) | changes
    eval_rows = changes.pop("eval_rows", ())
    return RLVRTrainer(
        tiny.model(),
        config(folder, **changes),
        rows or tiny.rows(7),
        grade,
        objectives=objectives,
        algorithm=algorithm,
        processing_class=tiny.tokenizer(),
        sampling={"analysis": PhaseSampling(max_tokens=4)},
        eval_rows=eval_rows,
    )


def rollouts(folder):
    return [r for p in sorted((folder / "records/rollouts").glob("*")) for r in pq.read_table(p).to_pylist()]


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def by_problem(rights):
    """Grades by question: `rights[id]` of a group's four answers are right, in turn; None is ungradable."""
    counts = {}

    def grade(items):
        grades = []
        for question, text, _ in items:
            turn = counts[question.id] = counts.get(question.id, -1) + 1
            wanted = rights.get(question.id, 0)
            if wanted is None:
                grades.append(Grade("ungradable", "unparsable_gold"))
            else:
                grades.append(
                    Grade("right", None, text) if turn % 4 < wanted else Grade("wrong", "different", text)
                )
        return grades

    return grade


@pytest.mark.parametrize(
    "advantage, expected",
    [
        ("dr_grpo", [0.75, -0.25, -0.25, -0.25]),
        ("rloo", [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("rft", [1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_advantages_reach_the_rows_they_belong_to(tmp_path, advantage, expected):
    trainer = make(
        tmp_path,
        grade=by_problem({f"q{i}": 1 for i in range(7)}),
        algorithm=AlgorithmConfig(advantage=advantage),
    )
    trainer.train()
    values = [row["advantage"] for row in rollouts(tmp_path)]
    assert values == pytest.approx(expected * 2)


def test_negative_advantages_can_be_dropped_from_trls_too(tmp_path):
    trainer = make(
        tmp_path,
        grade=by_problem({f"q{i}": 1 for i in range(7)}),
        algorithm=AlgorithmConfig(negative_advantages="drop"),
    )
    trainer.train()
    values = [row["advantage"] for row in rollouts(tmp_path)]
    assert values == pytest.approx([0.75 / (0.5 + 1e-4), 0, 0, 0] * 2)


def test_ungradable_questions_have_no_advantage_and_are_not_examined(tmp_path):
    watch = Watch()
    rights = {f"q{i}": None if i % 2 else 2 for i in range(7)}
    make(tmp_path, grade=by_problem(rights), objectives=[watch], max_steps=3).train()
    rows = rollouts(tmp_path)
    assert any(row["verdict"] == "ungradable" for row in rows)
    assert all(
        row["advantage"] == 0 and row["reward"] is None for row in rows if row["verdict"] == "ungradable"
    )
    assert all(rights[q.question.id] == 2 for batch in watch.batches for q in batch.questions)


def test_dynamic_sampling_gives_the_policy_mixed_questions_and_objectives_all(tmp_path):
    watch = Watch()
    rights = {"q0": 2, "q3": 1, "q5": 4}  # every other question is all wrong
    algorithm = AlgorithmConfig(dynamic_sampling=True, dynamic_sampling_max_rounds=5)
    trainer = make(tmp_path, grade=by_problem(rights), objectives=[watch], algorithm=algorithm)
    trainer.train()
    rows = rollouts(tmp_path)
    in_loss = {row["question_id"] for row in rows if row["in_policy_loss"]}
    assert in_loss == {"q0", "q3"}
    assert len(watch.batches[0].questions) > 2  # what was graded on the way is seen too
    assert {q.question.id for q in watch.batches[0].questions} == {row["question_id"] for row in rows}
    assert all(row["advantage"] is None for row in rows if not row["in_policy_loss"])
    assert trainer.refill_stream.position > 0
    (line,) = metrics(tmp_path)
    assert line["dynamic_sampling/left_empty"] == 0


def test_dynamic_sampling_stops_at_its_bound(tmp_path):
    algorithm = AlgorithmConfig(dynamic_sampling=True, dynamic_sampling_max_rounds=1)
    trainer = make(tmp_path, grade=by_problem({}), algorithm=algorithm)
    trainer.train()
    (line,) = metrics(tmp_path)
    assert line["dynamic_sampling/left_empty"] == 2 and line["dynamic_sampling/drawn"] == 2
    assert sum(row["in_policy_loss"] for row in rollouts(tmp_path)) == 8  # the places keep their questions


class Gradients(TrainerCallback):
    """Weights after the RL step and at the end: own_step lies between them."""

    def __init__(self):
        self.after_rl = None

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.after_rl is None:
            self.after_rl = {name: p.detach().clone() for name, p in model.named_parameters()}


def test_own_step_is_an_optimizer_step_on_those_examples_alone(tmp_path):
    prompt = ({"role": "user", "content": "own"},)

    def outcome(batch):
        return Outcome(
            own_step=[SupervisedExample("watch", batch.questions[0].question.id, prompt, 0.5, None, "abc")]
        )

    trainer = make(
        tmp_path, objectives=[Watch(outcome)], optim="sgd", learning_rate=0.1, lr_scheduler_type="constant"
    )
    keep = Gradients()
    trainer.add_callback(keep)
    trainer.train()
    model = tiny.model()
    model.load_state_dict(keep.after_rl, strict=False)
    target = [*tiny.tokenizer()("abc", add_special_tokens=False)["input_ids"], 2]
    expected = gradient(model, 0.5 * nll(model, encode(prompt), target))
    for name, parameter in trainer.model.named_parameters():
        assert torch.allclose(parameter, keep.after_rl[name] - 0.1 * expected[name], atol=1e-6), name


def test_lora_learns_the_supervised_target_in_the_adapter_alone(tmp_path):
    """One SGD step on one example with rewards that cancel: the adapter moves down the example's NLL."""
    from peft import LoraConfig

    prompt = ({"role": "user", "content": "p"},)
    target = (10, 11, 2)

    def outcome(batch):
        return Outcome(examples=[SupervisedExample("watch", "q0", prompt, 1.0, target)])

    trainer = RLVRTrainer(
        tiny.model(),
        config(tmp_path, max_steps=1, optim="sgd", learning_rate=0.1, max_grad_norm=0.0),
        tiny.rows(7),
        by_problem({f"q{i}": 4 for i in range(7)}),  # all right: no advantage
        objectives=[Watch(outcome)],
        processing_class=tiny.tokenizer(),
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
    )
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    likelihood = trainer.supervision.score([(prompt, target)])[0]
    trainer.train()
    changed = {n for n, p in trainer.model.named_parameters() if not torch.equal(p, before[n])}
    assert changed and all("lora_B" in name for name in changed)  # A's gradient is 0 while B is 0
    assert trainer.supervision.score([(prompt, target)])[0] > likelihood


def test_unfinished_targets_are_no_examples_and_are_counted(tmp_path):
    prompt = ({"role": "user", "content": "p"},)

    def outcome(batch):
        ids = [(10, 11), (10, 11, 2), (10, 11, 1)]
        return Outcome(examples=[SupervisedExample("watch", "q0", prompt, 1.0, target) for target in ids])

    make(tmp_path, objectives=[Watch(outcome)]).train()
    (line,) = metrics(tmp_path)
    assert line["supervised/unfinished"] == 1
    assert line["tokens/supervised"] == 6


def test_evaluation_never_runs_objectives(tmp_path):
    watch = Watch()
    extra = [
        Row(Question(id=f"e{i}", problem="?", answer="1"), "", ({"role": "user", "content": "?"},))
        for i in range(4)
    ]
    trainer = make(tmp_path, objectives=[watch], eval_rows=extra, per_device_eval_batch_size=4)
    assert "eval_rewards/verifiable/mean" in trainer.evaluate()
    assert watch.batches == [] and not (tmp_path / "records").exists()


def test_scores_are_mean_log_probabilities(tmp_path):
    trainer = make(tmp_path)
    items = [(({"role": "user", "content": "x" * i},), (10, 11 + i, 2)) for i in range(1, 4)]
    expected = [-nll(trainer.model, encode(prompt), list(target)).item() for prompt, target in items]
    assert trainer.supervision.score(items) == pytest.approx(expected, abs=1e-5)
    assert trainer.model.training


def test_reporters_get_window_means_and_metrics_every_step(tmp_path):
    seen = []

    class Reporter(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in logs:
                seen.append((state.global_step, logs["reward"]))

    trainer = make(tmp_path, max_steps=5, logging_steps=2)
    trainer.add_callback(Reporter())
    trainer.train()
    rewards = [line["reward"] for line in metrics(tmp_path)]
    assert len(rewards) == 5
    assert [step for step, _ in seen] == [2, 4, 5]
    assert [r for _, r in seen] == pytest.approx([sum(rewards[:2]) / 2, sum(rewards[2:4]) / 2, rewards[4]])


@pytest.mark.parametrize(
    "rows, changes, message",
    [
        ([], {}, "no rows to train on"),
        (tiny.rows(4) + tiny.rows(1), {}, "question ids are not unique"),
        (tiny.rows(4, ("a", "b", "c")), {}, "not a multiple of 3 experts"),
        (tiny.rows(4)[:3] + tiny.rows(4, ("a",))[3:], {}, "rows must be question-major"),
        (tiny.rows(4), {"save_strategy": "steps", "save_steps": 3, "num_iterations": 2}, "save_steps=3"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(tmp_path, rows, changes, message):
    with pytest.raises(ValueError, match=message):
        RLVRTrainer(
            tiny.model(),
            config(tmp_path, **changes),
            rows,
            tiny.grade_by_length,
            processing_class=tiny.tokenizer(),
        )


def test_objectives_need_one_generation_per_optimizer_step(tmp_path):
    with pytest.raises(ValueError, match="steps_per_generation=4 must equal gradient_accumulation_steps=2"):
        make(tmp_path, objectives=[Watch()], steps_per_generation=4)


def test_a_failing_phase_says_which(tmp_path):
    class Asks(Watch):
        def examine(self, question, context):
            yield [GenerationRequest("replay", ({"role": "user", "content": "x"},))]

    with pytest.raises(KeyError, match="replay"):  # no sampling parameters were given for it
        make(tmp_path, objectives=[Asks()]).train()
