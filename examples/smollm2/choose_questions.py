"""Which questions can a model sometimes answer? Those have mixed groups, and only those teach RL anything.

    python examples/smollm2/choose_questions.py --config smollm2-135m/meml_mel --model models/smollm2-135m-sft \\
        --out configs/smollm2-135m/questions.txt [--data.path FILE ...]

Takes the config's questions and experts. Candidates are the first of `data.ids_file` where one is given
(easy_questions.py writes one), else the shortest problems with a short ground-truth solution; under every expert's
prompt `--samples` responses are sampled as the config's rollouts are (temperature, max_completion_length), and a
question is kept if at least one of all its responses is right and one is wrong.
`--out` gets the ids, one a line, for `data.ids_file`; the counts per question go to `--report`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sampling import Sampler

from meml_mel.config import load_config
from meml_mel.data.load import load_questions
from meml_mel.data.question import Question
from meml_mel.grading.pool import GradeItem, GradingPool
from meml_mel.meml.experts import NAMELESS
from meml_mel.prompts.library import Prompts


def candidates(questions: Sequence[Question], count: int, max_lines: int) -> list[Question]:
    """The `count` shortest problems among those whose solution has at most `max_lines` lines, its answer's too."""
    short = [q for q in questions if q.solution and len(q.solution.strip().splitlines()) <= max_lines]
    return sorted(short, key=lambda q: len(q.problem))[:count]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", default="smollm2-135m/meml_mel")
    parser.add_argument("--model", required=True, help="folder of the trained model")
    parser.add_argument("--out", type=Path, default=Path("configs/smollm2-135m/questions.txt"))
    parser.add_argument("--report", type=Path, default=Path("runs/smollm2-135m/choice.json"))
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument(
        "--max-lines", type=int, default=3, help="of the ground-truth solution, answer line included"
    )
    parser.add_argument("--samples", type=int, default=2, help="for each question and expert")
    parser.add_argument("--seed", type=int, default=0)
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides, stage="rl")
    if config.data is None:
        parser.error("the config has no data section")
    prompts = Prompts.load(config.prompts.templates())
    experts = config.experts or (NAMELESS,)
    questions = load_questions(config.data).questions
    if config.data.ids_file:
        chosen = list(questions[: args.candidates])
    else:
        chosen = candidates(questions, args.candidates, args.max_lines)
    started = time.perf_counter()
    asked = [(q, e) for q in chosen for e in experts for _ in range(args.samples)]
    sampler = Sampler(args.model, seed=args.seed)
    samples = sampler(
        [prompts.solve(q, e.name, e.system_prompt) for q, e in asked],
        config.trl["max_completion_length"],
        config.trl["temperature"],
        batch=64,
    )
    with GradingPool(workers=1) as pool:
        grades = pool.grade(
            [
                GradeItem(q.answer, s.text, q.kind, s.truncated)
                for (q, _), s in zip(asked, samples, strict=True)
            ]
        )

    right: dict[str, Counter[str]] = {q.id: Counter() for q in chosen}
    for (q, e), grade in zip(asked, grades, strict=True):
        right[q.id][e.name] += grade.right
    total = len(experts) * args.samples
    kept = [q.id for q in chosen if 0 < sum(right[q.id].values()) < total]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("".join(f"{id}\n" for id in kept))
    seconds = round(time.perf_counter() - started)
    per_expert = {e.name: sum(right[q.id][e.name] for q in chosen) for e in experts}
    report = {
        "model": args.model,
        "temperature": config.trl["temperature"],
        "asked": len(chosen),
        "seconds": seconds,
        "samples_per_question": total,
        "right_per_expert": per_expert,
        "responses_per_expert": len(chosen) * args.samples,
        "truncated": sum(s.truncated for s in samples),
        "boxed": sum("\\boxed{" in s.text for s in samples),
        "mixed": len(kept),
        "always_right": sum(sum(r.values()) == total for r in right.values()),
        "never_right": sum(sum(r.values()) == 0 for r in right.values()),
        "right": {id: dict(counts) for id, counts in right.items()},
    }
    args.report.parent.mkdir(parents=True, exist_ok=True)
    args.report.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({k: v for k, v in report.items() if k != "right"}, indent=1))
    print(f"{len(kept)} of {len(chosen)} questions kept: {args.out}")


if __name__ == "__main__":
    main()
