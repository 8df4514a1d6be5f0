"""Sample from a saved model on this machine: messages in, texts out. For looking at a model, not for training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from meml_mel.prompts.format import PromptFormat, decide_format, end_token_ids


@dataclass(frozen=True)
class Sample:
    """One response: its text without special tokens, its length in tokens, and whether it was cut."""

    text: str
    tokens: int
    truncated: bool


class Sampler:
    """A model in bfloat16 (twice as fast as float32 on CPUs with AMX; `dtype` says otherwise)."""

    def __init__(self, folder: str | Path, dtype: str = "bfloat16", seed: int = 0):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.tokenizer.padding_side = "left"
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        self.format: PromptFormat = decide_format(self.tokenizer, model_name=str(folder))
        self.ends = list(end_token_ids(self.tokenizer, self.model.config, self.model.generation_config))
        torch.manual_seed(seed)

    def __call__(
        self,
        prompts: Sequence[Sequence[dict[str, str]]],
        max_new_tokens: int,
        temperature: float = 1.0,
        batch: int = 32,
    ) -> list[Sample]:
        """One sample a prompt, in order; temperature 0 is greedy. Prompts of like length share a batch."""
        ids = [list(self.format.ids(prompt)) for prompt in prompts]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        samples: dict[int, Sample] = {}
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            texts = self._generate([ids[i] for i in chosen], max_new_tokens, temperature)
            samples |= dict(zip(chosen, texts, strict=True))
        return [samples[i] for i in range(len(ids))]

    @torch.inference_mode()
    def _generate(self, ids: list[list[int]], max_new_tokens: int, temperature: float) -> list[Sample]:
        padded = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt")
        how = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
        out = self.model.generate(
            **padded,
            max_new_tokens=max_new_tokens,
            eos_token_id=self.ends,
            pad_token_id=self.tokenizer.pad_token_id,
            top_k=0,
            top_p=1.0,
            **how,
        )
        samples = []
        for row in out[:, padded["input_ids"].shape[1] :].tolist():
            end = next((i for i, token in enumerate(row) if token in self.ends), None)
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            samples.append(Sample(text, len(row) if end is None else end + 1, end is None))
        return samples
