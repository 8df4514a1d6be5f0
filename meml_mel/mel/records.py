"""The record of one meta-experience, kept or not: everything that made it, as a flat row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..data.question import Question
from ..grading.verdict import Grade
from ..rlvr.objective import Completion
from .leak import Leak
from .pairs import Pair
from .parse import FormatError, MetaExperience

# Why a candidate was not kept, in the order in which it is found out.
Exclusion = Literal[
    "analysis_prompt_too_long",  # left out before generation
    "analysis_truncated",  # cut at the length limit
    "analysis_run_on",  # went on after its end
    "invalid_format",  # a section lacks, or is empty
    "leaked",  # drop_leaked: what the replay would read states the answer
    "replay_prompt_too_long",
    "replay_wrong",  # MEL Eq. 6; the replay's own reason stands beside it
]

# Column -> Arrow type name. A folder of such rows is read by `datasets.load_dataset`.
RECORD_FIELDS = {
    "step": "int64",  # the optimizer step that consumed it, from 0
    "question_id": "string",
    "problem": "string",
    "answer": "string",
    "kind": "string",
    "right_expert": "string",
    "right_sample": "int64",
    "right_text": "string",  # as the analysis prompt showed it
    "wrong_expert": "string",
    "wrong_sample": "int64",
    "wrong_text": "string",
    "wrong_reason": "string",
    "order": "string",
    "analyse_prompt": "string",  # template versions
    "replay_prompt": "string",
    "solve_prompt": "string",
    "analysis_text": "string",
    "analysis_finish": "string",
    "analysis_tokens": "int64",
    "valid": "bool",
    "missing": "string",  # names of sections, comma-separated
    "format_reason": "string",
    "failure": "string",
    "success": "string",
    "reflection": "string",
    "heuristics": "string",
    "leak_specific": "bool",  # sections 1-2 state the answer
    "leak_general": "bool",  # sections 3-4 do
    "replay_context": "string",
    "replay_text": "string",
    "replay_finish": "string",
    "replay_tokens": "int64",
    "replay_verdict": "string",
    "replay_reason": "string",
    "retained": "bool",
    "exclusion": "string",
    "weight": "double",  # of the supervised example; null where there is none
    "model_revision": "string",  # the trainer's to fill in
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pair's way through MEL 3.2: analysis, format, leak, replay. Retained where `exclusion` is None."""

    pair: Pair
    right_text: str
    wrong_text: str
    analysis: Completion
    parsed: MetaExperience | FormatError | None  # None: not read, as there was no whole analysis
    leak: Leak | None
    replay: Completion | None
    exclusion: Exclusion | None

    @property
    def valid(self) -> bool:
        """Whether the analysis is a meta-experience by its form: ended, no run-on, four sections."""
        return isinstance(self.parsed, MetaExperience)

    @property
    def retained(self) -> bool:
        """Whether it is in D_M* (MEL Eq. 6)."""
        return self.exclusion is None


def record_of(
    candidate: Candidate,
    question: Question,
    step: int,
    order: str,
    replay_context: str,
    prompt_versions: dict[str, str],
    weight: float | None,
) -> dict[str, Any]:
    """The candidate as one row with the columns of `RECORD_FIELDS`; None where something did not come about."""
    parsed, leak, replay = candidate.parsed, candidate.leak, candidate.replay
    experience = parsed if isinstance(parsed, MetaExperience) else None
    refusal = parsed if isinstance(parsed, FormatError) else None
    grade: Grade | None = replay.grade if replay else None
    right, wrong, analysis = candidate.pair.right, candidate.pair.wrong, candidate.analysis
    return {
        "step": step,
        "question_id": question.id,
        "problem": question.problem,
        "answer": question.answer,
        "kind": question.kind,
        "right_expert": right.expert,
        "right_sample": right.sample,
        "right_text": candidate.right_text,
        "wrong_expert": wrong.expert,
        "wrong_sample": wrong.sample,
        "wrong_text": candidate.wrong_text,
        "wrong_reason": wrong.grade.reason,
        "order": order,
        "analyse_prompt": prompt_versions["analyse"],
        "replay_prompt": prompt_versions["replay"],
        "solve_prompt": prompt_versions["solve"],
        "analysis_text": analysis.text,
        "analysis_finish": analysis.finish,
        "analysis_tokens": len(analysis.token_ids),
        "valid": candidate.valid,
        "missing": ",".join(refusal.missing) if refusal else None,
        "format_reason": refusal.reason if refusal else None,
        "failure": experience.failure if experience else None,
        "success": experience.success if experience else None,
        "reflection": experience.reflection if experience else None,
        "heuristics": experience.heuristics if experience else None,
        "leak_specific": leak.specific if leak else None,
        "leak_general": leak.general if leak else None,
        "replay_context": replay_context,
        "replay_text": replay.text if replay else None,
        "replay_finish": replay.finish if replay else None,
        "replay_tokens": len(replay.token_ids) if replay else None,
        "replay_verdict": grade.verdict if grade else None,
        "replay_reason": grade.reason if grade else None,
        "retained": candidate.retained,
        "exclusion": candidate.exclusion,
        "weight": weight,
        "model_revision": None,
    }
