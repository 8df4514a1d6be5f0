"""`meml-mel evaluate`: a saved model on a file of questions.

meml-mel evaluate runs/mine/final --config runs/mine --data test.jsonl --out evaluations/mine
meml-mel evaluate runs/mine/final --tasks aime24,math500 --out evaluations/mine
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..config.run import RunConfig
    from ..data.source import DataSource
    from .decoding import Decoding
    from .loading import LoadedModel

MAX_TOKENS = 512
_EVERY = 10.0  # seconds between lines on the progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder that a run saved (RUN/final), or a Hub id")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="folder for results.json and responses.parquet"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the results that DIR holds")
    what = parser.add_argument_group("what is asked")
    what.add_argument(
        "--config",
        metavar="CONFIG",
        help="a recipe's name, a YAML file or a run's folder: its experts, prompts, data and response length",
    )
    what.add_argument(
        "--tasks",
        metavar="NAMES",
        help="benchmarks, by comma: aime24, aime25, amc23, math500, olympiadbench, gsm8k, mathqa, strategyqa; each is "
        "written to DIR/NAME, and a finished one is not run again",
    )
    what.add_argument("--data", metavar="FILE_OR_ID", help="questions: JSONL, Parquet, or a Hub id")
    what.add_argument(
        "--mapping", help="a built-in name (gsm8k, ...), or columns: problem=QUESTION,answer=FINAL"
    )
    what.add_argument("--name", help="the Hub data set's config")
    what.add_argument("--split", help="default: train (a file's only one)")
    what.add_argument("--data-revision", metavar="REV", help="the Hub data set's commit")
    what.add_argument(
        "--start", type=int, help="first row, from 0; with or without --stop-row, not the config's range"
    )
    what.add_argument("--stop-row", type=int, help="row to stop before")
    what.add_argument("--kind", choices=("math", "choice", "boolean"), help="of every question")
    what.add_argument("--max-questions", type=int, metavar="N", help="the first N")
    how = parser.add_argument_group("how it is answered")
    how.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="sampled responses besides the greedy one (8 with --tasks, else 0)",
    )
    how.add_argument("--temperature", type=float, default=0.6, help="of the samples (0.6)")
    how.add_argument("--top-p", type=float, default=1.0, help="of the samples (1.0)")
    how.add_argument(
        "--max-tokens", type=int, metavar="N", help=f"longest response (the config's, else {MAX_TOKENS})"
    )
    how.add_argument(
        "--stop", action="append", metavar="TEXT", help="ends a response; may be repeated; '' alone for none"
    )
    how.add_argument(
        "--format",
        choices=("auto", "chat", "plain"),
        help="chat template or plain text (the config's, else auto)",
    )
    how.add_argument("--seed", type=int, default=0, help="of the samples and intervals")
    how.add_argument("--revision", help="the Hub model's commit")
    how.add_argument("--device", help="cpu, cuda, cuda:1 (default: a GPU where there is one)")
    how.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="float32 on CPUs, else bfloat16"
    )
    how.add_argument("--workers", type=int, default=2, metavar="N", help="grading processes")


def run(args: argparse.Namespace) -> int:
    """0 when all is written. What is wrong with config, data or folder shows before the model loads."""
    from ..data.load import load_questions
    from ..grading.pool import GradingPool
    from ..prompts.library import Prompts
    from .loading import check_folder
    from .results import refuse_occupied
    from .run import evaluate_questions

    if args.tasks is not None:
        return run_tasks(args)
    refuse_occupied(Path(args.out), args.overwrite)
    check_folder(args.model)
    config = read_config(args.config) if args.config else None
    source = data_source(args, config)
    decoding = _decoding(args, config, args.max_tokens or _response_length(config) or MAX_TOKENS, 0)
    prompts = Prompts.load(config.prompts.templates() if config else None)
    prompts.check()
    questions = load_questions(source)
    print(questions.report.description(), flush=True)
    _quiet()
    loaded = _load(args, config, decoding)
    with GradingPool(workers=args.workers) as pool:
        results = evaluate_questions(
            loaded,
            questions.questions,
            config.experts if config else (),
            prompts,
            decoding,
            pool=pool,
            data={"source": asdict(source), "revision": questions.report.revision},
            progress=_Progress(),
        )
    results.write(args.out, overwrite=args.overwrite)
    print(results.table())
    print(f"written: {Path(args.out) / 'results.json'} and responses.parquet beside it")
    return 0


def run_tasks(args: argparse.Namespace) -> int:
    """`--tasks`: each benchmark greedily and sampled, into DIR/NAME as soon as it is done."""
    from dataclasses import replace as changed

    from ..data.load import load_questions
    from ..grading.pool import GradingPool
    from ..prompts.library import Prompts
    from .benchmarks import count_note, data_folder, find_benchmarks
    from .decoding import EvaluationError
    from .loading import check_folder
    from .tasks import evaluate_task

    for option in ("data", "mapping", "name", "split", "data_revision", "kind"):
        if getattr(args, option) is not None:
            raise EvaluationError(
                f"--{option.replace('_', '-')} and --tasks do not go together: a task has its own questions"
            )
    benchmarks = find_benchmarks(args.tasks)
    check_folder(args.model)
    config = read_config(args.config) if args.config else None
    experts = config.experts if config else ()
    prompts = Prompts.load(config.prompts.templates() if config else None)
    prompts.check()
    part = {"start": args.start or 0, "stop": args.stop_row, "max_questions": args.max_questions}
    sources = {b.name: b.source(data_folder(), **part) for b in benchmarks}
    decoding = _decoding(args, config, args.max_tokens or benchmarks[0].max_tokens, 8)
    loaded_questions = {}
    for benchmark in benchmarks:  # all of them before the model: what is missing shows now
        held = load_questions(sources[benchmark.name])
        print(held.report.description(), flush=True)
        note = count_note(benchmark, held.report.rows, cut=any(part.values()))
        if note:
            print(f"note: {note}", flush=True)
        loaded_questions[benchmark.name] = held
    _quiet()
    loaded = _load(args, config, decoding)
    with GradingPool(workers=args.workers) as pool:
        for benchmark in benchmarks:
            held = loaded_questions[benchmark.name]
            limit = args.max_tokens or benchmark.max_tokens
            print(f"\n{benchmark.name}: {benchmark.title}, at most {limit} tokens", flush=True)
            said = evaluate_task(
                Path(args.out) / benchmark.name,
                loaded,
                held.questions,
                experts,
                prompts,
                changed(decoding, max_tokens=limit),
                pool,
                {
                    "benchmark": benchmark.name,
                    "source": asdict(sources[benchmark.name]),
                    "revision": held.report.revision,
                    "rows": held.report.rows,
                    "rows_on_the_hub": benchmark.count,
                    "rejected": [r.id for r in held.report.rejected],
                },
                overwrite=args.overwrite,
                progress=_Progress(),
            )
            print(said, flush=True)
    return 0


def _decoding(args: argparse.Namespace, config: RunConfig | None, max_tokens: int, samples: int) -> Decoding:
    from .decoding import Decoding

    stop = None if args.stop is None else tuple(s for s in args.stop if s)
    return Decoding(
        max_tokens=max_tokens,
        samples=samples if args.samples is None else args.samples,
        temperature=args.temperature,
        top_p=args.top_p,
        stop=stop if stop is not None else _config_stops(config),
        seed=args.seed,
    )


def _load(args: argparse.Namespace, config: RunConfig | None, decoding: Decoding) -> LoadedModel:
    """The model; what was decided about its prompts is printed."""
    from .loading import LoadedModel

    loaded = LoadedModel.load(
        args.model,
        args.revision,
        args.format or (config.prompts.format if config else "auto"),
        (config.trl.get("chat_template_kwargs") or {}) if config else {},
        args.device,
        args.dtype,
    )
    print(loaded.describe(), loaded.format.describe(), sep="\n")
    print(f"stop strings: {', '.join(map(repr, decoding.stops(loaded.format))) or 'none'}", flush=True)
    return loaded


def read_config(name: str) -> RunConfig:
    """A recipe's name, a YAML file, or a run's folder (its config.resolved.yaml); of either stage."""
    from ..config.fields import flat_keys
    from ..config.run import load_config
    from ..config.sections import SECTIONS
    from ..config.yaml_io import read_mapping
    from ..resources import find_recipe
    from .decoding import EvaluationError

    folder = Path(name)
    if folder.is_dir():
        path = folder / "config.resolved.yaml"
        if not path.is_file():
            raise EvaluationError(
                f"--config {name!r} is a folder without config.resolved.yaml: name a run's folder, a YAML file or "
                "a recipe"
            )
    else:
        path = find_recipe(name)
    raw = read_mapping(path)

    def strange(stage: Any) -> int:
        known = set(flat_keys(stage)) | {s for s, stages in SECTIONS.items() if stage in stages}
        return len(set(raw) - known)

    return load_config(path, stage="sft" if strange("sft") < strange("rl") else "rl")


def data_source(args: argparse.Namespace, config: RunConfig | None) -> DataSource:
    """The questions: `--data` alone, or the config's with the other options set in it."""
    from ..data.source import DataSource
    from .decoding import EvaluationError

    options: Mapping[str, Any] = {
        "mapping": parse_mapping(args.mapping),
        "name": args.name,
        "split": args.split,
        "revision": args.data_revision,
        "start": args.start,
        "stop": args.stop_row,
        "kind": args.kind,
        "max_questions": args.max_questions,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if args.data is not None:
        return DataSource(args.data, **given)
    if config is None or config.data is None:
        raise EvaluationError(
            "there are no questions: name them with --data, or a --config that has a data section"
        )
    rows = (
        {"start": 0, "stop": None} if {"start", "stop"} & set(given) else {}
    )  # another range than training's
    return replace(config.data, **{**rows, **given})


def parse_mapping(text: str | None) -> str | dict[str, str] | None:
    """`gsm8k`, or `problem=question,answer=final`."""
    from .decoding import EvaluationError

    if text is None or "=" not in text:
        return text
    mapping = {}
    for part in text.split(","):
        field, equals, column = part.partition("=")
        if not equals or not field.strip() or not column.strip():
            raise EvaluationError(f"--mapping {text!r}: {part!r} is not FIELD=COLUMN")
        mapping[field.strip()] = column.strip()
    return mapping


def _response_length(config: RunConfig | None) -> int | None:
    return config.trl.get("max_completion_length") if config else None


def _config_stops(config: RunConfig | None) -> tuple[str, ...] | None:
    """What the run itself stopped at: `generation_kwargs: {stop_strings: [...]}`, TRL's key."""
    stops = ((config.trl.get("generation_kwargs") or {}) if config else {}).get("stop_strings")
    return None if stops is None else (stops,) if isinstance(stops, str) else tuple(stops)


def _quiet() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()


class _Progress:
    """A line every ten seconds, on standard error."""

    def __init__(self) -> None:
        self.started = self.told = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.told >= _EVERY and done < total:
            self.told = now
            print(f"{done} of {total} responses, {now - self.started:.0f} s", file=sys.stderr, flush=True)
