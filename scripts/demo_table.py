"""The table of docs/demo.md from several runs' demo.json.

python scripts/demo_table.py runs/demo-seed*/demo.json [--update docs/demo.md]

With `--update` the text between the page's `<!-- table -->` marks is replaced; without it the table is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TITLES = {
    "sft": "after SFT",
    "grpo": "plain GRPO",
    "meml": "MEML-GRPO",
    "mel": "MEL",
    "meml_mel": "both",
}
MARKS = ("<!-- table -->", "<!-- end of the table -->")


def tables(runs: Sequence[Mapping[str, Any]]) -> str:
    """Two Markdown tables over the runs: accuracy per seed and together, and the analyses' quality."""
    arms = [arm for arm in TITLES if all(arm in run["accuracy"] for run in runs)]
    seeds = [f"seed {run['seed']}" for run in runs]
    lines = [f"| greedy, right / asked | {' | '.join(seeds)} | all | points against GRPO, per seed |"]
    lines.append("|" + "---|" * (len(seeds) + 3))
    for arm in arms:
        cells = [run["accuracy"][arm]["pass@1"]["all"] for run in runs]
        right, asked = sum(cell["k"] for cell in cells), sum(cell["n"] for cell in cells)
        counts = " | ".join(f"{cell['k']:.0f}/{cell['n']}" for cell in cells)
        lines.append(f"| {TITLES[arm]} | {counts} | {right:.0f}/{asked} ({100 * right / asked:.0f} %) | "
                     f"{'' if arm == 'grpo' else _differences(runs, arm)} |")  # fmt: skip
    experts = [name for name in runs[0]["accuracy"][arms[0]]["pass@1"] if name != "all"]
    lines += ["", f"| greedy, all seeds | {' | '.join(experts)} |", "|" + "---|" * (len(experts) + 1)]
    for arm in arms:
        counts = []
        for expert in experts:
            cells = [run["accuracy"][arm]["pass@1"][expert] for run in runs]
            counts.append(f"{sum(c['k'] for c in cells):.0f}/{sum(c['n'] for c in cells)}")
        lines.append(f"| {TITLES[arm]} | {' | '.join(counts)} |")
    keys = ("valid", "step", "rule", "both")
    lines += ["", "| analyses of given pairs, all seeds | well-formed | true step | right rule | both |"]
    lines.append("|---|---|---|---|---|")
    for arm in arms:
        sums = [sum(run["analyses"][arm][key] for run in runs) for key in ("of", *keys)]
        lines.append(f"| {TITLES[arm]} | " + " | ".join(f"{k}/{sums[0]}" for k in sums[1:]) + " |")
    lines += ["", "| summed over steps and seeds | what the stages gave |", "|---|---|"]
    for arm in arms[1:]:
        labels = runs[0]["yields"][arm]
        given = ", ".join(f"{label} {sum(run['yields'][arm][label] for run in runs)}" for label in labels)
        lines.append(f"| {TITLES[arm]} | {given} |")
    return "\n".join(lines)


def _differences(runs: Sequence[Mapping[str, Any]], arm: str) -> str:
    """Each seed's paired difference, and over the seeds their mean with its standard error."""
    values = [100 * run["accuracy"][arm]["difference"]["difference"] for run in runs]
    mean = sum(values) / len(values)
    text = ", ".join(f"{value:+.1f}" for value in values)
    if len(values) > 1:
        spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
        text += f"; mean {mean:+.1f} (s.e. {spread:.1f})"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--update", type=Path)
    args = parser.parse_args()
    text = tables([json.loads(path.read_text()) for path in args.runs])
    if args.update is None:
        print(text)
        return
    page = args.update.read_text()
    pattern = re.compile(f"{re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{args.update} has no {MARKS[0]} ... {MARKS[1]}")
    args.update.write_text(pattern.sub(lambda _: f"{MARKS[0]}\n{text}\n{MARKS[1]}", page))


if __name__ == "__main__":
    main()
