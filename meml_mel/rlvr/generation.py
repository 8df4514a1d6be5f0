"""Answer objectives' generation requests on all ranks: equal padded counts, token-budgeted sub-batches.

Every rank holds the same global list of requests and ends with the same list of completions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..grading.verdict import Grade
from .objective import Completion, GenerationRequest
from .options import PhaseSampling
from .trl_adapter import TRLAdapter

# (question, text, truncated) of each response to grade -> grades, in order
GradeMany = Callable[[Sequence[tuple]], list[Grade]]


def shard_plan(
    lengths: Sequence[int], ranks: int, max_tokens: int, token_budget: int
) -> list[list[list[int]]]:
    """Deal prompts to sub-batches: `plan[k][rank]` are indices into `lengths`, the same count on every rank.

    Longest first, so that rows of one sub-batch are alike in length; where the prompts don't divide by the
    ranks, the last one is repeated and its extra answers are dropped. A sub-batch holds at most
    `token_budget` tokens (prompt + completion, padded), and at least one row a rank.
    """
    if not lengths:
        return []
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    order += [order[-1]] * (-len(order) % ranks)
    rows = [order[start : start + ranks] for start in range(0, len(order), ranks)]
    plan: list[list[list[int]]] = []
    position = 0
    while position < len(rows):
        longest = lengths[rows[position][0]] + max_tokens
        size = max(1, token_budget // longest)
        chunk = rows[position : position + size]
        plan.append([[row[rank] for row in chunk] for rank in range(ranks)])
        position += size
    return plan


@dataclass
class PhaseGenerator:
    """`generate(requests) -> completions` for the wave scheduler, on top of the trainer's engine.

    Args:
        max_length: the model's context in tokens, None when unknown. A prompt that leaves no room for the
            phase's `max_tokens` is answered `prompt_too_long` before anything is generated.
        render: messages to what the trainer takes as a prompt (the messages themselves, or flat text).
    """

    trainer: TRLAdapter
    sampling: Mapping[str, PhaseSampling]
    grade: GradeMany
    render: Callable
    token_budget: int
    max_length: int | None
    seconds: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def __call__(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        completions: list[Completion | None] = [None] * len(requests)
        for phase in sorted({request.phase for request in requests}):
            indices = [i for i, request in enumerate(requests) if request.phase == phase]
            started, graded = time.perf_counter(), self.seconds.get("grade", 0.0)
            answers = self._run_phase(phase, [requests[i] for i in indices])
            grading = self.seconds.get("grade", 0.0) - graded
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started - grading
            self.tokens[phase] = self.tokens.get(phase, 0) + sum(len(a.token_ids) for a in answers)
            for i, answer in zip(indices, answers, strict=True):
                completions[i] = answer
        return [completion for completion in completions if completion is not None]

    def _run_phase(self, phase: str, requests: Sequence[GenerationRequest]) -> list[Completion]:
        trainer, params = self.trainer, self.sampling[phase]
        prompt_ids = trainer.tokenize_prompts([self.render(list(request.prompt)) for request in requests])
        limit = None if self.max_length is None else self.max_length - params.max_tokens
        fitting = [i for i, ids in enumerate(prompt_ids) if limit is None or len(ids) <= limit]
        accelerator = trainer.accelerator
        plan = shard_plan(
            [len(prompt_ids[i]) for i in fitting],
            accelerator.num_processes,
            params.max_tokens,
            self.token_budget,
        )
        answers: list[tuple[int, Completion]] = []
        error = None
        try:
            with trainer.sampling(params):
                for sub_batch in plan:
                    mine = [fitting[k] for k in sub_batch[accelerator.process_index]]
                    sampled = trainer.sample([prompt_ids[i] for i in mine])
                    answers += [
                        (i, Completion(trainer.decode(ids), tuple(ids), trainer.finish(ids)))
                        for i, ids in zip(mine, sampled, strict=True)
                    ]
            answers = self._graded(requests, answers)
        except (
            Exception
        ) as failure:  # told to every rank before anyone raises: a lone raise would hang the others
            error = f"rank {accelerator.process_index}: {type(failure).__name__}: {failure}"
            if accelerator.num_processes == 1:
                raise
        errors = [e for e in trainer.gather([error]) if e]
        if errors:
            raise RuntimeError(f"the {phase} phase failed: " + "; ".join(errors))
        by_index = dict(trainer.gather(answers))
        too_long = Completion("", (), "prompt_too_long")
        return [by_index.get(i, too_long) for i in range(len(requests))]

    def _graded(self, requests, answers: list[tuple[int, Completion]]) -> list[tuple[int, Completion]]:
        wanted = [(i, c, requests[i].grade_for) for i, c in answers if requests[i].grade_for is not None]
        if not wanted:
            return answers
        started = time.perf_counter()
        grades = self.grade([(question, c.text, c.finish == "length") for _, c, question in wanted])
        self.seconds["grade"] = self.seconds.get("grade", 0.0) + time.perf_counter() - started
        graded = {
            i: Completion(c.text, c.token_ids, c.finish, grade)
            for (i, c, _), grade in zip(wanted, grades, strict=True)
        }
        return [(i, graded.get(i, c)) for i, c in answers]
