"""Supervised examples of the current generation: from what objectives answer to gradients.

`sum_i w_i * tokenmeanNLL_i` over the global optimizer step (docs/training.md, the whole step), as separate,
token-budgeted backwards beside the policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from accelerate.utils import DistributedType

from .losses import SubBatch, TokenExample, deal, pad, weighted_kl, weighted_nll
from .objective import SupervisedExample
from .options import SupervisedConfig
from .rollouts import Message
from .trl_adapter import TRLAdapter


class Supervision:
    """Plans this rank's share of the step's examples and runs it.

    Args:
        render: messages to a TRL prompt.
        max_length: the model's context in tokens; longer examples are left out and counted.
    """

    def __init__(
        self,
        trainer: TRLAdapter,
        config: SupervisedConfig,
        render: Callable[[list[Message]], Any],
        max_length: int | None,
    ):
        self.trainer = trainer
        self.config = config
        self.render = render
        self.max_length = max_length
        self.losses: dict[str, float] = {}  # objective -> sum of weight x NLL, this rank, this optimizer step
        self._plan: list[list[SubBatch]] = []  # micro-step -> sub-batches of this rank
        self._own_plan: list[SubBatch] = []

    def plan(self, examples: Iterable[SupervisedExample], own_step: Iterable[SupervisedExample]) -> None:
        """Tokenise and deal the generation's examples; every rank brings the same ones."""
        self._plan = self._deal(self._tokenized(list(examples)), self.trainer.args.steps_per_generation)
        self._own_plan = self._deal(self._tokenized(list(own_step)), 1)[0]

    @property
    def planned(self) -> bool:
        """Whether this generation has an example, on any rank."""
        return any(self._plan)

    def _deal(self, examples: list[TokenExample], micro_steps: int) -> list[list[SubBatch]]:
        if not examples:
            return [[] for _ in range(micro_steps)]
        dummy = TokenExample(examples[0].prompt_ids[:1], examples[0].target_ids[:1], weight=0.0)
        accelerator = self.trainer.accelerator
        plan = deal(examples, accelerator.num_processes, micro_steps, self.config.token_budget, dummy)
        self.trainer.record_metrics({"tokens/supervised": sum(len(e.target_ids) for e in examples)})
        return plan[accelerator.process_index]

    def _tokenized(self, wanted: Sequence[SupervisedExample]) -> list[TokenExample]:
        """Examples in token ids; unfinished targets and rows longer than the context are left out and counted."""
        if not wanted:
            return []
        prompts = self.trainer.tokenize_prompts([self.render(list(e.prompt)) for e in wanted])
        teachers = [e for e in wanted if e.teacher_prompt is not None]
        teacher_ids = dict(
            zip(
                map(id, teachers),
                self.trainer.tokenize_prompts([self.render(list(e.teacher_prompt or ())) for e in teachers]),
            )
        )
        examples, unfinished, too_long = [], 0, 0
        for example, prompt_ids in zip(wanted, prompts, strict=True):
            if example.target_ids is not None:
                target = list(example.target_ids)
                if not target or target[-1] not in self.trainer.eos_token_ids:
                    unfinished += 1
                    continue
            else:
                target = self.trainer.processing_class(text=example.target_text, add_special_tokens=False)[
                    "input_ids"
                ]
                target = [*target, self.trainer.processing_class.eos_token_id]
            teacher = tuple(teacher_ids[id(example)]) if example.teacher_prompt is not None else None
            tokens = TokenExample(
                tuple(prompt_ids), tuple(target), example.weight, teacher, example.objective
            )
            if self.max_length is not None and tokens.length > self.max_length:
                too_long += 1
                continue
            examples.append(tokens)
        self.trainer.record_metrics({"supervised/unfinished": unfinished, "supervised/too_long": too_long})
        return examples

    def backward(self, model: torch.nn.Module, micro_step: int) -> torch.Tensor | None:
        """Run the micro-step's sub-batches; what to add to the policy's loss, or None where there is nothing.

        It runs before the policy's backward, which follows on every rank and synchronises the gradients of
        both.
        """
        if not self._plan or not self._plan[micro_step]:
            return None
        return self._run(model, self._plan[micro_step], synchronise=False)

    def own_step(self) -> bool:
        """An optimizer step of its own on the `own_step` examples, with clipping and the current learning rate."""
        plan, self._own_plan = self._own_plan, []
        if not plan:
            return False
        trainer = self.trainer
        model = trainer.model_wrapped
        model.train()
        loss = self._run(model, plan, synchronise=True)
        if self._deepspeed:
            trainer.accelerator.backward(loss)
        elif trainer.args.max_grad_norm:
            trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        model.zero_grad()
        return True

    @property
    def _deepspeed(self) -> bool:
        return self.trainer.accelerator.distributed_type == DistributedType.DEEPSPEED

    def _run(self, model: torch.nn.Module, plan: Sequence[SubBatch], synchronise: bool) -> torch.Tensor:
        """Backward each sub-batch apart, so that activations never add up; their sum, detached, for the log.

        Weights are final; only DDP's mean over ranks is cancelled. Gradients are synchronised in the last
        backward where `synchronise` says so. DeepSpeed steps its engine in every backward at the boundary
        (accelerate/utils/deepspeed.py), so there nothing is backwarded and the sum comes back attached.
        """
        accelerator = self.trainer.accelerator
        total = torch.zeros((), device=accelerator.device)
        for index, sub_batch in enumerate(plan):
            if self._deepspeed:
                total = total + self._loss(model, sub_batch)
            elif synchronise and index == len(plan) - 1:
                loss = self._loss(model, sub_batch)
                accelerator.backward(loss)
                total = total + loss.detach()
            else:
                with accelerator.no_sync(model):
                    loss = self._loss(model, sub_batch)
                    accelerator.backward(loss)
                total = total + loss.detach()
        return total

    def _loss(self, model: torch.nn.Module, sub_batch: SubBatch) -> torch.Tensor:
        trainer = self.trainer
        batch = self._padded(sub_batch)
        if sub_batch[0].teacher_ids is None:
            loss, values = weighted_nll(trainer.next_token_logps(model, batch), batch)
        else:
            with torch.no_grad():
                teacher = trainer.target_logits(model, self._padded(sub_batch, teacher=True))
            loss, values = weighted_kl(trainer.target_logits(model, batch), teacher, batch)
        for example, value in zip(sub_batch, values.tolist(), strict=True):
            if example.objective:
                self.losses[example.objective] = (
                    self.losses.get(example.objective, 0.0) + example.weight * value
                )
        return loss * trainer.accelerator.num_processes

    def _padded(self, sub_batch: SubBatch, teacher: bool = False) -> Any:
        trainer = self.trainer
        return pad(sub_batch, trainer.processing_class.pad_token_id, trainer.accelerator.device, teacher)

    def score(self, items: Sequence[tuple[tuple[Message, ...], tuple[int, ...]]]) -> list[float]:
        """Mean log-probability per token of each (prompt, target ids) under the policy now; collective."""
        if not items:
            return []
        trainer = self.trainer
        prompts = trainer.tokenize_prompts([self.render(list(prompt)) for prompt, _ in items])
        examples = [TokenExample(tuple(p), tuple(t), 0.0) for p, (_, t) in zip(prompts, items, strict=True)]
        plan = deal(examples, trainer.accelerator.num_processes, 1, self.config.token_budget, examples[0])
        mine: list[tuple[TokenExample, float]] = []
        trainer.model.eval()
        with torch.no_grad():
            for sub_batch in plan[trainer.accelerator.process_index][0]:
                batch = self._padded(sub_batch)
                _, nll = weighted_nll(trainer.next_token_logps(trainer.model_wrapped, batch), batch)
                mine += [(e, -value) for e, value in zip(sub_batch, nll.tolist(), strict=True)]
        trainer.model.train()
        scores = dict(trainer.gather(mine))
        return [scores[example] for example in examples]
