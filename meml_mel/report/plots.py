"""Curves of one or several runs, from their metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# metrics.jsonl key -> the panel's title. A panel that no run has is left out.
PANELS = {
    "reward": "reward (share right)",
    "questions/mixed": "mixed questions",
    "objective/meta_experience/retained": "meta-experiences kept",
    "objective/mutual_learning/fired": "mutual learning fired",
    "objective/hard_examples/flushed": "hard examples flushed",
    "completions/mean_length": "response length (tokens)",
}


class PlotError(ValueError):
    """No picture can be drawn; the message says why and the way out."""


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; PlotError where there are none."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    if not lines:
        raise PlotError(f"{path} holds no metrics: the run did not finish a step, or wrote elsewhere")
    return [json.loads(line) for line in lines]


def plot_runs(runs: Mapping[str, Path], out: Path, panels: Mapping[str, str] = PANELS) -> Path:
    """Draw every panel for the runs (label -> folder) into one PNG; answers its path.

    Raises PlotError where matplotlib is not installed or a run has no metrics.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError("curves need matplotlib: pip install 'meml-mel[plots]'") from error
    metrics = {label: read_metrics(folder) for label, folder in runs.items()}
    shown = [key for key in panels if any(key in line for lines in metrics.values() for line in lines)]
    if not shown:
        raise PlotError("the runs' metrics.jsonl have none of " + ", ".join(panels))
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(4 * columns, 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, key in zip(axes, shown):
        _panel(axis, panels[key], key, metrics)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    axes[0].legend(fontsize=8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    return out


def _panel(axis: Any, title: str, key: str, metrics: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    for number, (label, lines) in enumerate(metrics.items()):
        points = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
        if points:
            axis.plot(*zip(*points), label=label, color=f"C{number}", linewidth=1.4)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("step", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
