"""How often the grader agrees with the verdicts of others' test suites and of recorded model outputs.

    python benchmarks/grader_agreement.py [DATA] [--list]

DATA holds grader_cases.jsonl and grader_cases_real_outputs.jsonl: (gold, prediction, expected) with their
sources. By default it is the data/ of the folder that MEML_MEL_SHARED names, or of ../shared. Per source it
prints the agreement of this package with the installed math-verify; of that math-verify alone (its default
settings, texts without LaTeX put between dollar signs, run now in a process that is restarted when a case takes
too long); and of math-verify 0.9.0 alone as recorded in the files. `--list` adds every disagreement of ours.

The verdict of a suite is one convention among several (units, order, rounding), so a disagreement is a place to
look; all of them are argued in grader_adjudication.jsonl, which this script reads.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from meml_mel.grading.pool import GradeItem, GradingPool

FILES = ("grader_cases.jsonl", "grader_cases_real_outputs.jsonl")
ADJUDICATION = Path(__file__).with_name("grader_adjudication.jsonl")
_BARE_SECONDS = 40.0
_BARE = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from math_verify import parse, verify
out = sys.stdout
sys.stdout = sys.stderr
def formula(text):
    return text if any(sign in text for sign in ("$", "\\\\boxed", "\\\\(", "\\\\[")) else f"${text}$"
for line in sys.stdin:
    gold, prediction = json.loads(line)
    try:
        right = bool(verify(parse(formula(gold)), parse(formula(prediction))))
    except Exception:
        right = False
    out.write(f"{int(right)}\\n")
    out.flush()
"""


@dataclass(frozen=True)
class Row:
    """One source's counts."""

    source: str
    cases: int
    ours: int
    bare: int | None  # the installed math-verify alone; None where it was not run
    recorded: int  # math-verify 0.9.0 alone, from the file


def default_data() -> Path:
    shared = os.environ.get("MEML_MEL_SHARED")
    return (Path(shared) if shared else Path(__file__).resolve().parents[2] / "shared") / "data"


def load(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def item(case: dict[str, Any]) -> GradeItem:
    """The suites' multiple-choice cases are marked by their options; all else is mathematics."""
    letters = "NativeLetters" in ((case.get("options") or {}).get("match_types") or [])
    return GradeItem(case["gold"], case["prediction"], "choice" if letters else "math")


def bare_verdicts(cases: list[dict[str, Any]]) -> list[bool]:
    """What math-verify alone says; a case on which it hangs or dies counts as not right."""
    verdicts: list[bool] = []
    while len(verdicts) < len(cases):
        with subprocess.Popen(
            [sys.executable, "-c", _BARE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            for case in cases[len(verdicts) :]:
                process.stdin.write(json.dumps([case["gold"], case["prediction"]]).encode() + b"\n")
                process.stdin.flush()
                ready, _, _ = select.select([process.stdout], [], [], _BARE_SECONDS)
                answer = os.read(process.stdout.fileno(), 16) if ready else b""
                verdicts.append(answer.strip() == b"1")
                if not answer:
                    process.kill()
                    break
            process.stdin.close()
    return verdicts


def group(source: str) -> str:
    """The file or run that a case comes from, without its verdict's name."""
    return source.split(" (")[0]


def table(cases: list[dict[str, Any]], ours: list[bool], bare: list[bool] | None) -> list[Row]:
    """One row per source, in the file's order."""
    rows = []
    for source in dict.fromkeys(group(c["source"]) for c in cases):
        where = [i for i, c in enumerate(cases) if group(c["source"]) == source]
        rows.append(
            Row(
                source,
                len(where),
                sum(ours[i] == cases[i]["expected"] for i in where),
                None if bare is None else sum(bare[i] == cases[i]["expected"] for i in where),
                sum(cases[i]["math_verify_0_9_0"] == cases[i]["expected"] for i in where),
            )
        )
    return rows


def total(rows: Iterable[Row]) -> Row:
    rows = list(rows)
    bare = None if any(r.bare is None for r in rows) else sum(r.bare or 0 for r in rows)
    return Row(
        "all", sum(r.cases for r in rows), sum(r.ours for r in rows), bare, sum(r.recorded for r in rows)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, default=default_data())
    parser.add_argument("--list", action="store_true", help="print every disagreement")
    parser.add_argument("--no-bare", action="store_true", help="do not run math-verify alone")
    args = parser.parse_args()
    if not (args.data / FILES[0]).is_file():
        parser.error(f"no {FILES[0]} in {args.data}: name the folder, or set MEML_MEL_SHARED")

    adjudicated = {entry["id"] for entry in load(ADJUDICATION)}
    installed = version("math-verify")
    print(f"math-verify {installed}, latex2sympy2_extended {version('latex2sympy2_extended')}")
    with GradingPool() as pool:
        for name in FILES:
            cases = load(args.data / name)
            grades = pool.grade([item(case) for case in cases])
            ours = [grade.right for grade in grades]
            bare = None if args.no_bare else bare_verdicts(cases)
            rows = table(cases, ours, bare)
            print(f"\n| {name} | cases | ours | math-verify {installed} alone | 0.9.0 alone, recorded |")
            print("|---|---|---|---|---|")
            for row in [*rows, total(rows)]:
                shown = "" if row.bare is None else row.bare
                print(f"| {row.source} | {row.cases} | {row.ours} | {shown} | {row.recorded} |")
            against = [i for i, case in enumerate(cases) if ours[i] != case["expected"]]
            outside = [cases[i]["id"] for i in against if cases[i]["id"] not in adjudicated]
            named = " ".join(outside) or "-"
            print(
                f"\n{len(against)} disagreements, {len(outside)} of them not in {ADJUDICATION.name}: {named}"
            )
            for i in against if args.list else []:
                case, grade = cases[i], grades[i]
                print(f"  {case['id']}: gold {case['gold'][-80:]!r}, prediction {case['prediction'][-80:]!r}")
                print(
                    f"    label {case['expected']}; ours {grade.verdict} ({grade.reason}): {grade.extracted!r}"
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
