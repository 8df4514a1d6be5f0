"""Which rows a step consumes: TRL's order over questions, each question's expert rows kept together."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler


class QuestionSampler(Sampler[int]):
    """Row indices for `GRPOTrainer`: `generations` copies of each row, a question's `experts` rows adjacent.

    The data set must be question-major: row `q * experts + e`. With `experts=1` the order is exactly that of
    TRL's `RepeatSampler`, in every epoch: TRL draws one permutation per epoch from a private generator, so
    epoch `n` is its `n+1`-th draw. TRL's sampler starts again at the first draw after a resume; this one takes
    the epoch from `set_epoch` (trl/trainer/utils.py, RepeatSampler, in 1.16).

    Args:
        data_source: the row data set.
        experts: E, rows per question.
        generations: G, copies of each row.
        questions_per_batch: questions in one generation over all ranks.
        repeats: how often each batch is repeated: `num_iterations * steps_per_generation`.
    """

    def __init__(
        self,
        data_source: Sized,
        experts: int,
        generations: int,
        questions_per_batch: int,
        repeats: int,
        shuffle: bool,
        seed: int,
    ):
        if len(data_source) % experts:
            raise ValueError(
                f"{len(data_source)} rows are not a whole number of questions x {experts} experts"
            )
        self.questions = len(data_source) // experts
        if self.questions < questions_per_batch:
            raise ValueError(
                f"{self.questions} questions are fewer than the {questions_per_batch} of one step: "
                "lower the batch or give more data"
            )
        self.experts = experts
        self.generations = generations
        self.questions_per_batch = questions_per_batch
        self.repeats = repeats
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def question_order(self) -> list[int]:
        """The permutation of this epoch, incomplete last batch included."""
        if not self.shuffle:
            return list(range(self.questions))
        generator = torch.Generator()
        generator.manual_seed(self.seed)
        for _ in range(self.epoch):
            torch.randperm(self.questions, generator=generator)
        return torch.randperm(self.questions, generator=generator).tolist()

    def __iter__(self) -> Iterator[int]:
        order = self.question_order()
        size = self.questions_per_batch
        for start in range(0, len(order) - size + 1, size):
            for _ in range(self.repeats):
                for question in order[start : start + size]:
                    for expert in range(self.experts):
                        for _ in range(self.generations):
                            yield question * self.experts + expert

    def __len__(self) -> int:
        batches = self.questions // self.questions_per_batch
        return batches * self.questions_per_batch * self.experts * self.generations * self.repeats


class RefillStream:
    """The second seeded stream of questions, for dynamic sampling: its position is part of a checkpoint.

    Draws question indices from consecutive seeded permutations, without end.
    """

    def __init__(self, questions: int, seed: int):
        self.questions = questions
        self.seed = seed
        self.position = 0
        self._round = -1
        self._order: list[int] = []

    def draw(self, count: int, exclude: set[int]) -> list[int]:
        """The next `count` distinct questions not in `exclude`; fewer when the data set has no more."""
        drawn: list[int] = []
        seen = set(exclude)
        for _ in range(2 * self.questions):
            if len(drawn) == count:
                break
            round_, offset = divmod(self.position, self.questions)
            if round_ != self._round:
                generator = torch.Generator()
                generator.manual_seed(self.seed + 1_000_003 * (round_ + 1))
                self._order = torch.randperm(self.questions, generator=generator).tolist()
                self._round = round_
            self.position += 1
            question = self._order[offset]
            if question not in seen:
                seen.add(question)
                drawn.append(question)
        return drawn
