"""Every touch of TRL-private API, in one file: `RLVRTrainer` builds on the hooks named here.

Tested against the TRL range of pyproject.toml; `tests/rlvr/test_trl_adapter.py` compares the signatures of
everything overridden or called here and fails loudly on a TRL that changed one.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer

from .losses import Padded, target_logits
from .options import PhaseSampling
from .rollouts import Finish


@dataclass(frozen=True, slots=True)
class SampledRow:
    """One sampled response in token ids. `logps`: the engine's own log-probabilities, where it gives them."""

    prompt_ids: list[int]
    completion_ids: list[int]
    completion: Any  # as TRL decoded it: text, or [{"role": "assistant", ...}]
    logps: list[float] | None


@contextlib.contextmanager
def _both_heads() -> Iterator[None]:
    """While TRL builds its trainer, give the model a second fused head at temperature 1.

    TRL's fused head closes over the sampling temperature, so the likelihood of a supervised target needs a
    head of its own, and the two must be made from the same original forward.
    """
    add_fused_lm_head = grpo_trainer.add_fused_lm_head

    def add_both(model, temperature: float = 1.0, **kwargs) -> None:
        original = model.forward
        add_fused_lm_head(model, temperature=1.0, **kwargs)
        unit = model.forward
        model.forward = original
        add_fused_lm_head(model, temperature=temperature, **kwargs)
        sampling = model.forward

        # `generate` validates its keyword arguments against the forward's signature
        @functools.wraps(type(model).forward)
        def forward(self, *args, unit_temperature: bool = False, **kwargs):
            return (unit if unit_temperature else sampling)(*args, **kwargs)

        model.forward = types.MethodType(forward, model)

    grpo_trainer.add_fused_lm_head = add_both
    try:
        yield
    finally:
        grpo_trainer.add_fused_lm_head = add_fused_lm_head


class TRLAdapter(GRPOTrainer):
    """`GRPOTrainer` with the hooks that RLVR objectives need.

    Args (beyond GRPOTrainer's):
        logprobs: "fused" is TRL's chunked head (float32 log-probabilities, no full logits in memory);
            "logits" materialises the logits and keeps the model's dtype: the float64 reference.
        skip_zero_advantage_rows: leave rows of zero advantage out of the policy forward and backward. The
            loss keeps its denominators and every rank still runs one forward per micro-step.
    """

    def __init__(
        self,
        *args: Any,
        logprobs: Literal["fused", "logits"] = "fused",
        skip_zero_advantage_rows: bool = False,
        **kwargs: Any,
    ):
        with _both_heads():
            super().__init__(*args, **kwargs)
        self.logprobs = logprobs
        self.skip_zero_advantage_rows = skip_zero_advantage_rows
        self._sampled: list[SampledRow] = []
        self._reuse: list[SampledRow] | None = None

    # -- sampling ------------------------------------------------------------------------------------------

    def _generate(self, prompts: list):
        """TRL's rollout phase; keeps what was sampled, and answers with recorded rows where they are set."""
        if self._reuse is not None:
            rows, self._reuse = self._reuse, None
            logps = [row.logps for row in rows] if rows[0].logps is not None else None
            out = (
                [row.prompt_ids for row in rows],
                [row.completion_ids for row in rows],
                None,
                [row.completion for row in rows],
                logps,
                {},
                None,
                [],
            )
        else:
            out = super()._generate(prompts)
        prompt_ids, completion_ids, _, completions, logps = out[:5]
        self._sampled = [
            SampledRow(list(p), list(c), completion, list(logp) if logp is not None else None)
            for p, c, completion, logp in zip(
                prompt_ids, completion_ids, completions, logps or [None] * len(prompt_ids), strict=True
            )
        ]
        return out

    def sample_rollouts(self, prompts: list) -> list[SampledRow]:
        """Sample one response for each prompt of this rank, with the rollout phase's parameters."""
        self._generate(prompts)
        return self._sampled

    def reuse_rollouts(self, rows: list[SampledRow]) -> None:
        """Let the next rollout phase of this rank answer with `rows` instead of sampling."""
        self._reuse = rows

    def tokenize_prompts(self, prompts: list) -> list[list[int]]:
        """Token ids of prompts (messages or text), exactly as the rollout phase makes them."""
        return [list(ids) for ids in self._tokenize_prompts(prompts)[0]] if prompts else []

    def sample(self, prompt_ids: list[list[int]]) -> list[list[int]]:
        """One completion for each prompt of this rank; every rank must bring the same number of rows."""
        completion_ids, _ = self._generate_single_turn(prompt_ids, None, {}, 1)
        return [list(ids) for ids in completion_ids]

    @contextlib.contextmanager
    def sampling(self, params: PhaseSampling) -> Iterator[None]:
        """Sample with a phase's parameters inside, and restore the rollout phase's afterwards."""
        if self.use_vllm:
            engine, names = self.vllm_generation, ("temperature", "top_p", "top_k", "max_completion_length")
            values = (params.temperature, params.top_p, params.top_k, params.max_tokens)
            kept = [getattr(engine, name) for name in names]
            for name, value in zip(names, values, strict=True):
                setattr(engine, name, value)
            try:
                yield
            finally:
                for name, value in zip(names, kept, strict=True):
                    setattr(engine, name, value)
            return
        config, kwargs = self.generation_config, self.generation_kwargs
        changes = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "max_new_tokens": params.max_tokens,
            "do_sample": params.temperature > 0,
        }
        if params.temperature == 0:
            changes |= {"temperature": None, "top_p": None, "top_k": None}
        self.generation_kwargs = kwargs | changes
        self.generation_config = type(config)(**self.generation_kwargs, disable_compile=True)
        try:
            yield
        finally:
            self.generation_config, self.generation_kwargs = config, kwargs

    def finish(self, completion_ids: Sequence[int]) -> Finish:
        """ "stop" where the completion ended with an end token, "length" where it was cut."""
        return "stop" if completion_ids and completion_ids[-1] in self.eos_token_ids else "length"

    def decode(self, completion_ids: Sequence[int]) -> str:
        return self.processing_class.decode(completion_ids, skip_special_tokens=True)

    def gather(self, items: list) -> list:
        """All ranks' items, in rank order, on every rank."""
        return gather_object(items)

    # -- log-probabilities ---------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(
        self,
        model,
        input_ids,
        attention_mask,
        logits_to_keep,
        batch_size=None,
        compute_entropy=False,
        **kwargs,
    ):
        if self.logprobs == "fused":
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, **kwargs
            )
        logits = model(input_ids=input_ids, attention_mask=attention_mask).logits[:, -logits_to_keep - 1 : -1]
        logps = (logits / self.temperature).log_softmax(-1)
        chosen = logps.gather(-1, input_ids[:, -logits_to_keep:, None]).squeeze(-1)
        return chosen, -(logps.exp() * logps).sum(-1).detach(), None

    def next_token_logps(self, model: torch.nn.Module, batch: Padded) -> torch.Tensor:
        """Log-probabilities (B, L-1) of each next token at temperature 1, whatever rollouts sample at."""
        if self.logprobs == "logits":
            logps = (
                model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
                .logits[:, :-1]
                .log_softmax(-1)
            )
            return logps.gather(-1, batch.input_ids[:, 1:, None]).squeeze(-1)
        labels = batch.input_ids.clone()
        labels[:, 1:].masked_fill_(~batch.target_mask, -100)
        labels[:, 0] = -100
        with self.accelerator.autocast():
            return model(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                labels=labels,
                fused_lm_head=True,
                unit_temperature=True,
            ).log_probs

    def target_logits(self, model: torch.nn.Module, batch: Padded) -> torch.Tensor:
        """The full logits (N, V) at a sub-batch's target positions, for the KL form."""
        with self.accelerator.autocast():
            return target_logits(
                model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits, batch
            )

    # -- the policy loss -----------------------------------------------------------------------------------

    def _compute_loss(self, model, inputs):
        if not (self.skip_zero_advantage_rows and self.model.training):
            return super()._compute_loss(model, inputs)
        advantages = inputs["advantages"]
        rows = advantages != 0 if advantages.dim() == 1 else (advantages != 0).any(-1)
        if rows.all():
            return super()._compute_loss(model, inputs)
        if not rows.any():
            rows[0] = (
                True  # every rank runs a forward and a backward, and a zero advantage gives a zero gradient
            )
        kept = {
            key: value[rows]
            if isinstance(value, torch.Tensor) and value.dim() and len(value) == len(rows)
            else value
            for key, value in inputs.items()
        }
        loss = super()._compute_loss(model, _trim(kept))
        # grpo, dr_grpo, luspo and sapo divide by the number of rows; dapo, cispo and vespo by a token count
        # that spans the generation batch.
        by_rows = self.loss_type in ("grpo", "dr_grpo", "luspo", "sapo")
        return loss * (rows.sum() / len(rows)) if by_rows else loss

    # -- accumulation --------------------------------------------------------------------------------------

    @property
    def micro_step(self) -> int:
        """Which slice of the generation batch this micro-step consumes, from 0."""
        return self._step % self.args.steps_per_generation

    def record_metrics(self, metrics: dict[str, float]) -> None:
        """Log values of this step beside TRL's; they are averaged over a logging window."""
        for name, value in metrics.items():
            self._metrics["train"][name].append(float(value))


def _trim(inputs: dict[str, Any]) -> dict[str, Any]:
    """Drop the padding columns that no remaining row uses: prompts are padded left, completions right."""
    prompt_start = int(inputs["prompt_mask"].any(0).int().argmax())
    used = inputs["completion_mask"].any(0).nonzero()
    completion_end = int(used.max()) + 1 if len(used) else 1
    width = inputs["completion_mask"].size(1)
    trimmed = dict(inputs)
    for key in ("prompt_ids", "prompt_mask"):
        trimmed[key] = inputs[key][:, prompt_start:]
    for key, value in inputs.items():
        if key.startswith("prompt"):
            continue
        if isinstance(value, torch.Tensor) and value.dim() == 2 and value.size(1) == width:
            trimmed[key] = value[:, :completion_end]
    return trimmed


def check_skip(args: GRPOConfig) -> None:
    """Refuse skipping zero-advantage rows where such a row still has a gradient, or shares a denominator."""
    reasons = []
    if args.beta != 0.0:
        reasons.append(f"beta={args.beta} (the KL term acts on every row)")
    if args.entropy_coef != 0.0 or args.use_adaptive_entropy:
        reasons.append("an entropy bonus (it acts on every row)")
    if args.loss_type == "bnpo":
        reasons.append("loss_type=bnpo (its denominator is the micro-batch's own token count)")
    if args.top_entropy_quantile < 1.0:
        reasons.append("top_entropy_quantile < 1 (the threshold is taken over the micro-batch)")
    if reasons:
        raise ValueError(
            "algorithm.skip_zero_advantage_rows cannot go with " + ", ".join(reasons) + ": set it to false"
        )
