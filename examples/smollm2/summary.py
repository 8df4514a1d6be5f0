"""The tables and curves of docs/real-run.md, from the run folders or from what `collect` kept of them.

    python examples/smollm2/summary.py collect --into docs/real-run \\
        --run both=runs/smollm2-135m/meml_mel --run grpo=runs/smollm2-135m/grpo_experts --evaluations runs/.../eval
    python examples/smollm2/summary.py tables docs/real-run [--plot docs/real-run/curves.png]

`collect` writes NAME.metrics.jsonl (the columns that the tables need), NAME.config.yaml, NAME.meta_experiences.jsonl.gz
(one line a candidate, texts included) and evaluation.json (counts per question). `tables` prints Markdown.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

KEEP = (
    "step",
    "loss",
    "grad_norm",
    "reward",
    "frac_reward_zero_std",
    "questions/mixed",
    "step_time",
    "entropy",
)
PREFIXES = (
    "grade/",
    "objective/",
    "tokens/",
    "time/",
    "completions/mean_length",
    "completions/clipped_ratio",
)
ME = "objective/meta_experience/"
HARD = "objective/hard_examples/"
MUTUAL = "objective/mutual_learning/"
# What the table of yields sums up over the steps: label -> column.
YIELDS = {
    "mixed questions": "questions/mixed",
    "pairs": ME + "pairs",
    "of them across experts": ME + "pairs_across_experts",
    "analyses cut at the limit": ME + "truncated",
    "analyses that run on": ME + "run_on",
    "analyses of a wrong format": ME + "invalid_format",
    "analyses valid": ME + "analyses_valid",
    "replays": ME + "replays",
    "replays right = retained": ME + "retained",
    "retained that state the answer (leak)": ME + "retained_leaked",
    "questions with a retained one": ME + "questions_with_retained",
    "hard questions (all experts failed)": HARD + "triggered",
    "examples admitted to the buffer": HARD + "admitted",
    "examples flushed": HARD + "flushed",
    "mutual learning fired": MUTUAL + "fired",
    "mutual learning: ties": MUTUAL + "ties",
    "mutual learning: best without a right response": MUTUAL + "best_without_right",
}


def kept_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that the tables need, floats at six digits."""
    wanted = {k: v for k, v in row.items() if k in KEEP or k.startswith(PREFIXES)}
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in wanted.items()}


def wilson(right: int, asked: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of independent answers."""
    if asked == 0:
        return 0.0, 1.0
    p, d = right / asked, 1 + z * z / asked
    half = z * math.sqrt(p * (1 - p) / asked + z * z / (4 * asked * asked)) / d
    middle = (p + z * z / (2 * asked)) / d
    return max(0.0, middle - half), min(1.0, middle + half)


def clustered(right: Sequence[int], samples: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a mean over questions, each answered `samples` times: questions are the units."""
    n = len(right)
    shares = [r / samples for r in right]
    mean = sum(shares) / n
    if n < 2:
        return 0.0, 1.0
    error = math.sqrt(sum((s - mean) ** 2 for s in shares) / (n - 1) / n)
    return max(0.0, mean - z * error), min(1.0, mean + z * error)


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def yields(rows: Sequence[Mapping[str, float]]) -> dict[str, int]:
    """The counts of YIELDS summed over the steps, and the flushes; what a run does not have is left out."""
    found = {
        label: round(sum(row.get(column, 0.0) for row in rows))
        for label, column in YIELDS.items()
        if any(column in row for row in rows)
    }
    if any(HARD + "flush_count" in row for row in rows):
        found["buffer flushes"] = round(rows[-1][HARD + "flush_count"])
    return found


def yields_table(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    counts = {name: yields(rows) for name, rows in runs.items()}
    labels = [label for label in [*YIELDS, "buffer flushes"] if any(label in c for c in counts.values())]
    steps = ["steps", *(len(rows) for rows in runs.values())]
    return markdown(
        ["summed over the steps", *runs],
        [steps, *([label, *(c.get(label, "-") for c in counts.values())] for label in labels)],
    )


def steps_table(rows: Sequence[Mapping[str, float]], every: int) -> str:
    """Means (counts: sums) over windows of `every` steps."""
    columns = {
        "reward": ("reward", "mean"),
        "E0": ("grade/reward/E0", "mean"),
        "E1": ("grade/reward/E1", "mean"),
        "E2": ("grade/reward/E2", "mean"),
        "mixed": ("questions/mixed", "sum"),
        "pairs": (ME + "pairs", "sum"),
        "valid": (ME + "analyses_valid", "sum"),
        "retained": (ME + "retained", "sum"),
        "flushed": (HARD + "flushed", "sum"),
        "mutual": (MUTUAL + "fired", "sum"),
        "loss MEL": (ME + "loss", "mean"),
        "loss hard": (HARD + "loss", "mean"),
        "loss mutual": (MUTUAL + "loss", "mean"),
        "entropy": ("entropy", "mean"),
        "cut": ("completions/clipped_ratio", "mean"),
        "s a step": ("step_time", "mean"),
    }
    present = {label: c for label, c in columns.items() if any(c[0] in row for row in rows)}
    table = []
    for start in range(0, len(rows), every):
        window = rows[start : start + every]
        cells: list[object] = [f"{window[0]['step']:.0f}-{window[-1]['step']:.0f}"]
        for column, how in present.values():
            values = [row[column] for row in window if column in row]
            total = sum(values)
            cells.append(f"{total:.0f}" if how == "sum" else f"{total / max(1, len(values)):.3g}")
        table.append(cells)
    return markdown(["steps", *present], table)


def evaluation_table(evaluation: Mapping[str, Mapping[str, Any]]) -> str:
    """k/n and a 95 % interval per set, expert and model. Several samples a question: questions are the units."""
    rows = []
    first = next(iter(evaluation.values()))
    for name, which in first.items():
        for expert in which["experts"]:
            cells: list[object] = [f"{name}, {expert}"]
            for sets in evaluation.values():
                found = sets.get(name, {}).get("experts", {}).get(expert)
                cells.append(_share(found, sets[name]["samples"]) if found else "-")
            rows.append(cells)
        if len(which["experts"]) > 1:
            cells = [f"{name}, all"]
            for sets in evaluation.values():
                experts = sets.get(name, {}).get("experts", {}).values()
                per = [sum(r) for r in zip(*(e["right_per_question"] for e in experts), strict=True)]
                pooled = {
                    "right": sum(per),
                    "asked": sum(e["asked"] for e in experts),
                    "right_per_question": per,
                }
                cells.append(_share(pooled, len(experts) * which["samples"]) if per else "-")
            rows.append(cells)
    return markdown(["set, expert", *evaluation], rows)


def _share(found: Mapping[str, Any], samples: int) -> str:
    right, asked = found["right"], found["asked"]
    low, high = wilson(right, asked) if samples == 1 else clustered(found["right_per_question"], samples)
    return f"{right}/{asked} = {100 * right / max(1, asked):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def difference_table(evaluation: Mapping[str, Mapping[str, Any]], base: str) -> str:
    """Each model minus `base` on the same questions, in points, with a 95 % interval over the questions."""
    rows = []
    for name, which in evaluation[base].items():
        cells: list[object] = [name]
        for model, sets in evaluation.items():
            if model == base or name not in sets:
                continue
            cells.append(_difference(sets[name], which))
        rows.append(cells)
    return markdown(["set, all experts", *(f"{m} - {base}" for m in evaluation if m != base)], rows)


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    per = [_per_question(one), _per_question(other)]
    gaps = [a - b for a, b in zip(*per, strict=True)]
    mean = sum(gaps) / len(gaps)
    error = math.sqrt(sum((g - mean) ** 2 for g in gaps) / max(1, len(gaps) - 1) / len(gaps))
    return f"{100 * mean:+.1f} [{100 * (mean - 1.96 * error):+.1f}, {100 * (mean + 1.96 * error):+.1f}]"


def _per_question(which: Mapping[str, Any]) -> list[float]:
    """The share of right answers of each question, over experts and samples."""
    experts = which["experts"].values()
    total = sum(e["asked"] for e in experts) / len(which["questions"])
    return [sum(r) / total for r in zip(*(e["right_per_question"] for e in experts), strict=True)]


def fates_table(records: Sequence[Mapping[str, Any]]) -> str:
    """What became of the candidates, by exclusion."""
    fates = Counter(r["exclusion"] or "retained" for r in records)
    return markdown(["candidates", "count"], [*fates.most_common(), ("all", len(records))])


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.decode("utf-8").split("\n") if line.strip()]


def collect(runs: Mapping[str, Path], evaluations: Path | None, into: Path) -> None:
    """Copy what the tables need out of run folders."""
    import pyarrow.parquet as parquet

    into.mkdir(parents=True, exist_ok=True)
    for name, run in runs.items():
        rows = [kept_columns(row) for row in read_jsonl(run / "metrics.jsonl")]
        _write_lines(into / f"{name}.metrics.jsonl", rows)
        shutil.copyfile(run / "config.resolved.yaml", into / f"{name}.config.yaml")
        files = sorted((run / "records" / "meta_experience").glob("*.parquet"))
        records = [record for file in files for record in parquet.read_table(file).to_pylist()]
        if records:
            _write_lines(into / f"{name}.meta_experiences.jsonl.gz", [_short(r) for r in records])
    if evaluations is not None:
        reports = {f.stem: json.loads(f.read_text())["sets"] for f in sorted(evaluations.glob("*.json"))}
        (into / "evaluation.json").write_text(json.dumps(reports) + "\n")


def _short(record: Mapping[str, Any]) -> dict[str, Any]:
    columns = (
        "step question_id problem answer right_expert right_text wrong_expert wrong_text analysis_text valid "
        "format_reason leak_specific leak_general replay_text replay_verdict retained exclusion weight"
    )
    return {key: record[key] for key in columns.split()}


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8")
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def plot(runs: Mapping[str, Sequence[Mapping[str, float]]], path: Path, window: int = 5) -> None:
    """Reward over steps of each run, a running mean over it, and the counts of what was retained and flushed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(7, 5), sharex=True)
    for name, rows in runs.items():
        steps, reward = [r["step"] for r in rows], [r["reward"] for r in rows]
        smooth = [
            sum(reward[max(0, i - window + 1) : i + 1]) / min(window, i + 1) for i in range(len(reward))
        ]
        (line,) = top.plot(steps, smooth, label=f"{name}, mean of the last {window}")
        top.plot(steps, reward, ".", color=line.get_color(), alpha=0.35)
        for label, column in (
            ("retained", ME + "retained"),
            ("flushed", HARD + "flushed"),
            ("pairs", ME + "pairs"),
        ):
            if any(column in r for r in rows):
                counts, total = [], 0.0
                for r in rows:
                    total += r.get(column, 0.0)
                    counts.append(total)
                bottom.plot(steps, counts, label=f"{name}: {label}, so far")
    top.set_ylabel("mean reward")
    bottom.set_ylabel("count")
    bottom.set_xlabel("optimizer step")
    for axis in (top, bottom):
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def tables(folder: Path, every: int, base: str | None) -> str:
    parts = []
    runs = {
        p.name.removesuffix(".metrics.jsonl"): read_jsonl(p) for p in sorted(folder.glob("*.metrics.jsonl"))
    }
    parts += ["### Yields", yields_table(runs)]
    for name, rows in runs.items():
        parts += [f"### Steps of `{name}`", steps_table(rows, every)]
    for path in sorted(folder.glob("*.meta_experiences.jsonl.gz")):
        parts += [f"### Candidates of `{path.name.split('.')[0]}`", fates_table(read_jsonl(path))]
    if (folder / "evaluation.json").exists():
        evaluation = json.loads((folder / "evaluation.json").read_text())
        parts += ["### Evaluation", evaluation_table(evaluation)]
        if base in evaluation:
            parts += [difference_table(evaluation, base)]
    return "\n\n".join(parts)


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=FOLDER")
    return name, Path(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("collect")
    one.add_argument("--into", type=Path, required=True)
    one.add_argument("--run", type=_named, action="append", default=[], metavar="NAME=FOLDER")
    one.add_argument("--evaluations", type=Path)
    two = commands.add_parser("tables")
    two.add_argument("folder", type=Path)
    two.add_argument("--every", type=int, default=5)
    two.add_argument("--base", help="the model of evaluation.json that the others are compared with")
    two.add_argument("--plot", type=Path)
    args = parser.parse_args()
    if args.command == "collect":
        collect(dict(args.run), args.evaluations, args.into)
        return
    print(tables(args.folder, args.every, args.base))
    if args.plot:
        names = sorted(args.folder.glob("*.metrics.jsonl"))
        plot({p.name.removesuffix(".metrics.jsonl"): read_jsonl(p) for p in names}, args.plot)


if __name__ == "__main__":
    sys.exit(main())
