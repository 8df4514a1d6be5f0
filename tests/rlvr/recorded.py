"""An RLVRTrainer whose engine answers from a table, and that keeps the gradient of its first optimizer step."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import TrainerCallback
from trl import GRPOConfig

from meml_mel.rlvr.options import AlgorithmConfig, PhaseSampling, SupervisedConfig
from meml_mel.rlvr.trainer import RLVRTrainer
from tests import tiny


class RecordedTrainer(RLVRTrainer):
    """Rollouts by global row, extra phases by prompt: what an engine would have sampled, on any rank layout."""

    rollouts: list[list[int]]
    answer: Callable[[str], list[int]]  # prompt text -> completion ids, for the extra phases
    phase: str | None = None

    @contextlib.contextmanager
    def sampling(self, params):
        self.phase = "extra"
        try:
            with super().sampling(params):
                yield
        finally:
            self.phase = None

    def _generate_single_turn(
        self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False
    ):
        if self.phase is None:
            start = self.accelerator.process_index * len(prompt_ids)
            return [list(ids) for ids in self.rollouts[start : start + len(prompt_ids)]], None
        return [self.answer(self.processing_class.decode(ids)) for ids in prompt_ids], None


class KeepGradient(TrainerCallback):
    def __init__(self):
        self.gradient = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.gradient is None:
            self.gradient = {
                n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None
            }


def first_gradient(spec: dict) -> dict[str, torch.Tensor]:
    """The accumulated gradient of the first optimizer step under `spec` (see test_gradient.py)."""
    args = GRPOConfig(
        output_dir=spec["folder"],
        per_device_train_batch_size=spec["micro_batch"],
        gradient_accumulation_steps=spec["accumulation"],
        num_generations=spec["G"],
        max_completion_length=spec["max_completion_length"],
        max_steps=1,
        learning_rate=1e-3,
        max_grad_norm=0.0,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        shuffle_dataset=False,
        loss_type=spec["loss_type"],
        temperature=spec.get("temperature", 1.0),
    )
    model = tiny.model(seed=3)
    if spec["exact"]:
        model = tiny.exact(model)
    module = importlib.import_module(spec["module"])
    objectives = getattr(module, spec["objectives"])()
    trainer = RecordedTrainer(
        model,
        args,
        tiny.rows(spec["Q"], tuple(spec["experts"])),
        tiny.grade_by_length,
        objectives=objectives,
        algorithm=AlgorithmConfig(**spec.get("algorithm", {})),
        sampling={"analysis": PhaseSampling(max_tokens=16), "replay": PhaseSampling(max_tokens=16)},
        supervised=SupervisedConfig(token_budget=spec["token_budget"], generation_token_budget=64),
        processing_class=tiny.tokenizer(),
        logprobs="logits" if spec["exact"] else "fused",
        max_length=spec.get("max_length"),
    )
    trainer.rollouts = spec["rollouts"]
    trainer.answer = module.answer
    keep = KeepGradient()
    trainer.add_callback(keep)
    trainer.train()
    return keep.gradient


def write_gradients(paths: list[str]) -> None:
    """The gradient of each spec to the file that it names; called on every rank of a process group."""
    for path in paths:
        spec = json.loads(Path(path).read_text())
        gradient = first_gradient(spec)
        if torch.distributed.get_rank() == 0:
            torch.save(gradient, spec["out"])
