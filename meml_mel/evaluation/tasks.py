"""One benchmark's evaluation in a folder of its own: done once, never taken from other weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.question import Question
from ..grading.pool import GradingPool
from ..meml.experts import Expert
from ..prompts.library import Prompts
from .decoding import Decoding, EvaluationError
from .loading import LoadedModel
from .results import RESULTS, read_results
from .run import evaluate_questions, run_facts
from .sampler import Progress

# What a kept result must agree in, and how each is called; `data` by content alone, wherever it was read from.
_SAME = {
    "weights": ("model", "weights"),
    "dtype": ("model", "dtype"),
    "questions": ("data", "content_hash"),
    "experts": ("experts",),
    "prompts": ("prompts",),
    "decoding": ("decoding",),
    "grader": ("grader",),
    "package versions": ("versions",),
}


def evaluate_task(
    folder: Path,
    loaded: LoadedModel,
    questions: Sequence[Question],
    experts: Sequence[Expert],
    prompts: Prompts,
    decoding: Decoding,
    pool: GradingPool,
    data: Mapping[str, Any],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> str:
    """Evaluate and write to `folder`, or keep what it holds; answers the text to show.

    Results there are kept only where they came of the same weights (by hash, not by path), questions, prompts,
    decoding, grader and packages. EvaluationError where they did not and `overwrite` is not set.
    """
    if (folder / RESULTS).is_file() and not overwrite:
        saved = read_results(folder)
        facts = run_facts(loaded, questions, experts, prompts, decoding, pool.timeout, data)
        other = differing(saved, facts)
        if other:
            raise EvaluationError(
                f"{str(folder)!r} holds results of other {', '.join(other)}: name another --out, or pass --overwrite"
            )
        return kept(saved, folder)
    results = evaluate_questions(
        loaded, questions, experts, prompts, decoding, pool=pool, data=data, progress=progress
    )
    results.write(folder, overwrite=overwrite)
    return f"{results.table()}\nwritten: {folder / RESULTS} and responses.parquet beside it"


def differing(saved: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """In what a saved result and an evaluation to come differ; weights without a hash always do."""
    found = [name for name, path in _SAME.items() if _plain(_at(saved, path)) != _plain(_at(facts, path))]
    if _at(facts, ("model", "weights", "sha256")) in (None, "unknown") and "weights" not in found:
        found.insert(0, "weights")
    return found


def kept(saved: Mapping[str, Any], folder: Path) -> str:
    """A finished task's whole-set numbers, from its file."""
    lines = [
        f"{cell['expert']} {cell['measure']} {cell['k']:g}/{cell['n']} {cell['value']:.3f}".strip()
        for cell in saved["cells"]
    ]
    return "\n".join([f"finished before, kept: {folder}", *lines])


def _at(held: Any, path: Sequence[str]) -> Any:
    for key in path:
        held = held.get(key) if isinstance(held, Mapping) else None
    return held


def _plain(value: Any) -> Any:
    """As JSON would give it back: tuples are lists."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
