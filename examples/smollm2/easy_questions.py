"""The easy questions of GSM8K's train split: some as demonstrations for SFT, others as candidates for RL.

    python examples/smollm2/easy_questions.py --out runs/smollm2-135m/easy [--data.path FILE --data.name null]

A 135M model is right on almost none of GSM8K, so RL on all of it has no reward. Easy here: one or two
calculations, each right, all numbers whole and at most `--largest`, a problem of at most `--max-characters`.
The easiest come first (fewest calculations, then the smallest largest number); of the first 2 x `--candidates`
every second one is a candidate for RL and never a demonstration, the rest serve as demonstrations.

Demonstrations are GSM8K's own solutions, one expert each in turn, laid out in that expert's style: E0 as written,
E1 in one paragraph, E2 as a numbered list. Two files: solutions.jsonl for `sft.extra_rows`, candidates.txt for
`choose_questions.py --data.ids_file`.

    python examples/smollm2/easy_questions.py --stage sft --config smollm2-135m/sft --list 60 --out FILE.txt

writes the ids of the easiest questions of a config's data instead, one a line, for `data.ids_file`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from calculations import as_text, calculations

from meml_mel.config import load_config
from meml_mel.data.load import load_questions
from meml_mel.data.question import Question
from meml_mel.prompts.library import Prompts


def easiness(question: Question, largest: int, max_characters: int) -> tuple[int, int, int] | None:
    """(calculations, largest number, characters), smaller is easier; None where the question is not easy."""
    found = calculations(question.solution or "")
    numbers = [n for c in found for n in (*c.numbers, c.result)]
    if not 1 <= len(found) <= 2 or len(question.problem) > max_characters or not all(c.holds for c in found):
        return None
    if any(n.denominator != 1 or n > largest for n in numbers):
        return None
    if as_text(found[-1].result) != question.answer or len(lines_of(question)) > 2:
        return None
    return len(found), int(max(numbers)), len(question.problem)


def lines_of(question: Question) -> list[str]:
    """The solution's lines without the one that repeats the answer."""
    lines = [line.strip() for line in (question.solution or "").splitlines()]
    return [line for line in lines if line and not line.startswith("####")]


def _sentence(line: str) -> str:
    return line if line.endswith((".", "!", "?")) else f"{line}."


LAYOUTS: dict[str, Callable[[list[str]], str]] = {
    "E0": lambda lines: "\n".join(lines),
    "E1": lambda lines: " ".join(_sentence(line) for line in lines),
    "E2": lambda lines: "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1)),
}


def completion(question: Question, expert: str) -> str:
    """The solution in the expert's layout, its answer boxed at the end."""
    text = re.sub(r"[ \t]+", " ", LAYOUTS[expert](lines_of(question)))
    return f"{text}\nThe answer is \\boxed{{{question.answer}}}."


def easiest_first(questions: Sequence[Question], largest: int, max_characters: int) -> list[Question]:
    """The easy ones among the questions, by `easiness`, equals by their id."""
    keyed = [(easiness(q, largest, max_characters), q) for q in questions]
    return [q for _, q in sorted(((k, q) for k, q in keyed if k), key=lambda pair: (pair[0], pair[1].id))]


def split(
    easy: list[Question], candidates: int, demonstrations: int
) -> tuple[list[Question], list[Question]]:
    """(candidates for RL, demonstrations), disjoint, in the order given."""
    first = easy[: 2 * candidates]
    return first[::2], (first[1::2] + easy[2 * candidates :])[:demonstrations]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", default="smollm2-135m/meml_mel", help="its data, experts and prompts")
    parser.add_argument("--out", type=Path, default=Path("runs/smollm2-135m/easy"))
    parser.add_argument("--candidates", type=int, default=120)
    parser.add_argument("--demonstrations", type=int, default=480)
    parser.add_argument("--largest", type=int, default=100)
    parser.add_argument("--max-characters", type=int, default=180, help="of the problem")
    parser.add_argument("--stage", choices=("rl", "sft"), default="rl", help="whose config it is")
    parser.add_argument("--list", type=int, help="write this many ids to --out, and nothing else")
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides, stage=args.stage)
    if config.data is None:
        parser.error("the config has no data section")
    unknown = [e.name for e in config.experts if e.name not in LAYOUTS]
    if unknown or not config.experts:
        parser.error(f"experts with a layout are {', '.join(LAYOUTS)}; the config has {unknown or 'none'}")
    prompts = Prompts.load(config.prompts.templates())
    easy = easiest_first(load_questions(config.data).questions, args.largest, args.max_characters)
    if args.list:
        args.out.write_text("".join(f"{q.id}\n" for q in easy[: args.list]))
        print(f"{min(args.list, len(easy))} of {len(easy)} easy questions: {args.out}")
        return
    candidates, demonstrations = split(easy, args.candidates, args.demonstrations)
    rows = []
    for i, question in enumerate(demonstrations):
        expert = config.experts[i % len(config.experts)]
        rows.append(
            {
                "id": question.id,
                "expert": expert.name,
                "prompt": list(prompts.solve(question, expert.name, expert.system_prompt)),
                "completion": completion(question, expert.name),
            }
        )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "candidates.txt").write_text("".join(f"{q.id}\n" for q in candidates))
    (args.out / "solutions.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    per_expert = ", ".join(f"{e} {n}" for e, n in Counter(row["expert"] for row in rows).items())
    print(f"{len(candidates)} candidates for RL, {len(rows)} demonstrations ({per_expert}): {args.out}")


if __name__ == "__main__":
    main()
