"""Accuracy of a saved model on sets of questions, in counts: greedy and sampled, under each expert's prompt.

    python examples/smollm2/evaluate.py --model runs/smollm2-135m/grpo/final --out runs/smollm2-135m/eval/grpo.json

`--sets` (examples/smollm2/evaluation.yaml) lists the sets: a name, `data` as in a run's config, optionally
`easy: {largest, max_characters}` (the rule of easy_questions.py, by the ground-truth solution, never by a model),
`questions` (the first so many), `experts`, `samples`, `temperature` (0 is greedy) and `max_tokens`. Experts and
prompts are those of `--config`. The answer of each (question, expert) is kept as a count of right samples, so
that averages, intervals and paired comparisons can be computed from the report alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import yaml
from easy_questions import easiest_first
from sampling import Sampler

from meml_mel.config import load_config
from meml_mel.data.load import DataSource, load_questions
from meml_mel.data.question import Question
from meml_mel.grading.pool import GradeItem, GradingPool
from meml_mel.meml.experts import NAMELESS
from meml_mel.prompts.library import Prompts


@dataclass(frozen=True)
class EvaluationSet:
    """What to ask and how. `questions`: the first so many; `experts`: all of the config's where None."""

    name: str
    data: DataSource
    easy: dict[str, int] | None = None
    questions: int | None = None
    experts: tuple[str, ...] | None = None
    samples: int = 1
    temperature: float = 0.0
    max_tokens: int = 96

    def __post_init__(self) -> None:
        if self.samples > 1 and not self.temperature:
            raise ValueError(
                f"set {self.name!r}: {self.samples} greedy samples are all the same: set samples 1"
            )

    def load(self) -> list[Question]:
        found = list(load_questions(self.data).questions)
        if self.easy:
            easy = {q.id for q in easiest_first(found, **self.easy)}
            found = [q for q in found if q.id in easy]
        return found[: self.questions]


def read_sets(path: Path, only: list[str] | None = None) -> list[EvaluationSet]:
    """The sets of a file; `only` some by name."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["sets"]
    unknown = set(only or ()) - {entry["name"] for entry in entries}
    if unknown:
        raise ValueError(
            f"{path} has no set {', '.join(sorted(unknown))}: it has {[e['name'] for e in entries]}"
        )
    sets = []
    for entry in entries:
        if only and entry["name"] not in only:
            continue
        experts = tuple(entry["experts"]) if "experts" in entry else None
        sets.append(EvaluationSet(**{**entry, "data": DataSource(**entry["data"]), "experts": experts}))
    return sets


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", required=True, help="folder of the trained model or adapter")
    parser.add_argument("--config", default="smollm2-135m/meml_mel", help="its experts and prompts")
    parser.add_argument("--sets", type=Path, default=Path("examples/smollm2/evaluation.yaml"))
    parser.add_argument("--only", nargs="*", help="names of sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    config = load_config(args.config, stage="rl")
    prompts = Prompts.load(config.prompts.templates())
    sets = read_sets(args.sets, args.only)
    sampler = Sampler(args.model, dtype=args.dtype, seed=args.seed)
    report: dict[str, Any] = {"model": args.model, "dtype": args.dtype, "seed": args.seed, "sets": {}}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with GradingPool(workers=1) as pool:
        for which in sets:
            started = time.perf_counter()
            questions = which.load()
            experts = [
                e for e in config.experts or (NAMELESS,) if not which.experts or e.name in which.experts
            ]
            asked = [(q, e) for q in questions for e in experts for _ in range(which.samples)]
            samples = sampler(
                [prompts.solve(q, e.name, e.system_prompt) for q, e in asked],
                which.max_tokens,
                which.temperature,
                args.batch,
            )
            grades = pool.grade(
                [
                    GradeItem(q.answer, s.text, q.kind, s.truncated)
                    for (q, _), s in zip(asked, samples, strict=True)
                ]
            )
            result: dict[str, Any] = {
                "temperature": which.temperature,
                "samples": which.samples,
                "max_tokens": which.max_tokens,
                "questions": [q.id for q in questions],
                "experts": {},
            }
            for expert in experts:
                mine = [i for i, (_, e) in enumerate(asked) if e is expert]
                right = dict.fromkeys(result["questions"], 0)
                for i in mine:
                    right[asked[i][0].id] += grades[i].right
                result["experts"][expert.name] = {
                    "asked": len(mine),
                    "right": sum(right.values()),
                    "boxed": sum("\\boxed{" in samples[i].text for i in mine),
                    "truncated": sum(samples[i].truncated for i in mine),
                    "mean_tokens": round(sum(samples[i].tokens for i in mine) / max(1, len(mine)), 1),
                    "right_per_question": list(right.values()),
                }
            report["sets"][which.name] = result
            args.out.write_text(json.dumps(report) + "\n")
            told = ", ".join(f"{n} {e['right']}/{e['asked']}" for n, e in result["experts"].items())
            print(f"{which.name}: {told} ({time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
