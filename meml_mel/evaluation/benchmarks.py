"""The papers' benchmarks: where their questions come from, how many there are, how long an answer may be.

One list for `meml-mel evaluate --tasks` and for the lighteval tasks in eval_tasks/. Imports nothing heavy, so that
a stock lighteval can load it. docs/evaluation.md has the facts as a table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.clean import problem_key
from ..data.mappings import NAMED
from ..data.question import Question
from ..data.source import DataSource, nearest
from .decoding import EvaluationError

DATA_VARIABLE = "MEML_MEL_DATA"  # a folder with the benchmarks as JSON lines, read instead of the Hub


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark. `count` is the number of rows on the Hub; a local copy may have others, which is reported."""

    name: str
    title: str
    repo: str  # the Hub id
    config: str  # the Hub data set's config
    split: str
    count: int
    mapping: str  # a built-in one: the same for Hub rows and local rows
    files: tuple[str, ...]  # names that a local copy goes by, in order of preference
    max_tokens: int  # longest response; ours
    licence: str
    revision: str | None = None  # None: main, at the commit that results.json records
    note: str = ""

    def local_file(self, folder: Path | str) -> Path:
        """This benchmark's file in a local folder. EvaluationError where there is none."""
        path = Path(folder).expanduser()
        if not path.is_dir():
            raise EvaluationError(f"{DATA_VARIABLE}={str(folder)!r} is not a folder: name one, or unset it")
        for name in self.files:
            if (path / name).is_file():
                return (path / name).resolve()
        held = sorted(p.name for p in path.glob("*.jsonl"))[:12]
        raise EvaluationError(
            f"task {self.name!r}: {DATA_VARIABLE}={str(folder)!r} holds none of {', '.join(self.files)} (it holds: "
            f"{', '.join(held) or 'no .jsonl'}): put the questions there, or unset {DATA_VARIABLE} to read "
            f"{self.repo} from the Hub"
        )

    def source(self, folder: Path | str | None, **changes: Any) -> DataSource:
        """The questions' source: a file in `folder`, or without one the Hub."""
        if folder is not None:
            given: dict[str, Any] = {
                "path": str(self.local_file(folder)),
                "mapping": self.mapping,
                "licence": self.licence,
            }
        else:
            given = {
                "path": self.repo,
                "name": self.config,
                "split": self.split,
                "revision": self.revision,
                "mapping": self.mapping,
                "licence": self.licence,
            }
        return DataSource(**{**given, **changes})

    def question(self, row: Mapping[str, Any]) -> Question:
        """A row as a question, as `load_questions` makes it."""
        draft = NAMED[self.mapping](row)
        key = problem_key(draft.problem, draft.kind)
        return Question(
            id=draft.id or f"q{key.hex()[:16]}",
            problem=draft.problem,
            answer=draft.answer,
            kind=draft.kind,  # type: ignore[arg-type]  # the built-in mappings fix it
            solution=draft.solution,
            source=draft.source,
        )


ALL = (
    Benchmark(
        "aime24", "AIME 2024, I and II", "HuggingFaceH4/aime_2024", "default", "train", 30, "math",
        ("aime24.jsonl", "aime2024.jsonl"), 8192, "the Hub card names none; problems by the MAA",
    ),
    Benchmark(
        "aime25", "AIME 2025, I and II", "yentinglin/aime_2025", "default", "train", 30, "math",
        ("aime25.jsonl", "aime2025.jsonl"), 8192, "see the Hub card; problems by the MAA",
    ),
    Benchmark(
        "amc23", "AMC 12 2023, A and B, integer answers", "math-ai/amc23", "default", "test", 40, "math",
        ("amc23.jsonl", "amc2023.jsonl"), 8192, "see the Hub card; problems by the MAA",
    ),
    Benchmark(
        "math500", "MATH-500", "HuggingFaceH4/MATH-500", "default", "test", 500, "math",
        ("math500.jsonl",), 8192, "MIT",
    ),
    Benchmark(
        "olympiadbench", "OlympiadBench OE_TO_maths_en_COMP", "Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train",
        674, "math", ("olympiadbench.jsonl", "olympiadbench_math_en.jsonl"), 8192, "Apache-2.0",
        note="The Hub has 674 rows; the copy in Qwen2.5-Math, and those made from it, have 675.",
    ),
    Benchmark(
        "gsm8k", "GSM8K, test", "openai/gsm8k", "main", "test", 1319, "gsm8k",
        ("gsm8k.jsonl", "gsm8k_test.jsonl"), 2048, "MIT",
    ),
    Benchmark(
        "mathqa", "MathQA, test", "regisss/math_qa", "default", "test", 2985, "mathqa",
        ("mathqa.jsonl", "mathqa_test.jsonl", "mathqa_test_1000.jsonl"), 2048, "Apache-2.0",
        note="MEML does not state its split.",
    ),
    Benchmark(
        "strategyqa", "StrategyQA", "ChilleD/StrategyQA", "default", "test", 687, "strategyqa",
        ("strategyqa.jsonl", "strategyqa_test.jsonl", "strategyqa_dev.jsonl"), 1024, "MIT",
        note="MEML does not state its split; the test set has no public answers, so copies split train and "
        "dev each in its own way.",
    ),
)  # fmt: skip
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in ALL}


def data_folder() -> str | None:
    """The folder that MEML_MEL_DATA names."""
    return os.environ.get(DATA_VARIABLE) or None


def find_benchmarks(names: str | Iterable[str]) -> list[Benchmark]:
    """`aime24,math500` or the names one by one, in order. EvaluationError names the nearest of an unknown one."""
    asked = [n.strip() for n in (names.split(",") if isinstance(names, str) else names)]
    found: list[Benchmark] = []
    for name in filter(None, asked):
        if name not in BENCHMARKS:
            raise EvaluationError(
                f"unknown task {name!r}{nearest(name, BENCHMARKS)} Tasks: {', '.join(BENCHMARKS)}; for questions of "
                "your own use --data"
            )
        if BENCHMARKS[name] not in found:
            found.append(BENCHMARKS[name])
    if not found:
        raise EvaluationError(f"no task is named: choose of {', '.join(BENCHMARKS)}")
    return found


@dataclass(frozen=True, slots=True)
class Sampling:
    """What the sampled tasks draw and report: `n` responses a question at `temperature`; pass@k and maj@k for `ks`."""

    n: int = 8
    ks: tuple[int, ...] = (8,)
    temperature: float = 0.6
    max_tokens: int | None = None  # None: the benchmark's own limit

    def __post_init__(self) -> None:
        if self.n < 2:
            raise EvaluationError(
                f"n={self.n}: a sampled task needs at least 2 samples; the greedy task answers once"
            )
        if not self.ks or not all(1 <= k <= self.n for k in self.ks):
            raise EvaluationError(
                f"k={','.join(map(str, self.ks))} with n={self.n} samples: every k must be between 1 and n; raise n"
            )
        if not self.temperature > 0:
            raise EvaluationError(f"temperature {self.temperature}: sampling needs one above 0")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise EvaluationError(f"max_tokens {self.max_tokens}: a response needs at least 1")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Sampling:
        """MEML_MEL_N, MEML_MEL_K (`1,4,8`; else n), MEML_MEL_TEMPERATURE, MEML_MEL_MAX_TOKENS."""
        held = os.environ if environment is None else environment
        n = _number(held, "MEML_MEL_N", int, 8)
        assert n is not None
        ks = tuple(
            _number({"MEML_MEL_K": k}, "MEML_MEL_K", int, n) or 0
            for k in (held.get("MEML_MEL_K") or str(n)).split(",")
        )
        temperature = _number(held, "MEML_MEL_TEMPERATURE", float, 0.6)
        return cls(n, ks, temperature or 0.0, _number(held, "MEML_MEL_MAX_TOKENS", int, None))


def _number(held: Mapping[str, str], name: str, kind: Any, default: Any) -> Any:
    text = held.get(name)
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        raise EvaluationError(f"{name}={text!r} is not a number: set one, or unset it") from None


def count_note(benchmark: Benchmark, rows: int, cut: bool) -> str | None:
    """What to say where the rows read are not the benchmark's; None where they are, or a part was asked for."""
    if cut or rows == benchmark.count:
        return None
    return (
        f"{benchmark.name}: {rows} rows, where {benchmark.repo} ({benchmark.config}, {benchmark.split}) has "
        f"{benchmark.count}: results are not comparable with those on that set. {benchmark.note}".strip()
    )
