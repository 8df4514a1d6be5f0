"""The demo's files: the experts' demonstrations, analyses and replays by rule, questions to train and test on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..prompts.library import Prompts
from . import corpus, world

DEMONSTRATIONS = 800  # questions, each with a solution by every expert
ANALYSES = REPLAYS = 400
TRAINING, TEST = 400, 200


def write_data(folder: Path, seed: int = 0, test_questions: int = TEST) -> None:
    """demonstrations, analyses, replays, questions and test, as JSONL; the same for the same seed.

    No question is in two of them: the test questions are new to the model at the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    prompts = Prompts.load(corpus.prompts_config())
    training, test = world.training_questions(TRAINING), world.test_questions(test_questions)
    held_out = frozenset(chain.text for chain in [*training, *test])
    rng = random.Random(f"demo demonstrations {seed}")
    shown = world.make_questions(100 + seed, DEMONSTRATIONS, avoid=held_out)
    _write(folder / "questions.jsonl", (_row(f"train-{i}", chain) for i, chain in enumerate(training)))
    _write(folder / "test.jsonl", (_row(f"test-{i}", chain) for i, chain in enumerate(test)))
    _write(
        folder / "demonstrations.jsonl",
        (
            _row(f"shown-{i}", chain)
            | {e.name: world.solution(chain, e.habit, e.rate, corpus.SLIP, rng) for e in world.EXPERTS}
            for i, chain in enumerate(shown)
        ),
    )
    extra = corpus.rows(prompts, world.EXPERTS, seed, 0, ANALYSES, 0, avoid=held_out)
    _write(folder / "analyses.jsonl", extra)
    extra = corpus.rows(prompts, world.EXPERTS, seed, 0, 0, REPLAYS, avoid=held_out)
    _write(folder / "replays.jsonl", extra)


def _row(id: str, chain: world.Chain) -> dict[str, Any]:
    question = chain.question(id)
    return {"id": id, "problem": question.problem, "answer": question.answer, "solution": question.solution}


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
