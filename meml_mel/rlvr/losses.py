"""Supervised examples to gradients: `sum_i w_i * tokenmeanNLL_i` over the global optimizer step.

The weights are final (docs/training.md, the whole step). This file turns them into sub-batches that fit a token
budget, dealt over ranks and micro-steps so that every rank runs the same number of forwards, and computes the
loss of one sub-batch from per-token log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TokenExample:
    """A supervised example in token ids; `teacher_ids` is the prompt of the detached KL teacher."""

    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    weight: float
    teacher_ids: tuple[int, ...] | None = None
    objective: str = ""  # whose metric its loss counts for; "" is the dummy's

    @property
    def length(self) -> int:
        longest = max(len(self.prompt_ids), len(self.teacher_ids or ()))
        return longest + len(self.target_ids)


SubBatch = tuple[TokenExample, ...]


def sub_batches(examples: Sequence[TokenExample], token_budget: int) -> list[SubBatch]:
    """Group by length so that rows x longest row stays within `token_budget` (one row always fits).

    KL examples are kept apart from NLL ones: they need a second forward and the full distribution.
    """
    batches: list[SubBatch] = []
    for kind in (False, True):
        rows: list[TokenExample] = []
        longest = 0
        for example in sorted((e for e in examples if bool(e.teacher_ids) == kind), key=lambda e: -e.length):
            longest = max(longest, example.length)
            if rows and (len(rows) + 1) * longest > token_budget:
                batches.append(tuple(rows))
                rows, longest = [], example.length
            rows.append(example)
        if rows:
            batches.append(tuple(rows))
    return batches


def deal(
    examples: Sequence[TokenExample], ranks: int, micro_steps: int, token_budget: int, dummy: TokenExample
) -> list[list[list[SubBatch]]]:
    """Deal examples to `plan[rank][micro_step] -> sub-batches`, by tokens, the same plan on every rank.

    Each (rank, micro-step) slot gets the next longest example while it is the emptiest, then splits its own
    examples by the budget. Within a micro-step all ranks get the same number of sub-batches, filled up with
    the zero-weight `dummy`: a forward may be a collective (FSDP, ZeRO-3, DDP's buffers), so its count must
    not depend on the data.
    """
    slots: list[list[TokenExample]] = [[] for _ in range(ranks * micro_steps)]
    loads = [0] * len(slots)
    for example in sorted(examples, key=lambda e: -e.length):
        slot = loads.index(min(loads))
        slots[slot].append(example)
        loads[slot] += example.length
    plan = [
        # Consecutive slots are different ranks, so a few examples spread over ranks before micro-steps.
        [sub_batches(slots[step * ranks + rank], token_budget) for step in range(micro_steps)]
        for rank in range(ranks)
    ]
    for step in range(micro_steps):
        # KL sub-batches run one forward more, so both kinds are levelled.
        for kind in (False, True):
            most = max(sum(bool(b[0].teacher_ids) == kind for b in plan[rank][step]) for rank in range(ranks))
            filler = (
                dummy if not kind else TokenExample(dummy.prompt_ids, dummy.target_ids, 0.0, dummy.prompt_ids)
            )
            for rank in range(ranks):
                have = sum(bool(b[0].teacher_ids) == kind for b in plan[rank][step])
                plan[rank][step].extend([(filler,)] * (most - have))
        for rank in range(ranks):
            plan[rank][step].sort(key=lambda batch: bool(batch[0].teacher_ids))
    return plan


@dataclass(frozen=True, slots=True)
class Padded:
    """One sub-batch as tensors, padded on the right, so that positions count from each row's first token.

    input_ids, attention_mask: (B, L); target_mask: (B, L-1), true where position t predicts a target token
    t+1; weights: (B,), float64.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    target_mask: torch.Tensor
    weights: torch.Tensor


def pad(batch: SubBatch, pad_id: int, device: torch.device, teacher: bool = False) -> Padded:
    """Lay out prompt + target rows; with `teacher` under the teacher's prompt."""
    rows = [((e.teacher_ids or ()) if teacher else e.prompt_ids, e.target_ids) for e in batch]
    length = max(len(prompt) + len(target) for prompt, target in rows)
    input_ids = torch.full((len(rows), length), pad_id, dtype=torch.long)
    attention_mask = torch.zeros((len(rows), length), dtype=torch.long)
    target_mask = torch.zeros((len(rows), length - 1), dtype=torch.bool)
    for i, (prompt, target) in enumerate(rows):
        input_ids[i, : len(prompt) + len(target)] = torch.tensor([*prompt, *target])
        attention_mask[i, : len(prompt) + len(target)] = 1
        target_mask[i, len(prompt) - 1 : len(prompt) + len(target) - 1] = True
    weights = torch.tensor([e.weight for e in batch], dtype=torch.float64)
    return Padded(input_ids.to(device), attention_mask.to(device), target_mask.to(device), weights.to(device))


def token_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of values (B, T) over each row's mask (B, T) -> (B,)."""
    return torch.where(mask, values, 0).sum(-1) / mask.sum(-1)


def weighted_nll(logps: torch.Tensor, batch: Padded) -> tuple[torch.Tensor, torch.Tensor]:
    """`sum_i w_i * NLL_i` and the detached NLL_i (B,), from next-token log-probabilities (B, L-1) at temperature 1."""
    nll = -token_mean(logps, batch.target_mask)
    return (nll * batch.weights.to(nll.dtype)).sum(), nll.detach()


def target_logits(logits: torch.Tensor, batch: Padded) -> torch.Tensor:
    """The logits (N, V) that predict the N target tokens of a sub-batch, row by row, from logits (B, L, V)."""
    return logits[:, :-1][batch.target_mask]


def weighted_kl(
    student: torch.Tensor, teacher: torch.Tensor, student_batch: Padded
) -> tuple[torch.Tensor, torch.Tensor]:
    """`sum_i w_i * mean_t KL(teacher_t || student_t)` and the detached means (B,).

    student, teacher: logits (N, V) at the target positions, in the same order; the teacher is detached.
    """
    log_student = student.log_softmax(-1)
    log_teacher = teacher.detach().log_softmax(-1)
    per_token = (log_teacher.exp() * (log_teacher - log_student)).sum(-1)  # (N,)
    counts = student_batch.target_mask.sum(-1)
    rows = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    means = torch.zeros(len(counts), dtype=per_token.dtype, device=per_token.device).index_add(
        0, rows, per_token
    )
    means = means / counts
    return (means * student_batch.weights.to(means.dtype)).sum(), means.detach()
