"""What the tiny models learn from: solutions, analyses and replays, written by the world's rules.

A row is `{"prompt": messages, "completion": text}`, as `sft.extra_rows` takes it. The *base* corpus holds the work of
other pupils, every habit among it, and in its second round the experts' too; the demo's own SFT rows hold the three
experts' work alone. Analyses and replays are taught here: a model of under a million parameters would
not write them by itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ..prompts.library import Prompts, PromptsConfig
from . import world
from .world import Chain, Pupil

SLIP = 0.01  # how often a demonstrated step has a slip


def prompts_config() -> PromptsConfig:
    """The demo's short templates: the package's own hold more words than the tiny model has read."""
    return PromptsConfig(solve="solve.demo", analyse="analyse.demo", replay="replay.demo")


def solve_row(
    prompts: Prompts, chain: Chain, pupil: Pupil, rng: random.Random, slip: float = SLIP
) -> dict[str, Any]:
    """A pupil's solution under its name."""
    text = world.solution(chain, pupil.habit, pupil.rate, slip, rng)
    return _row(prompts.solve(chain.question(""), pupil.name, pupil.system_prompt), text)


def analyse_row(
    prompts: Prompts, chain: Chain, pupils: Sequence[Pupil], rng: random.Random
) -> dict[str, Any]:
    """An analysis of a wrong attempt by one of the pupils beside a right one, as the world's rules have it."""
    while True:
        pupil = rng.choice(pupils)
        wrong = world.solution(chain, pupil.habit, pupil.rate, 0.1, rng)
        found = world.bifurcation(chain, wrong)
        if found and not world.is_right(chain, wrong):
            break
    messages = prompts.analyse(chain.question(""), world.solution(chain), wrong)
    return _row(messages, world.analysis(found))


def replay_row(prompts: Prompts, chain: Chain, pupil: Pupil, rng: random.Random) -> dict[str, Any]:
    """A solution with an analysis' notes at hand: a habit that the notes warn of is not followed.

    Six in ten of the notes are on the pupil's habit; under the others it makes its mistakes as ever.
    """
    others = [cause for cause in world.CAUSES if cause != pupil.habit]
    cause = pupil.habit if pupil.habit and rng.random() < 0.6 else rng.choice(others)
    index = rng.randint(1, len(chain.steps))
    step = chain.steps[index - 1]
    before = (chain.start, *chain.results)[index - 1]
    notes = world.analysis(world.Bifurcation(index, f"{before} {step.sign} {step.number}", cause))
    habit = None if cause == pupil.habit else pupil.habit
    text = world.solution(chain, habit, pupil.rate, 0.0 if cause == "slip" else SLIP, rng)
    return _row(prompts.replay(chain.question(""), notes, pupil.system_prompt), text)


def rows(
    prompts: Prompts,
    pupils: Sequence[Pupil],
    seed: int,
    solve: int,
    analyse: int,
    replay: int,
    steps: Sequence[int] = (2,),
    avoid: frozenset[str] = frozenset(),
) -> list[dict[str, Any]]:
    """`solve` + `analyse` + `replay` rows on questions whose texts are not in `avoid`, in random order."""
    rng = random.Random(f"demo corpus {seed}")

    def chain() -> Chain:
        while True:
            made = world.make_question(rng, rng.choice(steps))
            if made.text not in avoid:
                return made

    made = [solve_row(prompts, chain(), rng.choice(pupils), rng) for _ in range(solve)]
    made += [analyse_row(prompts, chain(), pupils, rng) for _ in range(analyse)]
    made += [replay_row(prompts, chain(), rng.choice(pupils), rng) for _ in range(replay)]
    rng.shuffle(made)
    return made


def _row(messages: Sequence[dict[str, str]], completion: str) -> dict[str, Any]:
    return {"prompt": list(messages), "completion": completion}
