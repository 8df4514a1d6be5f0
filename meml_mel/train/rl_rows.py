"""From a config to the rows that RL trains on: questions, cleaned and decontaminated, under every expert's prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..config.coerce import ConfigError
from ..config.run import RunConfig
from ..data.load import load_questions
from ..data.question import Question
from ..meml.experts import question_expert_rows
from ..prompts.format import PromptFormat
from ..prompts.library import Prompts
from ..rlvr.rows import Row
from .common import data_facts


@dataclass(frozen=True)
class Gathered:
    """The questions of a run, and what `run.json` and the console say about them."""

    questions: tuple[Question, ...]
    lines: tuple[str, ...]
    facts: dict[str, Any]


def gather(config: RunConfig, gradable: Callable[[str, str], bool] | None = None) -> Gathered:
    """Load, clean and decontaminate the questions. Needs no model."""
    assert config.data is not None
    loaded = load_questions(config.data, gradable)
    lines = [loaded.report.description()]
    facts = {"train": data_facts(loaded.report)}
    questions = loaded.questions
    if config.decontaminate.mode != "off" and config.decontaminate.against:
        from ..data.decontaminate import decontaminate

        sets = {}
        for source in config.decontaminate.against:
            # An evaluation question overlaps whether or not its gold can be graded.
            held = load_questions(source, gradable=lambda gold, kind: True)
            name = source.path if source.path not in sets else f"{source.path}#{len(sets)}"
            sets[name] = held.questions
            facts[f"against {name}"] = data_facts(held.report)
        questions, report = decontaminate(questions, sets, config.decontaminate.mode)
        lines.append(report.description())
        facts["decontamination"] = {"mode": report.mode, "n": report.n, "overlapping_ids": list(report.ids)}
    if not questions:
        raise ConfigError("no question is left to train on: decontaminate.mode remove took them all")
    return Gathered(tuple(questions), tuple(lines), facts)


def make_rows(config: RunConfig, questions: Sequence[Question], prompts: Prompts) -> list[Row]:
    """Question-major rows with their solve prompts; without experts, one nameless row a question."""
    return [
        Row(question, expert.name, prompts.solve(question, expert.name, expert.system_prompt))
        for question, expert in question_expert_rows(questions, config.experts)
    ]


def drop_over_long(
    rows: Sequence[Row], format: PromptFormat, limit: int | None
) -> tuple[list[Row], list[str]]:
    """Leave out every question one of whose prompts is longer than `limit` tokens; its id is answered."""
    if limit is None:
        return list(rows), []
    if limit < 1:
        raise ConfigError(
            f"the context leaves {limit} tokens for a prompt: lower max_completion_length, or use a model with a "
            "longer context"
        )
    texts = [format.text(row.prompt) for row in rows]
    lengths = [len(ids) for ids in format.tokenizer(texts, add_special_tokens=not format.chat)["input_ids"]]
    long = list(dict.fromkeys(r.question.id for r, n in zip(rows, lengths, strict=True) if n > limit))
    kept = [row for row in rows if row.question.id not in set(long)]
    if not kept:
        raise ConfigError(
            f"every prompt is longer than {limit} tokens, the shortest has {min(lengths)}: lower "
            "max_completion_length, or use a model with a longer context"
        )
    return kept, long


def longest_problem(rows: Sequence[Row], format: PromptFormat) -> int:
    """Tokens of the longest question, without instructions."""
    texts = list(dict.fromkeys(row.question.problem for row in rows))
    return max(len(ids) for ids in format.tokenizer(texts, add_special_tokens=False)["input_ids"])
