"""What a run leaves on disk while it runs: `metrics.jsonl` and one Parquet file per kind of record and step.

Both are cut back to a checkpoint's step on resume and written again, so a resumed run leaves the same files.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROLLOUT_SCHEMA = {
    "step": "int64",
    "question_id": "string",
    "expert": "string",
    "sample": "int64",
    "problem": "string",
    "answer": "string",
    "text": "string",
    "tokens": "int64",
    "finish": "string",
    "verdict": "string",
    "reason": "string",
    "extracted": "string",
    "reward": "double",
    "advantage": "double",
    "in_policy_loss": "bool",
}


def schema(fields: Mapping[str, str]) -> pa.Schema:
    """An Arrow schema from name -> type name, so that an all-null column keeps its type from file to file."""
    names = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}
    return pa.schema([(name, names[kind]) for name, kind in fields.items()])


def clean_text(value: Any) -> Any:
    """Arrow wants valid UTF-8: lone surrogates, which a tokenizer can decode to, are replaced."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


class Records:
    """`<run>/<kind>/step-000012.parquet`, written whole or not at all; `datasets.load_dataset` reads the folder."""

    def __init__(self, root: Path):
        self.root = root

    def write(
        self, kind: str, step: int, rows: Sequence[Mapping[str, Any]], fields: Mapping[str, str] | None
    ) -> None:
        """Write the step's rows; nothing for an empty list. Without `fields` Arrow infers the types."""
        if not rows:
            return
        folder = self.root / kind
        folder.mkdir(parents=True, exist_ok=True)
        cleaned = [{key: clean_text(value) for key, value in row.items()} for row in rows]
        table = pa.Table.from_pylist(cleaned, schema=schema(fields) if fields else None)
        target = folder / f"step-{step:06d}.parquet"
        partial = target.with_suffix(".tmp")
        pq.write_table(table, partial)
        os.replace(partial, target)

    def cut_back(self, step: int) -> None:
        """Remove what steps from `step` on have written (a step is numbered from 0 as it begins)."""
        for path in self.root.glob("*/step-*.parquet"):
            if int(path.stem.removeprefix("step-")) >= step:
                path.unlink()
        for path in self.root.glob("*/step-*.tmp"):
            path.unlink()


class MetricsLog:
    """`metrics.jsonl`: one line per optimizer step, whatever `logging_steps` is. NaN is written as null."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cleaned = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        with self.path.open("a") as file:
            file.write(json.dumps(cleaned) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All whole lines; a last line cut off by a kill is left out."""
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return rows

    def cut_back(self, step: int) -> None:
        """Keep the lines up to optimizer step `step` (numbered from 1 as it ends)."""
        if not self.path.exists():
            return
        kept = [row for row in self.read() if row["step"] <= step]
        partial = self.path.with_suffix(".tmp")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept))
        os.replace(partial, self.path)
