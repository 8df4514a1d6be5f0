"""`meml-mel grade`: one answer, or a file of them.

meml-mel grade --gold '1/2' --answer 'so it is \\boxed{0.5}'
meml-mel grade --jsonl answers.jsonl > grades.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

from .grader import KINDS, UNGRADABLE
from .pool import GradeItem, GradingPool
from .verdict import Grade, Kind

_BATCH = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `meml-mel grade`."""
    parser.add_argument(
        "--gold", help="the reference answer; give it again for each further final answer", action="append"
    )
    parser.add_argument("--answer", help="a bare answer, or a whole response")
    parser.add_argument("--kind", choices=KINDS, default="math", help="how to compare (default: math)")
    parser.add_argument("--json", action="store_true", help="print the grade as one JSON line")
    parser.add_argument(
        "--jsonl",
        metavar="FILE",
        help='grade lines {"gold": ..., "answer": ..., "kind"?: ..., "truncated"?: ...}; "-" reads standard input',
    )
    parser.add_argument("--workers", type=int, default=2, help="grading processes (default: 2)")
    parser.add_argument("--timeout", type=float, default=5.0, help="CPU seconds per answer (default: 5)")


def run(args: argparse.Namespace) -> int:
    """Run `meml-mel grade`; 0 unless it was called wrongly (2). The verdict is in the output, not in the code."""
    if (args.jsonl is None) == (args.gold is None and args.answer is None):
        return _usage("give --gold and --answer, or --jsonl FILE")
    if args.jsonl is None and (args.gold is None or args.answer is None):
        return _usage("--gold and --answer belong together")
    try:
        pool = GradingPool(workers=args.workers, timeout=args.timeout)
    except ValueError as error:
        return _usage(str(error))
    try:
        if args.jsonl is None:
            gold = args.gold[0] if len(args.gold) == 1 else args.gold
            _print_grade(pool.grade([GradeItem(gold, args.answer, args.kind)])[0], args.json)
        elif args.jsonl == "-":
            _grade_lines(sys.stdin.buffer, args.kind, pool)
        else:
            with open(args.jsonl, "rb") as lines:
                _grade_lines(lines, args.kind, pool)
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
    except OSError as error:
        return _usage(f"{args.jsonl}: {error.strerror}")
    finally:
        pool.close()
    return 0


def _usage(message: str) -> int:
    print(f"meml-mel grade: {message}", file=sys.stderr)
    return 2


def as_line(grade: Grade) -> str:
    """The grade as one JSON line (ASCII: lone surrogates survive)."""
    return json.dumps({"verdict": grade.verdict, "extracted": grade.extracted, "reason": grade.reason})


def _print_grade(grade: Grade, as_json: bool) -> None:
    if as_json:
        print(as_line(grade))
        return
    shown = grade.extracted or ""
    shown = shown if shown.isprintable() else ascii(shown)[1:-1]
    print(f"{grade.verdict}{f' ({grade.reason})' if grade.reason else ''}{f': {shown}' if shown else ''}")


def _grade_lines(lines: BinaryIO, kind: Kind, pool: GradingPool) -> None:
    """One JSON line out for each line in, whatever it holds."""
    numbered = enumerate(lines, start=1)
    while batch := list(islice(numbered, _BATCH)):
        items: list[GradeItem | None] = []
        for number, line in batch:
            item, complaint = read_line(line, kind)
            items.append(item)
            if complaint:
                print(f"line {number}: {complaint}", file=sys.stderr)
        grades: Iterator[Grade] = iter(pool.grade([item for item in items if item is not None]))
        for item in items:
            print(as_line(UNGRADABLE if item is None else next(grades)))
        sys.stdout.flush()


def read_line(line: bytes, kind: Kind) -> tuple[GradeItem | None, str | None]:
    """(item, complaint) of a line; no item where there is no gold to grade against.

    Numbers count as their text; an answer that is missing or no text is no answer.
    """
    try:
        row = json.loads(line.decode("utf-8", errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None, "not JSON"
    if not isinstance(row, dict):
        return None, f"a JSON {type(row).__name__}, not an object"
    gold = row.get("gold")
    golds = [_text(part) for part in gold] if isinstance(gold, list) else [_text(gold)]
    texts = [text for text in golds if text is not None]
    if not texts or len(texts) != len(golds):
        return None, "no 'gold' text"
    row_kind = row.get("kind") or kind
    if row_kind not in KINDS:
        return None, f"unknown kind {row_kind!r}: use one of {', '.join(KINDS)}"
    answer = _text(row.get("answer"))
    truncated = row.get("truncated") is True
    item = GradeItem(texts if isinstance(gold, list) else texts[0], answer or "", row_kind, truncated)
    return item, None if answer is not None else "no 'answer' text"


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="meml-mel grade", description="Grade answers against golds.")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    raise SystemExit(main())
