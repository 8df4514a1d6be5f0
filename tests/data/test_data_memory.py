"""A million rows fit: memory holds the questions, not the rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_stub import environment

MEASURE = """
from meml_mel.data.load import DataSource, load_questions
loaded = load_questions(DataSource({path!r}, mapping={mapping!r}), gradable=lambda gold, kind: True)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss counts the parent's
print(len(loaded.questions), loaded.report.rows, int(peak.split()[1]) // 1024)
"""


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc"
)


def measure(path, mapping, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(path=str(path), mapping=mapping)],
        env=environment("http://127.0.0.1:9", tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    return map(int, done.stdout.split())


@pytest.mark.slow
def test_a_million_distinct_questions_stay_under_one_gibibyte(tmp_path):
    path = tmp_path / "million.jsonl"
    words = ("number", "of", "integers", "such", "that", "their", "sum", "is", "prime", "and", "even")
    with path.open("w") as file:
        for i in range(1_000_000):
            text = " ".join(words[(i + k * k) % len(words)] for k in range(40))
            file.write(f'{{"id": "s{i}", "problem": "{text} {i}", "answer": "{i % 997}"}}\n')
    questions, rows, mebibytes = measure(path, None, tmp_path)
    assert (questions, rows) == (1_000_000, 1_000_000) and mebibytes < 1024


def test_copies_in_one_large_row_group_cost_no_memory(tmp_path):
    """100,000 rows of 2,000 questions in a single Parquet row group, as in DAPO-Math-17k's file."""
    rows = [
        {
            "prompt": [{"role": "user", "content": f"Question {i % 2000}: " + "how many? " * 40}],
            "reward_model": {"ground_truth": str(i % 2000)},
        }
        for i in range(100_000)
    ]
    path = tmp_path / "copies.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=len(rows))
    questions, read, mebibytes = measure(path, "dapo_math_17k", tmp_path)
    assert (questions, read) == (2000, 100_000)
    assert mebibytes < 220  # a reader that decodes the whole group needs more for the strings alone
