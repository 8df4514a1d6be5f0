"""What came out of the demo: held-out accuracy, the analyses' quality, yields, curves, and a few texts."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..data.load import load_questions
from ..data.source import DataSource
from ..evaluation.decoding import Decoding
from ..evaluation.loading import LoadedModel
from ..evaluation.results import Results
from ..evaluation.run import evaluate_questions
from ..evaluation.stats import compare
from ..grading.pool import GradingPool
from ..meml.experts import Expert
from ..prompts.library import Prompts
from ..report.plots import PlotError, plot_runs, read_metrics
from . import corpus, world
from .analyses import analysis_quality

MAX_TOKENS = 84  # the recipes' max_completion_length
PAIR_QUESTIONS = 100
YIELDS = {
    "mixed questions": "questions/mixed",
    "pairs": "objective/meta_experience/pairs",
    "valid analyses": "objective/meta_experience/analyses_valid",
    "kept by replay": "objective/meta_experience/retained",
    "mutual learning fired": "objective/mutual_learning/fired",
    "hard examples flushed": "objective/hard_examples/flushed",
}


def report(out: Path, models: Mapping[str, str]) -> dict[str, Any]:
    """Evaluate `out/NAME/final` of each model (name -> title), print the tables, draw; answers all numbers.

    Differences are against `grpo` where it is one of the models, else against the first.
    """
    prompts = Prompts.load(corpus.prompts_config())
    experts = [Expert(pupil.name) for pupil in world.EXPERTS]
    questions = load_questions(DataSource(path=str(out / "data/test.jsonl"), mapping=_MAPPING)).questions
    chains = world.test_questions(min(PAIR_QUESTIONS, len(questions)))
    results: dict[str, Results] = {}
    qualities = {}
    with GradingPool(workers=1) as pool:
        for name in models:
            loaded = LoadedModel.load(out / name / "final")
            found = evaluate_questions(
                loaded, questions, experts, prompts, Decoding(max_tokens=MAX_TOKENS), pool=pool
            )
            found.write(out / "evaluations" / name)
            results[name] = found
            qualities[name] = analysis_quality(loaded, chains, prompts)
    baseline = "grpo" if "grpo" in models else next(iter(models))
    accuracy = {name: _accuracy(found, results[baseline]) for name, found in results.items()}
    yields = {name: _yields(out / name) for name in models if name != "sft"}
    print(_accuracy_table(accuracy, models, models[baseline]))
    print(_quality_table({name: asdict(q) for name, q in qualities.items()}, models))
    print(_yield_table(yields, models))
    for text in _experiences(out, models):
        print(text)
    try:
        plot_runs({models[name]: out / name for name in yields}, out / "curves.png")
    except PlotError as error:
        print(f"no curves: {error}")
    return {
        "accuracy": accuracy,
        "baseline": baseline,
        "analyses": {name: asdict(quality) for name, quality in qualities.items()},
        "yields": yields,
    }


_MAPPING = {"id": "id", "problem": "problem", "answer": "answer", "solution": "solution"}


def _accuracy(found: Results, baseline: Results) -> dict[str, Any]:
    cells = {name: asdict(found.cell("pass@1", name).estimate) for name in found.summary.experts}
    cells["all"] = asdict(found.cell("pass@1").estimate)
    mine, other = found.by_question(), baseline.by_question()
    difference = compare([other[id] for id in mine], list(mine.values()))
    return {"pass@1": cells, "difference": asdict(difference)}


def _yields(run: Path) -> dict[str, int]:
    """Sums over the steps of what each stage gave; absent where the run had no such objective."""
    lines = read_metrics(run)
    return {
        label: int(sum(line[key] for line in lines if key in line))
        for label, key in YIELDS.items()
        if any(key in line for line in lines)
    }


def _accuracy_table(accuracy: Mapping[str, Any], titles: Mapping[str, str], baseline: str) -> str:
    experts = [pupil.name for pupil in world.EXPERTS]
    lines = [
        "",
        f"greedy answers right / asked, 95% intervals in %, difference to {baseline}",
        f"{'':<16}" + "".join(f"{name:>9}" for name in experts) + f"{'all three':>11}        difference",
    ]
    for name, found in accuracy.items():
        cells = found["pass@1"]
        each = "".join(f"{cells[e]['k']:>5.0f}/{cells[e]['n']}" for e in experts)
        total, (low, high) = cells["all"]["value"], cells["all"]["interval"]
        line = f"{titles[name]:<16}{each}  {100 * total:>4.0f} [{100 * low:.0f}, {100 * high:.0f}]"
        if titles[name] != baseline:
            difference = found["difference"]
            low, high = difference["interval"]
            line += f"  {100 * difference['difference']:>+4.0f} [{100 * low:+.0f}, {100 * high:+.0f}]"
        lines.append(line)
    return "\n".join(lines)


def _quality_table(qualities: Mapping[str, Mapping[str, int]], titles: Mapping[str, str]) -> str:
    lines = [
        "",
        "analyses of given pairs: well-formed, naming the true step, the right rule, both",
        f"{'':<16}{'well-formed':>13}{'step':>10}{'rule':>10}{'both':>10}",
    ]
    for name, q in qualities.items():
        valid, *rest = (f"{q[key]}/{q['of']}" for key in ("valid", "step", "rule", "both"))
        lines.append(f"{titles[name]:<16}{valid:>13}" + "".join(f"{cell:>10}" for cell in rest))
    return "\n".join(lines)


def _yield_table(yields: Mapping[str, Mapping[str, int]], titles: Mapping[str, str]) -> str:
    lines = ["", "summed over all steps"]
    lines += [f"{titles[name]:<16}{_listed(found)}" for name, found in yields.items()]
    return "\n".join(lines)


def _listed(found: Mapping[str, int]) -> str:
    """`label count` pairs, wrapped under the first."""
    words, lines = [f"{label} {count}" for label, count in found.items()], [""]
    for word in words:
        if len(lines[-1]) + len(word) > 60:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + word
    return f"\n{'':<16}".join(lines)


def _experiences(out: Path, models: Mapping[str, str]) -> list[str]:
    """One kept and one dropped meta-experience as the model wrote them, from the last run that has any."""
    import pyarrow.parquet as pq

    for name in reversed(list(models)):
        paths = sorted((out / name / "records/meta_experience").glob("*.parquet"))
        records = [record for path in paths for record in pq.read_table(path).to_pylist()]
        if not records:
            continue
        texts = []
        for title, retained in (("kept: its replay was right", True), ("dropped", False)):
            found = next((r for r in reversed(records) if r["retained"] == retained), None)
            if found is not None:
                why = "" if retained else f" ({found['exclusion'].replace('_', ' ')})"
                texts.append(
                    f"\na meta-experience of {models[name]}, {title}{why}\n"
                    f"  question:\n{_indented(found['problem'])}\n"
                    f"  wrong, by {found['wrong_expert']}:\n{_indented(found['wrong_text'])}\n"
                    f"  analysis:\n{_indented(found['analysis_text'])}"
                )
        return texts
    return []


def _indented(text: str) -> str:
    """Wrapped to 76 columns; a line's continuation stands two further in."""
    lines = text.strip().splitlines()
    return "\n".join(
        textwrap.fill(line, 76, initial_indent="    ", subsequent_indent="      ") for line in lines
    )
