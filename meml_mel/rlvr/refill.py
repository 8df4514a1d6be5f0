"""DAPO's dynamic sampling with a whole question as its unit.

Questions without a learning signal (no group of theirs has both right and wrong rollouts) give their place in
the policy loss to questions from a second seeded stream. Every decision is made on the gathered, global
state, so all ranks agree; the number of rounds is bounded, and places that stay empty keep their question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rollouts import Rollout, ScoredQuestion

if TYPE_CHECKING:
    from .trainer import RLVRTrainer


def informative(question: ScoredQuestion) -> bool:
    """Whether some group's rewards differ: only then has the question a non-zero group-relative advantage."""
    return any(
        len({r.reward for r in group if r.grade.verdict != "ungradable"}) > 1 for group in question.groups
    )


def refill(trainer: RLVRTrainer, inputs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Rollout]]:
    """Sample and grade this generation, replace uninformative questions, and set what TRL's rollout phase answers.

    Args:
        inputs: this rank's rows of the generation.

    Returns:
        This rank's rows after the exchange, and all graded rollouts of all ranks (for objectives, which see
        every graded question).
    """
    ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
    entries = _sample(trainer, inputs)
    per_question = len(trainer.experts) * trainer.num_generations
    places = [entries[start : start + per_question] for start in range(0, len(entries), per_question)]
    graded = list(entries)
    seen = {trainer.question_index[place[0][0]["question_id"]] for place in places}
    empty = [i for i, place in enumerate(places) if not informative(_question(trainer, place))]
    initially, drawn_count = len(empty), 0
    for _ in range(trainer.algorithm.dynamic_sampling_max_rounds):
        if not empty:
            break
        drawn = trainer.refill_stream.draw(len(empty), exclude=seen)
        if not drawn:
            break
        seen |= set(drawn)
        drawn_count += len(drawn)
        rows = [trainer.row(index, expert) for index in drawn for expert in range(len(trainer.experts))]
        rows = [row for row in rows for _ in range(trainer.num_generations)]
        wanted = len(rows)
        # Equal counts on every rank, and whole groups over all of them (vLLM's server samples by group).
        while len(rows) % ranks or len(rows) % trainer.num_generations:
            rows += rows[-trainer.num_generations :]
        share = len(rows) // ranks
        fresh = _sample(trainer, rows[rank * share : (rank + 1) * share])[:wanted]
        graded += fresh
        candidates = [fresh[start : start + per_question] for start in range(0, wanted, per_question)]
        useful = [candidate for candidate in candidates if informative(_question(trainer, candidate))]
        for place, candidate in zip(list(empty), useful, strict=False):
            places[place] = candidate
            empty.remove(place)
    trainer.record_metrics(
        {
            "dynamic_sampling/uninformative": initially,
            "dynamic_sampling/drawn": drawn_count,
            "dynamic_sampling/left_empty": len(empty),
        }
    )
    final = [entry for place in places for entry in place]
    mine = final[rank * len(inputs) : (rank + 1) * len(inputs)]
    trainer.reuse_rollouts([row for _, row, _ in mine])
    trainer.reuse_grades([grade for _, _, grade in mine])
    rollouts = [trainer.as_rollout(e["question_id"], e["expert"], row, grade) for e, row, grade in graded]
    return [example for example, _, _ in mine], rollouts


def _sample(trainer: RLVRTrainer, rows: list[dict[str, Any]]) -> list[tuple]:
    """Sample and grade this rank's rows; (row, sampled, grade) of all ranks, in order."""
    sampled = trainer.sample_rollouts([row["prompt"] for row in rows])
    grades = trainer.grade_rows([row["question_id"] for row in rows], [s.completion_ids for s in sampled])
    return trainer.gather(list(zip(rows, sampled, grades, strict=True)))


def _question(trainer: RLVRTrainer, place: list[tuple]) -> ScoredQuestion:
    rollouts = [trainer.as_rollout(e["question_id"], e["expert"], row, grade) for e, row, grade in place]
    return trainer.batch(rollouts).questions[0]
