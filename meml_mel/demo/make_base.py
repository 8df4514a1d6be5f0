r"""Train the tiny base model that ships with the package.

    python -m meml_mel.demo.make_base --out /somewhere/first
    python -m meml_mel.demo.make_base --start /somewhere/first --out meml_mel/demo/tiny \
        --steps 500 --rows 20000 --seed 1 --learning-rate 1e-3

The first round reads other pupils' work (`world.OTHERS`), every habit among it, and analyses and replays of it. The
second reads the demo's experts beside them, so that their names mean something: in a hundred SFT steps a
name that the model has never read does not get tied to a habit. Questions of the demo's training and test
sets are left out of both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ..prompts.format import PromptFormat
from ..prompts.library import Prompts
from ..train.sft_rows import IGNORED, TextRow, tokenise
from . import corpus, world
from .tokenizer import make_tokenizer


def make_model(vocab: int, end: int, pad: int, hidden: int = 128, layers: int = 3) -> Any:
    """A Qwen3 of about 0.6 million parameters."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )
    return Qwen3ForCausalLM(config)


def batches(rows: Sequence[dict[str, list[int]]], size: int, seed: int) -> list[list[dict[str, list[int]]]]:
    """Rows of like length together, the batches in random order."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator).tolist()
    order.sort(key=lambda i: len(rows[i]["input_ids"]) // 4)
    made = [[rows[i] for i in order[start : start + size]] for start in range(0, len(order), size)]
    return [made[i] for i in torch.randperm(len(made), generator=generator).tolist()]


def forever(
    rows: Sequence[dict[str, list[int]]], size: int, seed: int
) -> Iterator[list[dict[str, list[int]]]]:
    """Epoch after epoch of `batches`."""
    for epoch in itertools.count():
        yield from batches(rows, size, seed + epoch)


def loss_of(model: Any, batch: Sequence[dict[str, list[int]]], pad: int) -> torch.Tensor:
    """Mean over rows of the token-mean NLL of the completion: an analysis counts as much as a solution."""
    width = max(len(row["input_ids"]) for row in batch)
    ids = torch.tensor([row["input_ids"] + [pad] * (width - len(row["input_ids"])) for row in batch])
    labels = torch.tensor([row["labels"] + [IGNORED] * (width - len(row["labels"])) for row in batch])
    mask = torch.tensor(
        [[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in batch]
    )
    logits = model(ids, attention_mask=mask).logits[:, :-1]
    nll = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="none"
    ).view(len(batch), -1)
    return (nll.sum(1) / (labels[:, 1:] != IGNORED).sum(1)).mean()


def _texts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Everything that the tokenizer has to know whole."""
    texts = [message["content"] for row in rows for message in row["prompt"]]
    texts += [row["completion"] for row in rows]
    texts += [pupil.system_prompt for pupil in (*world.EXPERTS, *world.OTHERS)]
    return [*texts, "system\n", "user\n", "assistant\n"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--start", type=Path, help="go on from this model, with the experts' work in the corpus"
    )
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=40000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    prompts = Prompts.load(corpus.prompts_config())
    avoid = frozenset(chain.text for chain in [*world.training_questions(), *world.test_questions()])
    fifth = args.rows // 5
    pupils = world.OTHERS if args.start is None else (*world.OTHERS, *3 * world.EXPERTS)
    made = corpus.rows(prompts, pupils, args.seed, 3 * fifth, fifth, fifth, (1, 2, 2, 2), avoid)
    if args.start is None:
        tokenizer = make_tokenizer(_texts(made))
        model = make_model(
            len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, args.hidden, args.layers
        )
    else:
        tokenizer = AutoTokenizer.from_pretrained(args.start)
        model = AutoModelForCausalLM.from_pretrained(args.start, dtype=torch.float32)
    format = PromptFormat(tokenizer, chat=True)
    rows = [tokenise(TextRow(tuple(row["prompt"]), row["completion"], ""), format) for row in made]
    print(
        f"{sum(p.numel() for p in model.parameters())} parameters, {len(tokenizer)} tokens, {len(rows)} rows",
        flush=True,
    )

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    warmup = max(1, args.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, (step + 1) / warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / args.steps)))
        ),
    )
    started, losses = time.time(), []
    for step, batch in enumerate(itertools.islice(forever(rows, args.batch, args.seed), args.steps), 1):
        loss = loss_of(model, batch, tokenizer.pad_token_id)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 20 == 0:
            print(
                f"step {step}: loss {sum(losses[-20:]) / 20:.4f}, {time.time() - started:.0f} s", flush=True
            )
    model.to(torch.bfloat16).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    before = json.loads((args.start / "origin.json").read_text()) if args.start else None
    facts = {
        "script": "meml_mel.demo.make_base",
        "arguments": {k: v for k, v in vars(args).items() if k not in ("out", "start")},
        "loss": losses[::50],
        "start": before,
    }
    (args.out / "origin.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
