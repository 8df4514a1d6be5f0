"""Small scored batches for MEML's tests: `scored("q1", e0="RRWL", e1="WWWU")`."""

import subprocess
import sys
from collections.abc import Sequence

from meml_mel.data.question import Question
from meml_mel.grading.verdict import Grade
from meml_mel.rlvr.objective import Objective, Outcome, StepContext, run_waves
from meml_mel.rlvr.rollouts import Finish, ScoredBatch, ScoredQuestion
from tests import rollouts

GRADES: dict[str, tuple[Grade, Finish]] = {
    "R": (Grade("right"), "stop"),
    "L": (Grade("right"), "length"),  # right, but without an end token
    "W": (Grade("wrong", "different"), "stop"),
    "U": (Grade("ungradable", "unparsable_gold"), "stop"),
}


def prompt(question_id: str, expert: str):
    return ({"role": "system", "content": f"You are {expert}."}, {"role": "user", "content": question_id})


def scored(question_id: str, solution: str | None = "1 + 1 = 2", **groups: str) -> ScoredQuestion:
    """One letter of GRADES a rollout."""
    experts = tuple(groups)
    return ScoredQuestion(
        question=Question(question_id, problem="1 + 1?", answer="2", solution=solution),
        experts=experts,
        prompts=tuple(prompt(question_id, expert) for expert in experts),
        groups=rollouts.groups(GRADES, question_id, groups),
    )


def run(objective: Objective, *questions: ScoredQuestion, step: int = 0, seed: int = 0) -> Outcome:
    """The objective's outcome by the wave scheduler, Q counting every question of the batch."""
    return run_all([objective], questions, step, seed)[objective.name]


def run_all(
    objectives, questions: Sequence[ScoredQuestion], step: int = 0, seed: int = 0
) -> dict[str, Outcome]:
    def generate(requests):
        raise AssertionError("MEML's objectives generate nothing")

    batch = ScoredBatch(step=step, questions=tuple(questions))
    return run_waves(objectives, batch, StepContext(seed, step, len(questions)), generate)


def imported_by(modules: str) -> set[str]:
    """The top-level packages in memory after importing `modules` in a fresh process."""
    code = f"import {modules}, sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


FORBIDDEN = {"trl", "transformers", "accelerate", "lighteval", "huggingface_hub", "datasets"}
