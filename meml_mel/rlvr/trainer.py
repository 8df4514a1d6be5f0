"""RLVRTrainer: GRPO rollouts, graded; any advantage estimator; supervised objectives beside the policy loss.

One step, in the order of the code below: rows -> rollouts -> grades -> `ScoredBatch` -> advantages and
objectives -> policy backward and supervised backwards -> one optimizer step. With no objective, one expert
and `advantage: grpo` this is TRL's GRPOTrainer, number for number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig

from ..data.question import Question
from ..grading.verdict import Grade
from . import advantages, checkpoint
from .generation import GradeMany, PhaseGenerator
from .losses import TokenExample, deal, pad, weighted_kl, weighted_nll
from .monitor import Phases, ReporterPace, StepMetrics
from .objective import Objective, Outcome, StepContext, SupervisedExample, run_waves
from .options import AlgorithmConfig, PhaseSampling, SupervisedConfig
from .records import ROLLOUT_SCHEMA, MetricsLog, Records
from .refill import refill
from .rollouts import Message, Rollout, ScoredBatch, collect
from .sampler import QuestionSampler, RefillStream
from .saving import CompleteCheckpoints
from .trl_adapter import SampledRow, TRLAdapter, check_skip


@dataclass(frozen=True, slots=True)
class Row:
    """One (question, expert) with its solve prompt as messages; `expert` is "" where there is only one."""

    question: Question
    expert: str
    prompt: tuple[Message, ...]


def as_messages(messages: list[Message]) -> list[Message]:
    return messages


class _OwnStep(TrainerCallback):
    """Runs `own_step` examples in an optimizer step of their own, after the RL one."""

    def __init__(self, trainer: RLVRTrainer):
        self.trainer = trainer

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.trainer.take_own_step()


class _Epoch(TrainerCallback):
    """Tells the sampler its epoch: accelerate's loaders don't reach it after a resume inside an epoch."""

    def __init__(self, trainer: RLVRTrainer):
        self.trainer = trainer

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:
        if self.trainer.row_sampler is not None:
            self.trainer.row_sampler.set_epoch(int((state.epoch or 0) + 1e-6))


@dataclass
class _Step:
    """What the current generation left for its micro-steps: `plan[micro_step]` -> sub-batches of this rank."""

    plan: list[list[tuple[TokenExample, ...]]] = field(default_factory=list)
    own_plan: list[tuple[TokenExample, ...]] = field(default_factory=list)
    losses: dict[str, float] = field(default_factory=dict)


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
        self.experts = _experts(rows)
        self.rows_by_key = {(row.question.id, row.expert): row for row in [*rows, *eval_rows]}
        self.questions = {row.question.id: row.question for row in [*rows, *eval_rows]}
        _check(args, algorithm, objectives, rows, len(self.experts))
        self.grade = grade
        self.algorithm = algorithm
        self.objectives = list(objectives)
        self.render = render
        self.max_length = max_length
        self.supervised = supervised
        self.config_digest = config_digest
        self.model_revision = model_revision
        self.row_sampler: QuestionSampler | None = None
        self.question_index = {row.question.id: i // len(self.experts) for i, row in enumerate(rows)}
        self.refill_stream = RefillStream(len(rows) // len(self.experts), args.seed)
        self._grades: list[Grade] = []
        self._known_grades: list[Grade] | None = None
        self._current = _Step()

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
        prompts = {key: row.prompt for key, row in self.rows_by_key.items()}
        return collect(self.state.global_step, self.questions, prompts, rollouts)

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
        self._current = _Step()
        if not self.objectives:
            return
        context = StepContext(seed=self.args.seed, step=batch.step, questions=len(batch.questions))
        outcomes = run_waves(self.objectives, batch, context, self._extra_generation)
        for name, outcome in outcomes.items():
            self.record_metrics({f"objective/{name}/{key}": value for key, value in outcome.metrics.items()})
            if self.accelerator.is_main_process:
                objective = next(o for o in self.objectives if o.name == name)
                fields = getattr(objective, "schema", None)
                own = {"model_revision": self.model_revision} if fields and "model_revision" in fields else {}
                self.records.write(name, batch.step, [record | own for record in outcome.records], fields)
        self._current.plan = self._plan(outcomes, own_step=False, micro_steps=self.args.steps_per_generation)
        self._current.own_plan = self._plan(outcomes, own_step=True, micro_steps=1)[0]
        for phase, seconds in self.generator.seconds.items():
            self.phases.seconds[phase] += seconds
        self.record_metrics({f"tokens/{phase}": tokens for phase, tokens in self.generator.tokens.items()})
        self.generator.seconds.clear()
        self.generator.tokens.clear()

    def _extra_generation(self, requests):
        self.phases.show(" + ".join(sorted({request.phase for request in requests})))
        return self.generator(requests)

    def _plan(self, outcomes: dict[str, Outcome], own_step: bool, micro_steps: int) -> list[list[Any]]:
        """This rank's sub-batches per micro-step; empty lists where the step has no example on any rank."""
        wanted = [e for o in outcomes.values() for e in (o.own_step if own_step else o.examples)]
        examples = self._tokenized(wanted)
        if not examples:
            return [[] for _ in range(micro_steps)]
        dummy = TokenExample(
            prompt_ids=examples[0].prompt_ids[:1], target_ids=examples[0].target_ids[:1], weight=0.0
        )
        plan = deal(
            examples, self.accelerator.num_processes, micro_steps, self.supervised.token_budget, dummy
        )
        self.record_metrics({"tokens/supervised": sum(len(e.target_ids) for e in examples)})
        return plan[self.accelerator.process_index]

    def _tokenized(self, wanted: Sequence[SupervisedExample]) -> list[TokenExample]:
        """Examples in token ids; unfinished targets and rows longer than the context are left out and counted."""
        if not wanted:
            return []
        prompts = self.tokenize_prompts([self.render(list(e.prompt)) for e in wanted])
        teachers = [e for e in wanted if e.teacher_prompt is not None]
        teacher_ids = dict(
            zip(
                map(id, teachers),
                self.tokenize_prompts([self.render(list(e.teacher_prompt or ())) for e in teachers]),
            )
        )
        examples, unfinished, too_long = [], 0, 0
        for example, prompt_ids in zip(wanted, prompts, strict=True):
            if example.target_ids is not None:
                target = list(example.target_ids)
                if not target or target[-1] not in self.eos_token_ids:
                    unfinished += 1
                    continue
            else:
                target = self.processing_class(text=example.target_text, add_special_tokens=False)[
                    "input_ids"
                ]
                target = [*target, self.processing_class.eos_token_id]
            teacher = tuple(teacher_ids[id(example)]) if example.teacher_prompt is not None else None
            tokens = TokenExample(
                tuple(prompt_ids), tuple(target), example.weight, teacher, example.objective
            )
            if self.max_length is not None and tokens.length > self.max_length:
                too_long += 1
                continue
            examples.append(tokens)
        self.record_metrics({"supervised/unfinished": unfinished, "supervised/too_long": too_long})
        return examples

    def score(self, items: Sequence[tuple[tuple[Message, ...], tuple[int, ...]]]) -> list[float]:
        """Mean log-probability per token of each (prompt, target ids) under the policy now; collective."""
        if not items:
            return []
        prompts = self.tokenize_prompts([self.render(list(prompt)) for prompt, _ in items])
        examples = [TokenExample(tuple(p), tuple(t), 0.0) for p, (_, t) in zip(prompts, items, strict=True)]
        plan = deal(examples, self.accelerator.num_processes, 1, self.supervised.token_budget, examples[0])
        mine: list[tuple[TokenExample, float]] = []
        self.model.eval()
        with torch.no_grad():
            for sub_batch in plan[self.accelerator.process_index][0]:
                batch = pad(sub_batch, self.processing_class.pad_token_id, self.accelerator.device)
                _, nll = weighted_nll(self.next_token_logps(self.model_wrapped, batch), batch)
                mine += [(e, -value) for e, value in zip(sub_batch, nll.tolist(), strict=True)]
        self.model.train()
        scores = dict(self.gather(mine))
        return [scores[example] for example in examples]

    # -- the loss ------------------------------------------------------------------------------------------

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        supervised = None
        if self.model.training:
            self.phases.show("update")
            plan = self._current.plan
            if plan and plan[self.micro_step]:
                supervised = self._supervised(model, plan[self.micro_step], sync_last=False)
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return loss if supervised is None else loss + supervised

    def _supervised(self, model, plan: list[tuple[TokenExample, ...]], sync_last: bool) -> torch.Tensor:
        """Backward each sub-batch apart (activations never add up) and return the sum for the log, detached.

        The weights are final; only DDP's mean over ranks is cancelled. Gradients are not synchronised here
        but in the policy's backward, which follows on every rank (`sync_last` where none does). DeepSpeed
        steps its engine in every backward at the boundary (accelerate/utils/deepspeed.py), so there the
        attached sum is returned and goes into the policy's backward.
        """
        deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
        total = torch.zeros((), device=self.accelerator.device)
        for index, sub_batch in enumerate(plan):
            synchronise = sync_last and index == len(plan) - 1
            with torch.enable_grad():
                if synchronise or deepspeed:
                    loss = self._sub_batch_loss(model, sub_batch)
                else:
                    with self.accelerator.no_sync(model):
                        loss = self._sub_batch_loss(model, sub_batch)
                        self.accelerator.backward(loss)
                        loss = loss.detach()
                if synchronise and not deepspeed:
                    self.accelerator.backward(loss)
                    loss = loss.detach()
            total = total + loss
        return total

    def _sub_batch_loss(self, model, sub_batch: tuple[TokenExample, ...]) -> torch.Tensor:
        batch = pad(sub_batch, self.processing_class.pad_token_id, self.accelerator.device)
        if sub_batch[0].teacher_ids is None:
            loss, values = weighted_nll(self.next_token_logps(model, batch), batch)
        else:
            teacher = pad(
                sub_batch, self.processing_class.pad_token_id, self.accelerator.device, teacher=True
            )
            with torch.no_grad():
                teacher_logits = self.target_logits(model, teacher)
            loss, values = weighted_kl(self.target_logits(model, batch), teacher_logits, batch)
        for example, value in zip(sub_batch, values.tolist(), strict=True):
            if example.objective:
                losses = self._current.losses
                losses[example.objective] = losses.get(example.objective, 0.0) + example.weight * value
        return loss * self.accelerator.num_processes

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
        if self._current.plan:
            self._record_losses("loss")

    def _record_losses(self, label: str) -> None:
        """`objective/<name>/<label>`: weight x NLL summed over the examples of all ranks and micro-steps."""
        losses, self._current.losses = self.gather([self._current.losses]), {}
        for name in self._names:
            self.record_metrics({f"objective/{name}/{label}": sum(rank.get(name, 0.0) for rank in losses)})

    @property
    def _names(self) -> list[str]:
        return [objective.name for objective in self.objectives]

    def take_own_step(self) -> None:
        """An optimizer step of its own on the `own_step` examples, with clipping and the current learning rate."""
        plan, self._current.own_plan = self._current.own_plan, []
        if not plan:
            return
        model = self.model_wrapped
        model.train()
        self._supervised(model, plan, sync_last=True)
        if self.args.max_grad_norm:
            self.accelerator.clip_grad_norm_(model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        model.zero_grad()
        self._record_losses("own_step_loss")

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


def _experts(rows: Sequence[Row]) -> tuple[str, ...]:
    """The experts of the first question; every other question must have the same, in the same order."""
    if not rows:
        raise ValueError("no rows to train on: every question was left out, see the data report")
    first = rows[0].question.id
    experts = []
    for row in rows:
        if row.question.id != first:
            break
        experts.append(row.expert)
    if len(set(experts)) != len(experts):
        raise ValueError(f"question {first!r} has an expert twice: {experts}")
    for start in range(0, len(rows), len(experts)):
        group = rows[start : start + len(experts)]
        if [r.expert for r in group] != experts or len({r.question.id for r in group}) != 1:
            raise ValueError(
                f"rows must be question-major with experts {experts} for every question; question "
                f"{group[0].question.id!r} has {[r.expert for r in group]}"
            )
    if len({r.question.id for r in rows}) != len(rows) // len(experts):
        raise ValueError("question ids are not unique: two questions share one")
    return tuple(experts)


def _check(
    args: GRPOConfig,
    algorithm: AlgorithmConfig,
    objectives: Sequence[Objective],
    rows: Sequence[Row],
    experts: int,
) -> None:
    """Refuse contradictory settings (DESIGN: bad configuration fails before compute is spent)."""
    # What the user wrote for scale_rewards is checked by the configuration; here TRL's default can't be told from it.
    advantages.validate(
        algorithm.advantage,
        None,
        args.loss_type,
        negative_advantages=algorithm.negative_advantages,
        rft_divisor=algorithm.rft_divisor,
        updates_per_generation=max(1, args.steps_per_generation // args.gradient_accumulation_steps)
        * args.num_iterations,
    )
    if algorithm.skip_zero_advantage_rows:
        check_skip(args)
    groups = args.generation_batch_size // args.num_generations
    if groups % experts:
        raise ValueError(
            f"one generation holds {groups} groups of {args.num_generations}, not a multiple of {experts} experts: "
            f"make per_device_train_batch_size x processes x steps_per_generation a multiple of "
            f"{experts * args.num_generations}"
        )
    if objectives and args.steps_per_generation != args.gradient_accumulation_steps:
        raise ValueError(
            f"with objectives one generation serves one optimizer step: steps_per_generation="
            f"{args.steps_per_generation} must equal gradient_accumulation_steps={args.gradient_accumulation_steps} "
            "(leave steps_per_generation unset)"
        )
    serves = args.steps_per_generation * args.num_iterations
    if args.save_strategy == "steps" and (int(args.save_steps) * args.gradient_accumulation_steps) % serves:
        raise ValueError(
            f"save_steps={args.save_steps} falls inside a generation, which serves "
            f"{serves / args.gradient_accumulation_steps:g} optimizer steps: make it a multiple of that"
        )
    names = [objective.name for objective in objectives]
    if len(set(names)) != len(names):
        raise ValueError(f"an objective is given twice: {names}")
