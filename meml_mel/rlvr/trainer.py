"""RLVRTrainer: GRPO rollouts, graded; any advantage estimator; supervised objectives beside the policy loss.

One step, in the order of the code below: rows -> rollouts -> grades -> `ScoredBatch` -> advantages and
objectives -> policy backward and supervised backwards -> one optimizer step. With no objective, one expert
and `advantage: grpo` this is TRL's GRPOTrainer, number for number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig

from ..grading.verdict import Grade
from . import advantages, checkpoint
from .generation import GradeMany, PhaseGenerator
from .monitor import Phases, ReporterPace, StepMetrics
from .objective import Objective, StepContext, run_waves
from .options import AlgorithmConfig, PhaseSampling, SupervisedConfig
from .records import ROLLOUT_SCHEMA, MetricsLog, Records
from .refill import refill
from .rollouts import Message, Rollout, ScoredBatch, collect
from .rows import Row, check_settings, experts_of
from .sampler import QuestionSampler, RefillStream
from .saving import CompleteCheckpoints
from .supervision import Supervision
from .trl_adapter import SampledRow, TRLAdapter


def as_messages(messages: list[Message]) -> list[Message]:
    return messages


class _OwnStep(TrainerCallback):
    """Runs `own_step` examples in an optimizer step of their own, after the RL one."""

    def __init__(self, trainer: RLVRTrainer):
        self.trainer = trainer

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if self.trainer.supervision.own_step():
            self.trainer.record_losses("own_step_loss")


class _Epoch(TrainerCallback):
    """Tells the sampler its epoch after a resume: accelerate's loaders don't reach it (transformers 5.24 does too)."""

    def __init__(self, trainer: RLVRTrainer):
        self.trainer = trainer

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:
        if self.trainer.row_sampler is not None:
            self.trainer.row_sampler.set_epoch(int((state.epoch or 0) + 1e-6))


class RLVRTrainer(CompleteCheckpoints, TRLAdapter):
    """GRPOTrainer over (question, expert) rows with objectives.

    Args:
        model: a path or Hub id, or a loaded model.
        args: TRL's config. With objectives, one generation must serve one optimizer step:
            `steps_per_generation` equals `gradient_accumulation_steps`.
        rows: question-major, every question under the same experts in the same order.
        grade: grades a list of (question, text, truncated).
        objectives: run in this order on every scored batch.
        sampling: parameters of the phases the objectives ask for, by name.
        render: messages to a TRL prompt: themselves (chat), or flat text for a model without a template.
        max_length: the model's context; prompts and examples that don't fit are left out and counted.
        config_digest: identifies the resolved config; a checkpoint made with another is refused on resume.
        model_revision: what the records call the weights that the run began with.

    Raises ValueError on contradictory settings before anything is generated.
    """

    def __init__(
        self,
        model: Any,
        args: GRPOConfig,
        rows: Sequence[Row],
        grade: GradeMany,
        objectives: Sequence[Objective] = (),
        algorithm: AlgorithmConfig = AlgorithmConfig(),
        sampling: dict[str, PhaseSampling] | None = None,
        supervised: SupervisedConfig = SupervisedConfig(),
        render: Callable[[list[Message]], Any] = as_messages,
        max_length: int | None = None,
        config_digest: str | None = None,
        model_revision: str | None = None,
        eval_rows: Sequence[Row] = (),
        **kwargs: Any,
    ):
        self.experts = experts_of(rows)
        self.prompts = {(row.question.id, row.expert): row.prompt for row in rows}
        self.questions = {row.question.id: row.question for row in [*rows, *eval_rows]}
        check_settings(args, algorithm, objectives, len(self.experts))
        self.grade = grade
        self.algorithm = algorithm
        self.objectives = list(objectives)
        self.render = render
        self.config_digest = config_digest
        self.model_revision = model_revision
        self.row_sampler: QuestionSampler | None = None
        self.question_index = {row.question.id: i // len(self.experts) for i, row in enumerate(rows)}
        self.refill_stream = RefillStream(len(rows) // len(self.experts), args.seed)
        self._grades: list[Grade] = []
        self._known_grades: list[Grade] | None = None

        pace, args.logging_steps = args.logging_steps, 1
        args.logging_nan_inf_filter = False  # a NaN loss must not look like the one before
        super().__init__(
            model=model,
            args=args,
            reward_funcs=[_named("verifiable", self._reward)],
            train_dataset=self._dataset(rows),
            eval_dataset=self._dataset(eval_rows) if eval_rows else None,
            skip_zero_advantage_rows=algorithm.skip_zero_advantage_rows,
            **kwargs,
        )
        run = Path(args.output_dir)
        self.records = Records(run / "records")
        self.metrics_log = MetricsLog(run / "metrics.jsonl")
        self.phases = Phases(self)
        self.pace = ReporterPace(self, int(pace))
        for callback in (StepMetrics(self.metrics_log), _Epoch(self), _OwnStep(self)):
            self.add_callback(callback)
        self.supervision = Supervision(self, supervised, render, max_length)
        self.generator = PhaseGenerator(
            trainer=self,
            sampling=sampling or {},
            grade=grade,
            render=render,
            token_budget=supervised.generation_token_budget,
            max_length=max_length,
        )

    # -- rows ----------------------------------------------------------------------------------------------

    def _dataset(self, rows: Sequence[Row]) -> Dataset:
        return Dataset.from_dict(
            {
                "prompt": [self.render(list(row.prompt)) for row in rows],
                "question_id": [row.question.id for row in rows],
                "expert": [row.expert for row in rows],
            }
        )

    def row(self, question: int, expert: int) -> dict[str, Any]:
        """The data set row of a question (by position) under an expert."""
        return self.train_dataset[question * len(self.experts) + expert]

    def _get_train_sampler(self, dataset: Dataset | None = None) -> QuestionSampler:
        rows_per_batch = self.args.generation_batch_size // self.num_generations
        self.row_sampler = QuestionSampler(
            self.train_dataset if dataset is None else dataset,
            experts=len(self.experts),
            generations=self.num_generations,
            questions_per_batch=rows_per_batch // len(self.experts),
            repeats=self.num_iterations * self.args.steps_per_generation,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )
        return self.row_sampler

    # -- rollouts and grades -------------------------------------------------------------------------------

    def _generate(self, prompts: list):
        with self.phases("rollout"):
            return super()._generate(prompts)

    def _reward(self, completion_ids, question_id, **_: Any) -> list[float | None]:
        """TRL's reward function: grades of this rank's rows, None where the gold can't be parsed."""
        if self._known_grades is not None:
            self._grades, self._known_grades = self._known_grades, None
        else:
            self._grades = self.grade_rows(question_id, completion_ids)
        return [grade.reward for grade in self._grades]

    def grade_rows(self, question_ids: Sequence[str], completion_ids: Sequence[Sequence[int]]) -> list[Grade]:
        with self.phases("grade"):
            return self.grade(
                [
                    (self.questions[question], self.decode(ids), self.finish(ids) == "length")
                    for question, ids in zip(question_ids, completion_ids, strict=True)
                ]
            )

    def reuse_grades(self, grades: list[Grade]) -> None:
        """Let the next reward call of this rank answer with `grades` (of reused rollouts)."""
        self._known_grades = grades

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        graded_before: list[Rollout] = []
        if self.algorithm.dynamic_sampling:
            inputs, graded_before = refill(self, inputs)
        output = super()._generate_and_score_completions(inputs)
        batch = self.batch(self.gather(self._local_rollouts(inputs)))
        self._set_advantages(output, batch)
        self._examine(self.batch(graded_before) if graded_before else batch)
        self._record_rollouts(output, batch, graded_before)
        return output

    def _local_rollouts(self, inputs: list[dict[str, Any]]) -> list[Rollout]:
        """This rank's rows with their grades; `sample` is numbered after the gather."""
        return [
            self.as_rollout(example["question_id"], example["expert"], row, grade)
            for example, row, grade in zip(inputs, self._sampled, self._grades, strict=True)
        ]

    def as_rollout(self, question_id: str, expert: str, row: SampledRow, grade: Grade) -> Rollout:
        return Rollout(
            question_id=question_id,
            expert=expert,
            sample=0,
            prompt_ids=tuple(row.prompt_ids),
            completion_ids=tuple(row.completion_ids),
            text=self.decode(row.completion_ids),
            finish=self.finish(row.completion_ids),
            grade=grade,
        )

    def batch(self, rollouts: Sequence[Rollout]) -> ScoredBatch:
        return collect(self.state.global_step, self.questions, self.prompts, rollouts)

    # -- advantages ----------------------------------------------------------------------------------------

    def _set_advantages(self, output: dict[str, Any], batch: ScoredBatch) -> None:
        """Overwrite TRL's advantages unless the estimator is `grpo`, whose values stay TRL's own."""
        algorithm, local = self.algorithm, output["advantages"]
        if algorithm.advantage != "grpo":
            values = advantages.estimate(
                algorithm.advantage, batch.rewards(), rft_divisor=algorithm.rft_divisor
            )
            start = self.accelerator.process_index * len(local)
            mine = values.flatten()[start : start + len(local)]
            output["advantages"] = mine.to(device=local.device, dtype=local.dtype)
        output["advantages"] = advantages.apply_negative(output["advantages"], algorithm.negative_advantages)
        grades = [r.grade for q in batch.questions for r in q.rollouts]
        reasons = {
            "right": 0,
            "no_answer": 0,
            "truncated": 0,
            "timeout": 0,
            "different": 0,
            "unparsable_gold": 0,
        }
        for grade in grades:
            reasons[grade.reason or "right"] = reasons.get(grade.reason or "right", 0) + 1
        self.record_metrics({f"grade/{name}": count / len(grades) for name, count in reasons.items()})
        self.record_metrics({"questions/mixed": sum(q.mixed for q in batch.questions)})
        tokens = sum(len(r.completion_ids) for q in batch.questions for r in q.rollouts)
        self.record_metrics({"tokens/rollout": tokens})
        for index, expert in enumerate(self.experts if len(self.experts) > 1 else ()):
            self.record_metrics({f"grade/reward/{expert}": batch.rewards()[:, index].nanmean().item()})

    # -- objectives ----------------------------------------------------------------------------------------

    def _examine(self, batch: ScoredBatch) -> None:
        """Run the objectives and plan their supervised examples over ranks and micro-steps."""
        context = StepContext(seed=self.args.seed, step=batch.step, questions=len(batch.questions))
        outcomes = run_waves(self.objectives, batch, context, self._extra_generation)
        for objective in self.objectives:
            outcome, fields = outcomes[objective.name], getattr(objective, "schema", None)
            self.record_metrics({f"objective/{objective.name}/{k}": v for k, v in outcome.metrics.items()})
            if self.accelerator.is_main_process:
                own = {"model_revision": self.model_revision} if fields and "model_revision" in fields else {}
                records = [record | own for record in outcome.records]
                self.records.write(objective.name, batch.step, records, fields)
        self.supervision.plan(
            [example for outcome in outcomes.values() for example in outcome.examples],
            [example for outcome in outcomes.values() for example in outcome.own_step],
        )
        for phase, seconds in self.generator.seconds.items():
            self.phases.seconds[phase] += seconds
        self.record_metrics({f"tokens/{phase}": tokens for phase, tokens in self.generator.tokens.items()})
        self.generator.seconds.clear()
        self.generator.tokens.clear()

    def _extra_generation(self, requests):
        self.phases.show(" + ".join(sorted({request.phase for request in requests})))
        return self.generator(requests)

    # -- the loss ------------------------------------------------------------------------------------------

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        supervised = None
        if self.model.training:
            self.phases.show("update")
            supervised = self.supervision.backward(model, self.micro_step)
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return loss if supervised is None else loss + supervised

    def training_step(self, model, inputs, num_items_in_batch):
        with self.phases("step"):
            loss = super().training_step(model, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            self._record_step()
        return loss

    def _record_step(self) -> None:
        seconds = self.phases.take()
        step = seconds.pop("time/step", 0.0)
        self.record_metrics(seconds | {"time/update": step - sum(seconds.values())})
        if self.supervision.planned:
            self.record_losses("loss")

    def record_losses(self, label: str) -> None:
        """`objective/<name>/<label>`: weight x NLL summed over the examples of all ranks and micro-steps."""
        losses, self.supervision.losses = self.gather([self.supervision.losses]), {}
        for objective in self.objectives:
            total = sum(rank.get(objective.name, 0.0) for rank in losses)
            self.record_metrics({f"objective/{objective.name}/{label}": total})

    # -- records and checkpoints ---------------------------------------------------------------------------

    def _record_rollouts(self, output: dict[str, Any], batch: ScoredBatch, extra: Sequence[Rollout]) -> None:
        values = self.gather(output["advantages"].float().cpu().flatten().tolist())
        if not self.accelerator.is_main_process:
            return
        in_loss = [r for q in batch.questions for r in q.rollouts]
        used = {(r.question_id, r.expert) for r in in_loss}
        left_out = [
            r
            for q in self.batch(extra).questions
            for r in q.rollouts
            if (r.question_id, r.expert) not in used
        ]
        rows = [
            {
                "step": batch.step,
                "question_id": r.question_id,
                "expert": r.expert,
                "sample": r.sample,
                "problem": self.questions[r.question_id].problem,
                "answer": self.questions[r.question_id].answer,
                "text": r.text,
                "tokens": len(r.completion_ids),
                "finish": r.finish,
                "verdict": r.grade.verdict,
                "reason": r.grade.reason,
                "extracted": r.grade.extracted,
                "reward": r.grade.reward,
                "advantage": value,
                "in_policy_loss": value is not None,
            }
            for r, value in [*zip(in_loss, values, strict=True), *((r, None) for r in left_out)]
        ]
        self.records.write("rollouts", batch.step, rows, ROLLOUT_SCHEMA)

    def state_to_save(self) -> dict[str, Any]:
        return {
            "objectives": {o.name: o.state_dict() for o in self.objectives},
            "refill_position": self.refill_stream.position,
        }

    def train(self, resume_from_checkpoint: str | Path | None = None, **kwargs: Any):
        """Train, from a complete checkpoint (`resume_point`) if one is given.

        What a killed run wrote past the checkpoint (metrics, records) is cut back and written again.
        """
        step = checkpoint.step_of(resume_from_checkpoint)
        if resume_from_checkpoint:
            state = checkpoint.read_json(Path(resume_from_checkpoint) / checkpoint.STATE)
            for objective in self.objectives:
                if objective.name in state["objectives"]:
                    objective.load_state_dict(state["objectives"][objective.name])
            self.refill_stream.position = state["refill_position"]
        if self.accelerator.is_main_process:
            self.metrics_log.cut_back(step)
            self.records.cut_back(step)
        self.accelerator.wait_for_everyone()
        folder = str(resume_from_checkpoint) if resume_from_checkpoint else None
        return super().train(resume_from_checkpoint=folder, **kwargs)


def _named(name: str, function: Callable) -> Callable:
    """TRL logs a reward function under its `__name__`; a bound method's can't be set."""

    def named(**kwargs: Any) -> list[float | None]:
        return function(**kwargs)

    named.__name__ = name
    return named
