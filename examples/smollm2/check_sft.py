"""What SFT taught, in counts: boxed answers and right ones per expert, analyses that parse, replays that are right.

    python examples/smollm2/check_sft.py --model models/smollm2-135m-sft --config smollm2-135m/meml_mel \\
        --demonstrations runs/smollm2-135m/demonstrations --report runs/smollm2-135m/check.json [--data.path FILE ...]

Solve: `--questions` questions of the config's data (its ids_file included), one sample under each expert.
Analysis: a right and a wrong response of the same question from those samples, as in training; where too few
questions are mixed, the data's ground-truth solution stands for the right one. Replay: under the expert that was
wrong, with every analysis that parsed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sampling import Sample, Sampler

from meml_mel.config import load_config
from meml_mel.data.load import load_questions
from meml_mel.grading.pool import GradeItem, GradingPool
from meml_mel.mel.parse import FormatError, parse_meta_experience
from meml_mel.meml.experts import NAMELESS
from meml_mel.meml.hard_examples import solution_text
from meml_mel.prompts.library import Prompts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", default="smollm2-135m/meml_mel")
    parser.add_argument("--model", required=True)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--analyses", type=int, default=30)
    parser.add_argument(
        "--max-lines", type=int, default=3, help="of the ground-truth solution, answer line included"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="of the solve phase; 0 is greedy")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides, stage="rl")
    if config.data is None:
        parser.error("the config has no data section")
    prompts = Prompts.load(config.prompts.templates())
    experts = config.experts or (NAMELESS,)
    rng = random.Random(args.seed)
    questions = [
        q
        for q in load_questions(config.data).questions
        if q.solution and len(q.solution.strip().splitlines()) <= args.max_lines
    ]
    questions = rng.sample(questions, min(args.questions, len(questions)))
    sampler = Sampler(args.model, seed=args.seed)
    pool = GradingPool(workers=1)

    def graded(asked: list[Any], samples: list[Sample]) -> list[bool]:
        items = [GradeItem(q.answer, s.text, q.kind, s.truncated) for (q, *_), s in zip(asked, samples)]
        return [grade.right for grade in pool.grade(items)]

    asked = [(q, e) for q in questions for e in experts]
    limit = config.trl["max_completion_length"]
    samples = sampler([prompts.solve(q, e.name, e.system_prompt) for q, e in asked], limit, args.temperature)
    rights = graded(asked, samples)
    report: dict[str, Any] = {"model": args.model, "temperature": args.temperature, "solve": {}}
    for expert in experts:
        mine = [i for i, (_, e) in enumerate(asked) if e is expert]
        report["solve"][expert.name] = {
            "n": len(mine),
            "boxed": sum("\\boxed{" in samples[i].text for i in mine),
            "right": sum(rights[i] for i in mine),
            "truncated": sum(samples[i].truncated for i in mine),
            "mean_tokens": round(sum(samples[i].tokens for i in mine) / len(mine), 1),
        }

    pairs = []
    for i, (q, e) in enumerate(asked):
        if not rights[i] and not samples[i].truncated:
            own = [samples[j].text for j, (other, _) in enumerate(asked) if other is q and rights[j]]
            pairs.append((q, e, samples[i].text, own[0] if own else solution_text(q), bool(own)))
    pairs.sort(key=lambda p: not p[4])
    pairs = pairs[: args.analyses]
    how = config.sampling.analysis
    texts = sampler(
        [prompts.analyse(q, right=r, wrong=w) for q, _, w, r, _ in pairs],
        how.max_tokens or 256,
        how.temperature,
        8,
    )
    parsed = [
        (p, parse_meta_experience(t.text)) for p, t in zip(pairs, texts, strict=True) if not t.truncated
    ]
    valid = [(p, m) for p, m in parsed if not isinstance(m, FormatError)]
    report["analysis"] = {
        "n": len(pairs),
        "with_own_right_response": sum(p[4] for p in pairs),
        "truncated": sum(t.truncated for t in texts),
        "parsed": len(valid),
        "temperature": how.temperature,
        "mean_tokens": round(sum(t.tokens for t in texts) / max(1, len(texts)), 1),
    }
    replays = sampler(
        [prompts.replay(p[0], m, prompts.system(p[1].name, p[1].system_prompt)) for p, m in valid],
        config.sampling.replay.max_tokens or limit,
        config.sampling.replay.temperature,
        16,
    )
    report["replay"] = {"n": len(valid), "right": sum(graded([p for p, _ in valid], replays))}
    pool.close()
    print(json.dumps(report, indent=1))
    if args.report:
        examples = [
            {"id": q.id, "expert": e.name, "response": s.text, "right": r}
            for (q, e), s, r in zip(asked, samples, rights, strict=True)
        ]
        report["responses"], report["analyses"] = examples, [t.text for t in texts]
        args.report.parent.mkdir(parents=True, exist_ok=True)
        args.report.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
