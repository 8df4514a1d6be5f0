"""What a step of MEL counts; docs/mel.md has the glossary."""

from __future__ import annotations

from collections.abc import Sequence

from ..rlvr.rollouts import ScoredBatch
from .records import Candidate


def step_metrics(batch: ScoredBatch, findings: Sequence[Sequence[Candidate]]) -> dict[str, float]:
    """Counts over the step, always there, and rates, left out where there is nothing to divide by.

    `retention_rate` is |D_M*| / |D_M| (MEL Fig. 9) with D_M the analyses that were generated.
    """
    candidates = [candidate for found in findings for candidate in found]
    excluded = [candidate.exclusion for candidate in candidates]
    analysed = len(candidates) - excluded.count("analysis_prompt_too_long")
    valid = [c for c in candidates if c.valid]
    leaks = [c.leak for c in valid if c.leak]
    replays = [c.replay for c in candidates if c.replay and c.replay.finish != "prompt_too_long"]
    retained = [c for c in candidates if c.retained]
    counts = {
        "mixed_questions": sum(q.mixed for q in batch.questions),
        "pairs": len(candidates),
        "pairs_across_experts": sum(c.pair.right.expert != c.pair.wrong.expert for c in candidates),
        "prompt_too_long": excluded.count("analysis_prompt_too_long"),
        "truncated": excluded.count("analysis_truncated"),
        "run_on": excluded.count("analysis_run_on"),
        "invalid_format": excluded.count("invalid_format"),
        "analyses_valid": len(valid),
        "leaked_dropped": excluded.count("leaked"),
        "replay_prompt_too_long": excluded.count("replay_prompt_too_long"),
        "replays": len(replays),
        "replay_truncated": sum(replay.finish == "length" for replay in replays),
        "replay_right": sum(replay.grade is not None and replay.grade.right for replay in replays),
        "retained": len(retained),
        "retained_leaked": sum(c.leak is not None and c.leak.anywhere for c in retained),
        "questions_with_retained": sum(any(c.retained for c in found) for found in findings),
        "nll_tokens": sum(len(c.analysis.token_ids) for c in retained),
    }
    rates = {
        "valid_rate": (len(valid), analysed),
        "leak_rate": (sum(leak.anywhere for leak in leaks), len(valid)),
        "leak_rate_specific": (sum(leak.specific for leak in leaks), len(valid)),
        "leak_rate_general": (sum(leak.general for leak in leaks), len(valid)),
        "replay_right_rate": (counts["replay_right"], len(replays)),
        "retention_rate": (len(retained), analysed),
    }
    return {name: float(count) for name, count in counts.items()} | {
        name: part / whole for name, (part, whole) in rates.items() if whole
    }
