"""How good are a model's analyses? In this world the true first wrong step and its cause are known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..evaluation.loading import LoadedModel
from ..evaluation.sampler import Sampler, SampleRequest
from ..mel.parse import MetaExperience, parse_meta_experience
from ..prompts.library import Prompts
from . import world


@dataclass(frozen=True, slots=True)
class AnalysisQuality:
    """Over `of` pairs of a right and a wrong attempt: analyses that parse, name the true step, the right rule, both."""

    of: int
    valid: int
    step: int
    rule: int
    both: int


def analysis_quality(
    model: LoadedModel, chains: Sequence[world.Chain], prompts: Prompts, max_tokens: int = 128
) -> AnalysisQuality:
    """Greedy analyses of one wrong attempt by each expert at each of the questions where its habit applies.

    The attempts are the world's, not the model's, so that two models are asked the same.
    """
    rng = random.Random("demo analyses")
    asked = []
    for chain in chains:
        for expert in world.EXPERTS:
            if expert.habit in chain.traps:
                wrong = world.solution(chain, expert.habit, 1.0, 0.0, rng)
                found = world.bifurcation(chain, wrong)
                if found and not world.is_right(chain, wrong):
                    asked.append((prompts.analyse(chain.question(""), world.solution(chain), wrong), found))
    sampler = Sampler(model.model, model.tokenizer, model.ends, model.context)
    requests = [
        SampleRequest(tuple(model.format.ids(messages)), (i,)) for i, (messages, _) in enumerate(asked)
    ]
    texts: list[Any] = sampler(requests, max_tokens, 0.0)
    valid = step = rule = both = 0
    for response, (_, found) in zip(texts, asked, strict=True):
        if response.finish != "stop" or not isinstance(parse_meta_experience(response.text), MetaExperience):
            continue
        named_step, named_rule = world.named(response.text)
        valid += 1
        step += named_step == found.step
        rule += named_rule == found.cause
        both += named_step == found.step and named_rule == found.cause
    return AnalysisQuality(len(asked), valid, step, rule, both)
