"""Grading speed on real completions, beside TRL's `accuracy_reward`, in one run.

    OMP_NUM_THREADS=1 python benchmarks/grader_throughput.py [DATA] [--repeats 5] [--out result.json]

Three sets of recorded model outputs from shared/data (none of them hangs TRL's function): MATH solutions of
Qwen2.5-Math (8 a problem), GSM8K answers of Qwen2-7B-Instruct (JSON texts, one a problem), and sampled GSM8K
answers of a 7B model (100 a problem, put in a box, as they are recorded without their texts). Each repeat runs
TRL, our pool with de-duplication, and our pool without it, in an order that rotates, so that a busy machine is
unfair to all alike.
The pool is started beforehand (its start-up is reported apart). Later repeats find the parse caches warm, as a
later epoch does; the ratio of the first repeat, where every question is new, is given as well. The result is
JSON: seconds, medians, ratios to TRL, versions, and how often both agree with the recorded correctness (TRL reads
nothing in the JSON texts of GSM8K, which hold no LaTeX).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from meml_mel.grading.grader import claim
from meml_mel.grading.pool import GradeItem, GradingPool

PACKAGES = ("trl", "math-verify", "latex2sympy2_extended", "sympy")


def default_data() -> Path:
    shared = os.environ.get("MEML_MEL_SHARED")
    return (Path(shared) if shared else Path(__file__).resolve().parents[2] / "shared") / "data"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def load(data: Path) -> dict[str, list[tuple[str, str, bool | None]]]:
    """{set: [(gold, response, recorded correctness)]}"""
    qwen = rows(data / "recorded_outputs_qwen_math100_n8.jsonl")
    zeroeval = rows(data / "recorded_outputs_zeroeval_gsm8k_Qwen2-7B-Instruct.jsonl")
    ovm = rows(data / "recorded_outputs_ovm_gsm8k_many_samples.jsonl")
    return {
        "qwen_math100_n8": [
            (r["answer"], text, bool(ok))
            for r in qwen
            for text, ok in zip(r["responses"], r["correct"], strict=True)
        ],
        "zeroeval_gsm8k": [(r["answer"], r["response"], r["correct"]) for r in zeroeval],
        "ovm_gsm8k_100_samples": [
            (r["answer"], f"The answer is $\\boxed{{{p}}}$.", None)
            for r in ovm
            for p in r["predictions"][:100]
        ],
    }


def with_trl(items: list[tuple[str, str, bool | None]]) -> list[bool]:
    from trl.rewards import accuracy_reward

    completions = [[{"role": "assistant", "content": text}] for _, text, _ in items]
    return [reward == 1.0 for reward in accuracy_reward(completions, [f"${gold}$" for gold, _, _ in items])]


def with_pool(pool: GradingPool, items: list[tuple[str, str, bool | None]]) -> list[bool]:
    return [grade.right for grade in pool.grade([GradeItem(gold, text) for gold, text, _ in items])]


def measure(
    runners: dict[str, Callable[[], list[bool]]], repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[bool]]]:
    """Seconds of each runner in each repeat, interleaved, and what each said."""
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    said: dict[str, list[bool]] = {}
    names = list(runners)
    for repeat in range(repeats):
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            before = time.perf_counter()
            said[name] = runners[name]()
            seconds[name].append(time.perf_counter() - before)
    return seconds, said


def report(
    items: list[tuple[str, str, bool | None]], seconds: dict[str, list[float]], said: dict[str, list[bool]]
) -> dict[str, Any]:
    labelled = [i for i, (_, _, label) in enumerate(items) if label is not None]
    out: dict[str, Any] = {
        "responses": len(items),
        "distinct": len({claim(gold, text) for gold, text, _ in items}),
    }
    for name, times in seconds.items():
        entry: dict[str, Any] = {
            "seconds": [round(t, 3) for t in times],
            "responses_per_second": round(len(items) / median(times), 1),
        }
        if name != "trl":
            ratios = [theirs / ours for theirs, ours in zip(seconds["trl"], times, strict=True)]
            entry["times_faster_than_trl"] = round(median(ratios), 2)
            entry["times_faster_than_trl_at_first"] = round(ratios[0], 2)
        if labelled:
            entry["agree_with_labels"] = (
                f"{sum(said[name][i] == items[i][2] for i in labelled)}/{len(labelled)}"
            )
        out[name] = entry
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, default=default_data())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the JSON here, too")
    args = parser.parse_args()
    if not (args.data / "recorded_outputs_qwen_math100_n8.jsonl").is_file():
        parser.error(f"no recorded_outputs_* in {args.data}: name the folder, or set MEML_MEL_SHARED")
    logging.disable(logging.WARNING)

    result: dict[str, Any] = {
        "versions": {package: version(package) for package in PACKAGES} | {"python": sys.version.split()[0]},
        "cpus": os.cpu_count(),
        "workers": args.workers,
        "load_before": [round(load, 1) for load in os.getloadavg()],
        "sets": {},
    }
    with_trl([("1", "$\\boxed{1}$", None)])  # imports and compiles
    before = time.perf_counter()
    with GradingPool(args.workers) as pool, GradingPool(args.workers, deduplicate=False) as each:
        for one in (pool, each):
            with_pool(one, [("x+1", "$\\boxed{1+x}$", None)])
        result["seconds_to_start_a_pool"] = round((time.perf_counter() - before) / 2, 2)
        everything: dict[str, list[float]] = {}
        for name, items in load(args.data).items():
            runners: dict[str, Callable[[], list[bool]]] = {
                "trl": partial(with_trl, items),
                "ours": partial(with_pool, pool, items),
                "ours_without_deduplication": partial(with_pool, each, items),
            }
            seconds, said = measure(runners, args.repeats)
            result["sets"][name] = report(items, seconds, said)
            for runner, times in seconds.items():
                sums = everything.setdefault(runner, [0.0] * args.repeats)
                everything[runner] = [a + b for a, b in zip(sums, times, strict=True)]
    ratios = {
        runner: [t / o for t, o in zip(everything["trl"], times, strict=True)]
        for runner, times in everything.items()
        if runner != "trl"
    }
    result["all_sets_times_faster_than_trl"] = {name: round(median(r), 2) for name, r in ratios.items()}
    result["all_sets_times_faster_than_trl_at_first"] = {name: round(r[0], 2) for name, r in ratios.items()}
    result["load_after"] = [round(load, 1) for load in os.getloadavg()]
    text = json.dumps(result, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
