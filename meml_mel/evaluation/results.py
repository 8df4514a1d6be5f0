"""An evaluation's outcome: the numbers, every response, and the two files that hold them.

`results.json` has the numbers and all that made them; `responses.parquet` a line per response, which
`datasets.load_dataset("parquet", data_files=...)` reads.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.question import Question
from ..rlvr.records import clean_text, schema
from .decoding import EvaluationError
from .summary import Answer, Cell, Summary
from .table import render

SCHEMA = 1
RESULTS, RESPONSES = "results.json", "responses.parquet"
RESPONSE_FIELDS = {
    "question_id": "string",
    "problem": "string",
    "answer": "string",
    "kind": "string",
    "expert": "string",
    "phase": "string",
    "sample": "int64",
    "text": "string",
    "tokens": "int64",
    "finish": "string",
    "verdict": "string",
    "reason": "string",
    "extracted": "string",
}


@dataclass(frozen=True)
class Results:
    """The summary, the graded responses (row-major: question, expert, sample; greedy first), and the facts."""

    summary: Summary
    answers: tuple[Answer, ...]
    questions: tuple[Question, ...]
    facts: Mapping[str, Any]

    def cell(self, measure: str, expert: str | None = None) -> Cell:
        """`results.cell("pass@1").estimate.value`; see `Summary.cell`."""
        return self.summary.cell(measure, expert)

    def by_question(self, expert: str | None = None, phase: str = "greedy") -> dict[str, float]:
        """Question id -> share of right responses, of one expert or over all: what `stats.compare` pairs."""
        held: dict[str, list[bool]] = {}
        left_out = set(self.summary.ungradable)
        for a in self.answers:
            if a.phase == phase and expert in (None, a.expert) and a.question_id not in left_out:
                held.setdefault(a.question_id, []).append(a.grade.right)
        return {id: sum(right) / len(right) for id, right in held.items()}

    def table(self) -> str:
        """The numbers as text of at most 80 columns."""
        return render(self.summary)

    def as_dict(self) -> dict[str, Any]:
        """What results.json holds, without the hash of the responses."""
        summary = self.summary
        return {
            "schema": SCHEMA,
            **self.facts,
            "counted_questions": summary.questions,
            "ungradable": list(summary.ungradable),
            "prompt_too_long": {name: list(ids) for name, ids in summary.too_long.items()},
            "cells": [cell.as_dict() for cell in summary.cells],
            "rates": [rates.as_dict() for rates in summary.rates],
        }

    def rows(self) -> list[dict[str, Any]]:
        """What responses.parquet holds."""
        questions = {q.id: q for q in self.questions}
        return [
            {
                "question_id": a.question_id,
                "problem": questions[a.question_id].problem,
                "answer": questions[a.question_id].answer,
                "kind": questions[a.question_id].kind,
                "expert": a.expert,
                "phase": a.phase,
                "sample": a.sample,
                "text": a.text,
                "tokens": a.tokens,
                "finish": a.finish,
                "verdict": a.grade.verdict,
                "reason": a.reason,
                "extracted": a.grade.extracted,
            }
            for a in self.answers
        ]

    def write(self, folder: Path | str, overwrite: bool = False) -> Path:
        """Write both files; answers the folder. results.json comes last, whole, and never beside other responses.

        Raises EvaluationError where the folder holds results already and `overwrite` is not set.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = Path(folder)
        refuse_occupied(folder, overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [{key: clean_text(value) for key, value in row.items()} for row in self.rows()]
        partial = folder / (RESPONSES + ".tmp")
        pq.write_table(pa.Table.from_pylist(rows, schema=schema(RESPONSE_FIELDS)), partial)
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        (folder / RESULTS).unlink(missing_ok=True)
        os.replace(partial, folder / RESPONSES)
        text = json.dumps({**self.as_dict(), "responses_sha256": digest}, indent=1, ensure_ascii=False)
        _write_whole(folder / RESULTS, text + "\n")
        return folder


def refuse_occupied(folder: Path, overwrite: bool) -> None:
    """Before anything is computed: an earlier evaluation's results are not written over unasked."""
    if not overwrite and (folder / RESULTS).exists():
        raise EvaluationError(
            f"--out {str(folder)!r} holds results already: name another folder, or pass --overwrite"
        )


def _write_whole(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".tmp")
    with partial.open("w", encoding="utf-8", errors="replace") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def read_results(folder: Path | str) -> dict[str, Any]:
    """results.json of an evaluation's folder. EvaluationError where there is none: it did not finish."""
    path = Path(folder) / RESULTS
    if not path.is_file():
        raise EvaluationError(
            f"{str(path)!r} does not exist: the evaluation did not finish, or wrote elsewhere"
        )
    return json.loads(path.read_text(encoding="utf-8"))
