"""Rows of multi-expert SFT as token ids: (question x expert) solutions and ready rows from files.

The prompt is tokenised alone, as generation will meet it, and the completion behind it, followed by the
tokenizer's end token; only the completion counts. TRL's own prompt/completion preparation differs in two ways:
with a chat template it also trains what the template writes after the end token (a line break, mostly), and in
plain text it tokenises prompt and completion as one, which can merge tokens across the border.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..config.coerce import ConfigError
from ..config.run import RunConfig
from ..data.files import DataFiles, find_files
from ..data.load import load_questions
from ..data.rows import read_rows
from ..data.solutions import load_solutions
from ..data.source import DataError, DataSource
from ..meml.experts import SFTReport, require_solutions, sft_rows
from ..prompts.format import PromptFormat
from ..prompts.library import Prompts
from .common import data_facts

if TYPE_CHECKING:
    from ..rlvr.rollouts import Message

IGNORED = -100  # the label of a token that does not count
ROLES = ("system", "user", "assistant")
GradeAnswer = Callable[[str, str, str], Any]


@dataclass(frozen=True, slots=True)
class TextRow:
    """One prompt and what is to be written after it. `origin` is the expert's name or the file's."""

    prompt: tuple[Message, ...]
    completion: str
    origin: str
    id: str = ""


@dataclass(frozen=True)
class Gathered:
    """All rows of a run, and what became of the rest."""

    rows: tuple[TextRow, ...]
    experts: SFTReport | None
    data: dict[str, Any] = field(default_factory=dict)  # facts per source, for run.json

    def description(self) -> str:
        lines = [self.experts.description()] if self.experts else []
        extra = Counter(
            row.origin for row in self.rows if not self.experts or row.origin not in self.experts.kept
        )
        return "\n".join([*lines, *(f"  extra rows from {name}: {count}" for name, count in extra.items())])


def gather(config: RunConfig, grade: GradeAnswer | None = None) -> Gathered:
    """Read questions, solutions and extra rows. Needs no model.

    `grade(gold, solution, kind)` judges solutions of which the source does not say whether they are right.
    Raises DataError or ConfigError: an expert without solutions, a malformed row, no row at all.
    """
    prompts = Prompts.load(config.prompts.templates())
    rows: list[TextRow] = []
    report, facts = None, {}
    if config.data is not None:
        try:
            require_solutions(config.experts)
        except ValueError as error:
            raise ConfigError(f"experts: {error}") from error
        loaded = load_questions(config.data)
        facts[config.data.path] = data_facts(loaded.report)
        solutions = {}
        for expert in config.experts:
            assert expert.solutions is not None  # require_solutions
            solutions[expert.name] = load_solutions(
                expert.solutions, loaded.questions, config.data, f"expert {expert.name!r}"
            )
        found, report = sft_rows(
            loaded.questions, config.experts, solutions, config.sft.keep_only_correct, grade
        )
        empty = [name for name, kept in report.kept.items() if not kept]
        if empty:
            raise ConfigError(
                f"expert {empty[0]!r} has no row left ({_reasons(report, empty[0])}): name its correct_column, set "
                "sft.keep_only_correct to false, or drop the expert"
            )
        rows += [
            TextRow(
                prompts.solve(row.question, row.expert.name, row.expert.system_prompt),
                row.response,
                row.expert.name,
                row.question.id,
            )
            for row in found
        ]
        for expert in config.experts:
            if expert.solutions and expert.solutions.path is not None:
                facts[expert.solutions.path] = file_facts(expert.solutions.open(config.data)[3])
    for source in config.sft.extra_rows:
        extra = read_extra_rows(source)
        facts[source.path] = {**file_facts(find_files(source)), "rows": len(extra)}
        rows += extra
    if not rows:
        raise ConfigError("there is no row to train on: give data with experts, or sft.extra_rows")
    return Gathered(tuple(rows), report, facts)


def file_facts(files: DataFiles) -> dict[str, Any]:
    """The files' label, the commit they were read at and one sha256 over their bytes, for run.json."""
    digest = hashlib.sha256()
    for path in files.paths:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return {"source": files.label, "revision": files.revision, "sha256": digest.hexdigest()}


def _reasons(report: SFTReport, expert: str) -> str:
    return (
        ", ".join(f"{count} {reason}" for reason, count in report.dropped[expert].items()) or "no questions"
    )


def read_extra_rows(source: DataSource) -> list[TextRow]:
    """Ready rows: `{"prompt": messages or text, "completion": text}`; other columns are left alone.

    A completion may also be one assistant message in a list. Raises DataError naming file and row.
    """
    if source.mapping is not None or source.ids_file is not None:
        raise DataError(f"sft.extra_rows {source.path}: ready rows take neither mapping nor ids_file")
    files = find_files(source)
    rows = []
    for number, raw in enumerate(read_rows(files, source.start, source.stop), source.start):
        where = f"sft.extra_rows {files.label}, row {number}"
        rows.append(
            TextRow(_prompt(raw, where), _completion(raw, where), files.label, str(raw.get("id") or ""))
        )
        if len(rows) == source.max_questions:
            break
    if not rows:
        raise DataError(f"sft.extra_rows {files.label}: no rows")
    return rows


def _prompt(raw: Mapping[str, Any], where: str) -> tuple[Message, ...]:
    prompt = raw.get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        return ({"role": "user", "content": prompt},)
    if not isinstance(prompt, Sequence) or not prompt or isinstance(prompt, str):
        raise DataError(f"{where}: `prompt` must be text or a list of messages, it is {prompt!r}")
    messages = []
    for message in prompt:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ROLES or not isinstance(message.get("content"), str):
            raise DataError(
                f"{where}: {message!r} is no message: it has a role ({', '.join(ROLES)}) and content"
            )
        messages.append({"role": role, "content": message["content"]})
    if messages[-1]["role"] == "assistant":
        raise DataError(
            f"{where}: the prompt ends with the assistant's message; that belongs in `completion`"
        )
    return tuple(messages)


def _completion(raw: Mapping[str, Any], where: str) -> str:
    completion = raw.get("completion")
    if isinstance(completion, list) and len(completion) == 1 and isinstance(completion[0], Mapping):
        completion = completion[0].get("content")
    if not isinstance(completion, str) or not completion.strip():
        raise DataError(f"{where}: `completion` must be text that is not empty, it is {completion!r}")
    return completion


def tokenise(row: TextRow, format: PromptFormat) -> dict[str, list[int]]:
    """`input_ids` = prompt + completion + end token; `labels` the same with the prompt left out (-100)."""
    prompt = list(format.ids(row.prompt))
    completion = list(format.tokenizer(text=row.completion, add_special_tokens=False)["input_ids"])
    completion.append(format.tokenizer.eos_token_id)
    return {"input_ids": prompt + completion, "labels": [IGNORED] * len(prompt) + completion}


@dataclass(frozen=True)
class Tokenised:
    """The rows that fit, and how many of each origin did not."""

    rows: tuple[dict[str, list[int]], ...]
    kept: dict[str, int]
    too_long: dict[str, int]
    longest: int

    def description(self, max_length: int | None) -> str:
        tokens = sum(len(row["input_ids"]) for row in self.rows)
        trained = sum(sum(label != IGNORED for label in row["labels"]) for row in self.rows)
        lines = [
            f"{len(self.rows)} rows, {tokens} tokens of which {trained} are trained; the longest has {self.longest}"
        ]
        if any(self.too_long.values()):
            by = ", ".join(f"{name} {count}" for name, count in self.too_long.items() if count)
            lines.append(f"  left out, longer than max_length {max_length}: {by}")
        return "\n".join(lines)


def tokenise_all(
    rows: Sequence[TextRow], format: PromptFormat, max_length: int | None, refuse_too_long: bool = False
) -> Tokenised:
    """Tokenise; rows longer than `max_length` tokens are left out and counted, or refused.

    A row cut at the end would teach a solution without its answer and end token, so none is cut. Raises
    ConfigError where one is too long and they are refused, or where an origin loses all its rows.
    """
    kept: list[dict[str, list[int]]] = []
    counts = {row.origin: 0 for row in rows}
    too_long = dict.fromkeys(counts, 0)
    longest = 0
    for row in rows:
        tokens = tokenise(row, format)
        length = len(tokens["input_ids"])
        if max_length is not None and length > max_length:
            if refuse_too_long:
                raise ConfigError(
                    f"row {row.id!r} of {row.origin} has {length} tokens, max_length is {max_length}: raise it, or "
                    "set sft.over_long to drop"
                )
            too_long[row.origin] += 1
            continue
        longest = max(longest, length)
        counts[row.origin] += 1
        kept.append(tokens)
    lost = [name for name, count in counts.items() if not count]
    if lost:
        raise ConfigError(
            f"all {too_long[lost[0]]} rows of {lost[0]} are longer than max_length {max_length}: raise max_length"
        )
    return Tokenised(tuple(kept), counts, too_long, longest)
