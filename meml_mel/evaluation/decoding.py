"""How responses are sampled: everything that decides a response beside the model and its prompt."""

from __future__ import annotations

from dataclasses import dataclass

from ..prompts.format import PromptFormat

# What a base model writes when it runs on into a next turn; in plain text nothing else would end it.
PLAIN_STOPS = ("\nResponse:", "\nHuman:", "\nUser:")


class EvaluationError(ValueError):
    """The evaluation cannot be run as asked; the message names the value, the limit and the way out."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """One greedy response a row, and `samples` more at `temperature`.

    Nothing else is applied: the model's own generation config (repetition penalty, top-k and so on) is not read,
    apart from its end tokens. `stop`: None means none under a chat template, `PLAIN_STOPS` in plain text.
    """

    max_tokens: int = 512
    samples: int = 0
    temperature: float = 0.6
    top_p: float = 1.0
    stop: tuple[str, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise EvaluationError(f"max_tokens {self.max_tokens}: a response needs at least 1")
        if self.samples < 0:
            raise EvaluationError(f"samples {self.samples}: 0 for greedy alone, or how many to draw besides")
        if not self.temperature > 0:
            raise EvaluationError(
                f"temperature {self.temperature}: sampling needs one above 0; greedy responses are always made"
            )
        if not 0 < self.top_p <= 1:
            raise EvaluationError(f"top_p {self.top_p} is not in (0, 1]")
        if self.stop is not None and not all(self.stop):
            raise EvaluationError("an empty stop string would end every response at once: leave it out")

    def stops(self, format: PromptFormat) -> tuple[str, ...]:
        """The stop strings in force."""
        return self.stop if self.stop is not None else () if format.chat else PLAIN_STOPS
