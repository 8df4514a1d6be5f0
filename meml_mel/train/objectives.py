"""The configured objectives, built: the one place that knows all three."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..config.run import RunConfig
from ..grading.extract import own_text
from ..mel.objective import MetaExperienceObjective
from ..meml.hard_examples import HardExamplesObjective
from ..meml.mutual_learning import MutualLearningObjective
from ..prompts.library import Prompts
from ..rlvr.objective import Objective


def runs_on(text: str) -> bool:
    """Whether a response goes on after its answer ("Human:", a further question): such a text is no target."""
    return own_text(text).strip() != text.rpartition("</think>")[2].strip()


def build(
    config: RunConfig, prompts: Prompts, score: Callable[[Sequence[Any]], list[float]]
) -> list[Objective]:
    """The objectives of `config.objectives`, in its order. `score` serves `target_choice: most_likely`."""
    makers: dict[str, Callable[[Any], Objective]] = {
        "mutual_learning": lambda c: MutualLearningObjective(c, score=score, has_run_on=runs_on),
        "hard_examples": lambda c: HardExamplesObjective(c),
        "meta_experience": lambda c: MetaExperienceObjective(c, prompts, cut=own_text),
    }
    return [makers[name](objective) for name, objective in config.objectives.items()]
