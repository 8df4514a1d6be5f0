"""Demonstrations of MEL's two extra tasks, written by rule: what an analysis and a replay look like.

    python examples/smollm2/make_analyses.py --config configs/smollm2-135m/sft.yaml \\
        --experts-column experts --out runs/smollm2-135m/demonstrations [--data.path FILE ...]

A 135M model does not write four sections when asked to, so SFT shows it some. For questions that other models
answered, right and wrong, `rules.py` finds the first calculation at which a wrong solution leaves a right one
and writes the analysis; no model is asked. Two files of ready rows for `sft.extra_rows`:

- analyses.jsonl: the analysis prompt with the wrong and the right solution -> the four sections;
- replays.jsonl: an expert's replay prompt with that analysis -> the expert's own right solution.

The config is the SFT stage's: its questions, experts and prompt templates are used, so that the demonstrations
read like what the trained model meets. The right solutions are the experts' rows of `data`; the wrong ones come
from every entry `{response, answer, correct}` under `--experts-column` of the same rows.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rules import Slip, analysis, find_slip

from meml_mel.config import RunConfig, load_config
from meml_mel.data.columns import lookup
from meml_mel.data.load import load_questions, open_rows
from meml_mel.data.question import Question
from meml_mel.data.solutions import load_solutions
from meml_mel.mel.parse import FormatError, parse_meta_experience
from meml_mel.meml.experts import SFTRow, sft_rows
from meml_mel.prompts.library import Prompts


@dataclass(frozen=True)
class Demonstration:
    """A wrong and a right attempt at one question, and where they part."""

    question: Question
    wrong: str
    right: SFTRow
    slip: Slip

    @property
    def analysis(self) -> str:
        return analysis(self.question.problem, self.slip)


def as_attempt(entry: Mapping[str, Any]) -> str:
    """A recorded solution as a rollout looks: no calculator notes, its answer boxed at the end."""
    text = re.sub(r"<<[^<>]*>>", "", entry["response"]).strip()
    text = re.sub(r"\n(?:A:|####)[^\n]*$", "", text).strip()
    return f"{text}\n\nThe answer is \\boxed{{{entry['answer']}}}."


def best(
    question: Question, entries: Mapping[str, Any], rights: list[SFTRow], limit: int
) -> Demonstration | None:
    """The question's clearest pair: as much shared as can be, then the shortest; None where no rule applies."""
    candidates = []
    for name, entry in entries.items():
        if entry["correct"] or not str(entry.get("answer") or "").strip():
            continue
        wrong = as_attempt(entry)
        for right in rights:
            if len(wrong) + len(right.response) > limit:
                continue
            slip = find_slip(question.problem, entry["response"], right.response)
            if slip:
                size = len(wrong) + len(right.response)
                key = (slip.kind == "subgoal", -slip.shared, size, name, right.expert.name)
                candidates.append((key, Demonstration(question, wrong, right, slip)))
    return min(candidates, key=lambda c: c[0])[1] if candidates else None


def choose(found: list[Demonstration], count: int, seed: int) -> list[Demonstration]:
    """`count` of them, no kind of slip with more than a third."""
    random.Random(seed).shuffle(found)
    kept: list[Demonstration] = []
    kinds: Counter[str] = Counter()
    for demonstration in found:
        if len(kept) < count and kinds[demonstration.slip.kind] < max(1, count // 3):
            kinds[demonstration.slip.kind] += 1
            kept.append(demonstration)
    return kept


def find_all(config: RunConfig, column: str, limit: int) -> list[Demonstration]:
    """At most one demonstration a question, in the data's order."""
    if config.data is None:
        sys.exit("the config has no data section: name the questions there")
    questions = load_questions(config.data).questions
    solutions = {
        e.name: load_solutions(e.solutions, questions, config.data, e.name)
        for e in config.experts
        if e.solutions
    }
    rows, _ = sft_rows(questions, config.experts, solutions)
    rights: dict[str, list[SFTRow]] = {}
    for row in rows:
        rights.setdefault(row.question.id, []).append(row)
    by_id = {q.id: q for q in questions}
    found = []
    raw, mapper, _, _ = open_rows(config.data)
    for row in raw:
        entries, question = lookup(row, column), by_id.get(mapper(row).id or "")
        if not isinstance(entries, Mapping):
            sys.exit(f"--experts-column {column}: the rows have no such mapping; they have {', '.join(row)}")
        if question and (demonstration := best(question, entries, rights.get(question.id, []), limit)):
            found.append(demonstration)
    return found


def analysis_row(demonstration: Demonstration, prompts: Prompts) -> dict[str, Any]:
    right = demonstration.right.response
    prompt = prompts.analyse(demonstration.question, right=right, wrong=demonstration.wrong)
    text = demonstration.analysis
    parsed = parse_meta_experience(text)
    if isinstance(parsed, FormatError):
        raise AssertionError(
            f"{demonstration.question.id}: the analysis by rule does not parse: {parsed.reason}"
        )
    return {
        "id": demonstration.question.id,
        "kind": demonstration.slip.kind,
        "prompt": list(prompt),
        "completion": text,
    }


def replay_row(demonstration: Demonstration, prompts: Prompts) -> dict[str, Any]:
    experience = parse_meta_experience(demonstration.analysis)
    assert not isinstance(experience, FormatError)
    expert = demonstration.right.expert
    prompt = prompts.replay(
        demonstration.question, experience, prompts.system(expert.name, expert.system_prompt)
    )
    return {
        "id": demonstration.question.id,
        "expert": expert.name,
        "prompt": list(prompt),
        "completion": demonstration.right.response,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", default="configs/smollm2-135m/sft.yaml")
    parser.add_argument(
        "--experts-column", default="experts", help="mapping name -> {response, answer, correct}"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/smollm2-135m/demonstrations"))
    parser.add_argument("--analyses", type=int, default=150)
    parser.add_argument("--replays", type=int, default=75)
    parser.add_argument("--max-characters", type=int, default=700, help="of the two attempts together")
    parser.add_argument("--seed", type=int, default=0)
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides, stage="sft")
    prompts = Prompts.load(config.prompts.templates())

    found = find_all(config, args.experts_column, args.max_characters)
    kept = choose(found, args.analyses, args.seed)
    write(args.out / "analyses.jsonl", [analysis_row(d, prompts) for d in kept])
    write(args.out / "replays.jsonl", [replay_row(d, prompts) for d in kept[: args.replays]])
    kinds = Counter(d.slip.kind for d in kept)
    print(f"{len(found)} questions have a pair that the rules can read; {len(kept)} kept")
    print("kinds of slip: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    print(f"wrote {args.out / 'analyses.jsonl'} and {args.out / 'replays.jsonl'}")


if __name__ == "__main__":
    main()
