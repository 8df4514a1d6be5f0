"""A small run with state of every kind, that can be killed at a named point and resumed."""

from __future__ import annotations

import os
import signal

from transformers import TrainerCallback
from trl import GRPOConfig

from meml_mel.meml.hard_examples import HardExamplesConfig, HardExamplesObjective
from meml_mel.rlvr import checkpoint
from meml_mel.rlvr.objective import GenerationRequest, Outcome, SupervisedExample
from meml_mel.rlvr.options import AlgorithmConfig, PhaseSampling
from meml_mel.rlvr.trainer import RLVRTrainer
from tests import tiny


class Echo:
    """Asks for one sampled text per mixed question (so the run's random state matters) and learns it."""

    name = "echo"

    def examine(self, question, context):
        if not question.mixed:
            return None
        prompt = ({"role": "user", "content": f"why {question.question.problem}"},)
        (completion,) = yield [GenerationRequest("analysis", prompt, grade_for=question.question)]
        return prompt, completion

    def reduce(self, batch, findings, context):
        outcome = Outcome()
        for question, finding in zip(batch.questions, findings, strict=True):
            if finding is None:
                continue
            prompt, completion = finding
            outcome.records.append(
                {"step": context.step, "question_id": question.question.id, "text": completion.text}
            )
            outcome.examples.append(
                SupervisedExample(
                    "echo",
                    question.question.id,
                    prompt,
                    1 / context.questions,
                    target_text=completion.text or "nothing",
                )
            )
        return outcome

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Kill(TrainerCallback):
    def __init__(self, event: str, step: int):
        self.event, self.step = event, step

    def at(self, event, step):
        if event == self.event and step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_step_begin(self, args, state, control, **kwargs):
        self.at("begin", state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        self.at("end", state.global_step)

    def on_save(self, args, state, control, **kwargs):
        self.at("saved", state.global_step)


def run(folder: str, kill: tuple[str, int] | None = None, resume: bool = False, **changes) -> None:
    """5 questions, 2 a step: 2 steps an epoch, 3 epochs, a checkpoint every step unless changed."""
    settings = dict(
        output_dir=folder,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_generations=4,
        max_completion_length=7,
        num_train_epochs=3,
        learning_rate=1e-2,
        logging_steps=3,
        report_to=[],
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        seed=11,
    )
    algorithm = AlgorithmConfig(
        dynamic_sampling=changes.pop("dynamic_sampling", False), dynamic_sampling_max_rounds=2
    )
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    settings["gradient_accumulation_steps"] //= processes
    trainer = RLVRTrainer(
        tiny.model(),
        GRPOConfig(**settings | changes),
        tiny.rows(5, ("a", "b")),
        tiny.grade_by_length,
        objectives=[
            Echo(),
            HardExamplesObjective(HardExamplesConfig(capacity=3, trigger="expert", threshold=2)),
        ],
        algorithm=algorithm,
        sampling={"analysis": PhaseSampling(max_tokens=5, temperature=0.9)},
        processing_class=tiny.tokenizer(),
        config_digest="d" * 64,
    )
    if kill is not None:
        killer = Kill(*kill)
        trainer.add_callback(killer)
        write_manifest = checkpoint.write_manifest

        def killed_before_the_manifest(path, step, digest):
            killer.at("saving", step)
            write_manifest(path, step, digest)

        checkpoint.write_manifest = killed_before_the_manifest
    trainer.train(trainer.resume_point(resume))
    trainer.save_model(os.path.join(folder, "final"))
