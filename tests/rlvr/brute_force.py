"""The whole-step equation (docs/training.md) by brute force: no trainer, no padding, no objective code."""

from __future__ import annotations

import torch

from tests import tiny


def encode(messages) -> list[int]:
    return tiny.tokenizer().apply_chat_template(
        [dict(m) for m in messages], add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"]


def logps(model, prompt: list[int], target: list[int], temperature: float = 1.0) -> torch.Tensor:
    """log pi(t_k | p, t_<k) for each target token, from the plain logits."""
    logits = model(input_ids=torch.tensor([[*prompt, *target]])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(target)[:, None]).squeeze(-1)


def nll(model, prompt, target) -> torch.Tensor:
    return -logps(model, prompt, target).mean()


def kl(model, prompt, teacher, target) -> torch.Tensor:
    """mean_t KL(teacher_t || student_t) along the target, teacher detached."""
    student = (
        model(input_ids=torch.tensor([[*prompt, *target]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    )
    with torch.no_grad():
        teacher = (
            model(input_ids=torch.tensor([[*teacher, *target]]))
            .logits[0, len(teacher) - 1 : -1]
            .log_softmax(-1)
        )
    return (teacher.exp() * (teacher - student)).sum(-1).mean()


def policy_loss(
    model, groups, loss_type: str, max_completion_length: int, temperature: float = 1.0
) -> torch.Tensor:
    """On policy the ratio is 1 with gradient d log pi: sum A_i * weight_i,t * (-log pi), TRL's divisor by name.

    groups: [(prompt_ids, completion_ids, advantage)] of all rollouts of the step.
    """
    total = 0.0
    tokens = sum(len(c) for _, c, _ in groups)
    for prompt, completion, advantage in groups:
        surrogate = -advantage * logps(model, prompt, completion, temperature)
        if loss_type == "grpo":  # MEL Eq. 10
            total = total + surrogate.mean() / len(groups)
        elif loss_type == "dr_grpo":
            total = total + surrogate.sum() / (len(groups) * max_completion_length)
        elif loss_type == "dapo":
            total = total + surrogate.sum() / tokens
        else:
            raise ValueError(loss_type)
    return total


def gradient(model, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}
