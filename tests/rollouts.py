"""Rollouts by a letter each: `groups({"R": (Grade("right"), "stop")}, "q1", {"e0": "RR"})`."""

from __future__ import annotations

from collections.abc import Mapping

from meml_mel.grading.verdict import Grade
from meml_mel.rlvr.rollouts import Finish, Rollout


def groups(
    grades: Mapping[str, tuple[Grade, Finish]], question_id: str, letters: Mapping[str, str]
) -> tuple[tuple[Rollout, ...], ...]:
    """One letter of `grades` a rollout, by expert. Rollout s has s + 2 ids, all different from the others' ids,
    and the text `<question/expert/sample>`."""
    return tuple(
        tuple(
            Rollout(
                question_id=question_id,
                expert=expert,
                sample=s,
                prompt_ids=(1, 2),
                completion_ids=tuple(range(1000 * e + 10 * s, 1000 * e + 10 * s + s + 2)),
                text=f"<{question_id}/{expert}/{s}>",
                finish=grades[letter][1],
                grade=grades[letter][0],
            )
            for s, letter in enumerate(group)
        )
        for e, (expert, group) in enumerate(letters.items())
    )
