"""`evaluate_questions`: a model answers every question under every expert's prompt, and the answers are graded.

results = evaluate_questions("runs/mine/final", questions, experts=config.experts, decoding=Decoding(max_tokens=256))
print(results.table())
results.write(Path("evaluations/mine"))
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..data.clean import content_hash
from ..data.question import Question
from ..grading.pool import GradeItem, GradingPool
from ..grading.verdict import Grade
from ..meml.experts import Expert, question_expert_rows
from ..prompts.library import Prompts
from ..versions import installed
from .decoding import Decoding, EvaluationError
from .facts import PACKAGES, grader_hash, python_and_system
from .loading import LoadedModel
from .results import Results
from .sampler import Progress, Response, Sampler, SampleRequest
from .summary import Answer, Phase, summarise


def evaluate_questions(
    model: LoadedModel | str | Path,
    questions: Sequence[Question],
    experts: Sequence[Expert] = (),
    prompts: Prompts | None = None,
    decoding: Decoding | None = None,
    *,
    pool: GradingPool | None = None,
    data: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    memory_bytes: int | None = None,
) -> Results:
    """One greedy response a question and expert, and `decoding.samples` sampled ones, graded and summarised.

    Args:
        model: loaded (`LoadedModel.of` for one in memory), or a folder or Hub id.
        experts: their system prompts are used as in training; none: one nameless row a question.
        pool: grading workers to use; without one, two are started and ended here.
        data: what results.json says about the questions beside their count and hash.
        progress: called with (responses made, of how many) after each batch.
        memory_bytes: for one batch (`Sampler`).

    The global random state is neither read nor changed. Raises EvaluationError where there is no question, or two
    with one id.
    """
    decoding = decoding or Decoding()
    prompts = prompts or Prompts.load()
    if not questions:
        raise EvaluationError("there are no questions to evaluate on")
    if len({q.id for q in questions}) != len(questions):
        raise EvaluationError("two questions have the same id: give each its own")
    loaded = model if isinstance(model, LoadedModel) else LoadedModel.load(model)
    started, clock = datetime.now(UTC), time.perf_counter()
    rows = question_expert_rows(questions, experts)
    prompt_ids = _prompt_ids(loaded, rows, prompts)
    answers: list[Answer] = []
    seconds = {"generate": 0.0, "grade": 0.0}
    with _pool(pool) as grading:
        phases: list[tuple[Phase, int]] = [("greedy", 1), ("sampled", decoding.samples)]
        for phase, count in phases:
            if not count:
                continue
            answers += _answers(
                phase, count, loaded, rows, prompt_ids, decoding, grading, seconds, progress, memory_bytes
            )
        names = [expert.name for expert in experts] or [""]
        summary = summarise(questions, names, answers, grading, decoding.seed)
    facts: dict[str, Any] = {
        "started": started.isoformat(timespec="seconds"),
        "seconds": {"total": time.perf_counter() - clock, **seconds},
        **run_facts(loaded, questions, experts, prompts, decoding, grading.timeout, data),
        **python_and_system(),
    }
    return Results(summary, tuple(answers), tuple(questions), facts)


def run_facts(
    loaded: LoadedModel,
    questions: Sequence[Question],
    experts: Sequence[Expert],
    prompts: Prompts,
    decoding: Decoding,
    timeout: float,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What results.json says of an evaluation before it has run: all that its responses and grades depend on."""
    return {
        "model": {
            "name": loaded.name,
            "revision": loaded.revision,
            "weights": dict(loaded.weights),
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "device": str(loaded.model.device),
            "context": loaded.context,
        },
        "data": {**(data or {}), "questions": len(questions), "content_hash": content_hash(questions)},
        "experts": [{"name": e.name, "system": prompts.system(e.name, e.system_prompt)} for e in experts],
        "prompts": {
            "versions": prompts.versions,
            "format": loaded.format.describe(),
            "template_kwargs": dict(loaded.format.template_kwargs),
        },
        "decoding": {
            "max_tokens": decoding.max_tokens,
            "samples": decoding.samples,
            "temperature": decoding.temperature if decoding.samples else None,
            "top_p": decoding.top_p if decoding.samples else None,
            "stop": list(decoding.stops(loaded.format)),
            "end_token_ids": list(loaded.ends),
            "seed": decoding.seed,
        },
        "grader": {"sha256": grader_hash(), "timeout": timeout, "truncated_is_wrong": True},
        "versions": installed(PACKAGES),
    }


@contextlib.contextmanager
def _pool(given: GradingPool | None) -> Iterator[GradingPool]:
    """The caller's pool, left open, or one of our own."""
    if given is not None:
        yield given
        return
    with GradingPool() as own:
        yield own


def _prompt_ids(
    loaded: LoadedModel, rows: Sequence[tuple[Question, Expert]], prompts: Prompts
) -> list[tuple[int, ...]]:
    texts = [loaded.format.text(prompts.solve(q, e.name, e.system_prompt)) for q, e in rows]
    encoded = loaded.tokenizer(texts, add_special_tokens=not loaded.format.chat)["input_ids"]
    return [tuple(ids) for ids in encoded]


def _answers(
    phase: Phase,
    count: int,
    loaded: LoadedModel,
    rows: Sequence[tuple[Question, Expert]],
    prompt_ids: Sequence[tuple[int, ...]],
    decoding: Decoding,
    pool: GradingPool,
    seconds: dict[str, float],
    progress: Progress | None,
    memory_bytes: int | None,
) -> list[Answer]:
    """`count` graded answers a row, row-major."""
    sampler = Sampler(loaded.model, loaded.tokenizer, loaded.ends, loaded.context, memory_bytes)
    asked = [
        (question, expert, sample, SampleRequest(ids, (question.id, expert.name, sample)))
        for (question, expert), ids in zip(rows, prompt_ids, strict=True)
        for sample in range(count)
    ]
    clock = time.perf_counter()
    responses = sampler(
        [request for *_, request in asked],
        decoding.max_tokens,
        temperature=0.0 if phase == "greedy" else decoding.temperature,
        top_p=decoding.top_p,
        stop=decoding.stops(loaded.format),
        seed=decoding.seed,
        progress=progress,
    )
    seconds["generate"] += time.perf_counter() - clock
    clock = time.perf_counter()
    grades = grade_responses([question for question, *_ in asked], responses, pool)
    seconds["grade"] += time.perf_counter() - clock
    return [
        Answer(question.id, expert.name, phase, sample, r.text, r.tokens, r.finish, grade)
        for (question, expert, sample, _), r, grade in zip(asked, responses, grades, strict=True)
    ]


def grade_responses(
    questions: Sequence[Question], responses: Sequence[Response], pool: GradingPool
) -> list[Grade]:
    """A grade a response; one that could not be made has no answer."""
    return pool.grade(
        [
            GradeItem(q.answer, r.text, q.kind, truncated=r.finish == "length")
            for q, r in zip(questions, responses, strict=True)
        ]
    )
