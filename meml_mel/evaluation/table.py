"""The summary as plain text: one line a number, so that it fits 80 columns and a log file."""

from __future__ import annotations

from .summary import ALL, VOTE, Cell, Rates, Summary

WIDTH = 80
_NAME = 18
_LABELS = {ALL: "all experts", VOTE: "experts' vote", "": "(no expert)"}


def render(summary: Summary) -> str:
    """Lines `expert  measure  right/of  value  95% interval  cut  none  tokens`.

    Only the whole n is shown of pass@k and maj@k; results.json has the smaller k.
    """
    rates = {(r.expert, r.phase): r for r in summary.rates}
    lines = [
        f"{'expert':<{_NAME}} {'measure':<8} {'right/of':>11} {'value':>6}  {'95% interval':<14} "
        f"{'cut':>4} {'none':>4} {'tokens':>6}"
    ]
    lines.append("-" * len(lines[0]))
    shown: set[tuple[str, str]] = set()
    for name in (*summary.experts, ALL, VOTE):
        for cell in summary.cells:
            if cell.expert != name or not _whole(cell, summary):
                continue
            first = (cell.expert, cell.phase) not in shown
            shown.add((cell.expert, cell.phase))
            lines.append(_line(cell, rates.get((cell.expert, cell.phase)) if first else None))
    return "\n".join(lines + _notes(summary))


def _whole(cell: Cell, summary: Summary) -> bool:
    measure, _, k = cell.measure.partition("@")
    return measure not in ("pass", "maj") or cell.phase == "greedy" or int(k) >= summary.samples


def _line(cell: Cell, rates: Rates | None) -> str:
    found = cell.estimate
    low, high = found.interval
    line = (
        f"{_short(_LABELS.get(cell.expert, cell.expert)):<{_NAME}} {cell.measure:<8} "
        f"{f'{_count(found.k)}/{found.n}':>11} {_decimal(found.value):>6}  "
        f"{f'[{_decimal(low)}, {_decimal(high)}]':<14} "
    )
    if rates is not None:
        cut, none = rates.truncated / rates.responses, rates.no_answer / rates.responses
        line += f"{cut:>4.0%} {none:>4.0%} {rates.mean_tokens:>6.0f}"
    return line.rstrip()


def _notes(summary: Summary) -> list[str]:
    lines = [
        f"{summary.questions} questions"
        + (f", greedy and {summary.samples} samples" if summary.samples else ", greedy")
        + ". cut: token limit, none: no answer"
    ]
    if summary.ungradable:
        lines.append(
            f"left out, gold cannot be graded: {len(summary.ungradable)} questions ({_some(summary.ungradable)})"
        )
    for name, ids in summary.too_long.items():
        of = f" for {name}" if name else ""
        lines.append(f"counted wrong, prompt longer than the context{of}: {len(ids)} ({_some(ids)})")
    timeouts = sum(r.timeout for r in summary.rates)
    if timeouts:
        lines.append(f"counted wrong, grading timed out: {timeouts} responses")
    return lines


def _some(ids: tuple[str, ...]) -> str:
    return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")


def _short(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def _count(k: float) -> str:
    return f"{k:.0f}" if abs(k - round(k)) < 1e-9 else f"{k:.1f}"


def _decimal(value: float) -> str:
    """`.820`, `1.000`: three places without the leading zero."""
    return f"{value:.3f}".removeprefix("0") if value < 0.9995 else f"{value:.3f}"
