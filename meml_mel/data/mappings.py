"""Rows to questions-to-be: the built-in mappings of named data sets, and column mappings.

Each mapping is one function `row -> Draft`. It raises `MissingColumn` where the row lacks a column it needs and
`RowRejected` where the row cannot make a question; nothing here reads files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .columns import (
    MISSING,
    MissingColumn,
    RowRejected,
    last_user_message,
    lookup,
    pick,
    pick_optional,
    prose_of,
    text_of,
)
from .options import boolean_gold, choice_gold, parse_options, with_options
from .source import KINDS, DataError

Row = Mapping[str, Any]
Need = tuple[str, ...]  # the fields that a mapping must find in a row
QUESTION: Need = ("problem", "answer")


@dataclass(slots=True)
class Draft:
    """A question before cleaning: the texts as they stood, the gold not yet judged."""

    problem: str
    answer: str
    kind: str = "math"
    solution: str | None = None
    id: str | None = None
    source: str | None = None


Mapper = Callable[[Row], Draft]

# The instruction around every DAPO-Math-17k problem; copies differ in how the answer line is shown.
_DAPO_BEFORE = re.compile(
    r"\A\s*Solve the following math problem step by step\. The last line of your response should be of the form "
    r"Answer: .{1,60}? is the answer to the problem\.\s*"
)
_DAPO_AFTER = 'Remember to put your answer on its own line after "Answer:"'
_GSM8K_NOTE = re.compile(r"<<[^<>]*>>")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_RATIONALE_END = re.compile(
    r"[\s,;.]*\banswer\s*[:=]?\s*(?:is\b|option\b)?\s*[:=]?\s*\(?\s*([a-e])\s*\)?[\s.]*\Z", re.I
)


def dapo_math_17k(row: Row) -> Draft:
    """DAPO-Math-17k: verl rows (the x100 Parquet file, its de-duplicated copies) and the processed copy.

    The processed copy has the problem in `prompt` and the *answer* in `solution`. The instruction around the
    problem is taken off: the prompt is this package's business.
    """
    prompt = pick(row, "problem", "prompt", "problem")
    answer = pick(row, "answer", "reward_model.ground_truth", "label", "answer", "solution")
    return Draft(
        problem=strip_dapo_instruction(last_user_message(prompt)),
        answer=text_of(answer),
        id=_id(row, "extra_info.index", "id"),
        source=_source(row),
    )


def strip_dapo_instruction(text: str) -> str:
    before = _DAPO_BEFORE.match(text)
    end = text.rfind(_DAPO_AFTER)
    if end < 0 or text[end + len(_DAPO_AFTER) :].strip(" .\n"):
        end = len(text)
    return text[before.end() if before else 0 : end].strip()


def verl(row: Row) -> Draft:
    """verl rows: `prompt` (messages), `reward_model.ground_truth`, `extra_info`.

    The problem is `extra_info.raw_problem` (or verl's own `extra_info.question`, where the prompt holds it), so
    without the instruction; else the user message as it is. The id is `<data_source>-<extra_info.index>`.
    """
    prompt = last_user_message(pick(row, "problem", "prompt"))
    raw = text_of(lookup(row, "extra_info.raw_problem"))
    question = text_of(lookup(row, "extra_info.question"))
    problem = raw or (question if question and question in prompt else prompt)
    source, index = _source(row), _id(row, "extra_info.index")
    return Draft(
        problem=problem,
        answer=text_of(pick(row, "answer", "reward_model.ground_truth")),
        id=f"{source}-{index}" if source and index else index,
        source=source,
    )


def gsm8k(row: Row) -> Draft:
    """GSM8K: the gold after `####`; `<<48/2=24>>` calculator notes are taken out of the solution."""
    problem = text_of(pick(row, "problem", "question", "problem"))
    answer = text_of(pick(row, "answer", "answer"))
    solution = answer if "####" in answer else text_of(lookup(row, "solution"))
    gold = answer.rpartition("####")[2] if "####" in answer else answer
    return Draft(
        problem=problem,
        answer=_THOUSANDS.sub("", gold.strip()),
        solution=_GSM8K_NOTE.sub("", solution).strip() or None,
        id=_id(row, "id"),
        source=_source(row),
    )


def mathqa(row: Row) -> Draft:
    """MathQA: options a-e go under the problem as the model reads it, the gold is the letter.

    The rationale becomes the solution, ended with `Answer: <letter>`; a rationale that ends with another letter
    than the gold is no solution.
    """
    options = parse_options(pick(row, "options", "options"))
    letter = choice_gold(pick(row, "answer", "correct", "answer"), options)
    rationale = text_of(pick_optional(row, "Rationale", "solution", "rationale")).strip('"').strip()
    ending = _RATIONALE_END.search(rationale)
    if ending:
        rationale = rationale[: ending.start()].rstrip() if ending[1].upper() == letter else ""
    return Draft(
        problem=with_options(text_of(pick(row, "problem", "Problem", "problem", "question")), options),
        answer=letter,
        kind="choice",
        solution=f"{rationale}\nAnswer: {letter}" if rationale else None,
        id=_id(row, "id"),
        source=_source(row),
    )


def strategyqa(row: Row) -> Draft:
    """StrategyQA: gold yes or no, from true/false as well; the facts, then `Answer: yes`, are the solution."""
    gold = boolean_gold(pick(row, "answer", "answer"))
    facts = pick_optional(row, "facts", "solution")
    text = " ".join(map(text_of, facts)) if isinstance(facts, list) else text_of(facts)
    return Draft(
        problem=text_of(pick(row, "problem", "question", "problem")),
        answer=gold,
        kind="boolean",
        solution=f"{text}\nAnswer: {gold}" if text else None,
        id=_id(row, "qid", "id"),
        source=_source(row),
    )


def math(row: Row) -> Draft:
    """MATH and its subsets: the gold is `answer`, or the last \\boxed{} of the solution where that is all there is."""
    solution = prose_of(pick_optional(row, "solution"))
    answer = pick_optional(row, "answer", "final_answer")
    if answer is MISSING:
        if solution is None:
            raise MissingColumn("answer", ("answer", "final_answer", "solution"))
        boxed = last_boxed(solution)
        if boxed is None:
            raise RowRejected("no \\boxed{} in the solution and no answer column", solution[-80:])
        answer = boxed
    return Draft(
        problem=text_of(pick(row, "problem", "problem", "question")),
        answer=text_of(answer),
        solution=solution,
        id=_id(row, "unique_id", "id"),
        source=_source(row),
    )


def last_boxed(text: str) -> str | None:
    """What stands in the last \\boxed{...} or \\fbox{...} with balanced braces; None where there is none."""
    for match in reversed(list(re.finditer(r"\\(?:boxed|fbox)\s*\{", text))):
        depth, position = 1, match.end()
        while position < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[position], 0) if text[position - 1] != "\\" else 0
            position += 1
        if not depth:
            return text[match.end() : position - 1].strip()
    return None


NAMED: dict[str, Mapper] = {
    "dapo_math_17k": dapo_math_17k,
    "gsm8k": gsm8k,
    "mathqa": mathqa,
    "strategyqa": strategyqa,
    "math": math,
    "verl": verl,
}


def columns_mapper(columns: Mapping[str, str], kind: str | None = None, need: Need = QUESTION) -> Mapper:
    """A mapper from the config's `{field: column}`; a column may be a dotted path.

    The kind is `kind`, else the row's kind column, else choice where there are options, boolean where the gold is
    true, false, yes or no, else math. Fields outside `need` may be missing, and a gold is then not looked at.
    """

    def to_draft(row: Row) -> Draft:
        value = {field: lookup(row, column) for field, column in columns.items()}
        for field in need:
            if value.get(field, MISSING) is MISSING:
                raise MissingColumn(field, (columns.get(field, field),))
        problem, gold = value.get("problem"), value.get("answer") if "answer" in need else None
        problem = last_user_message(problem) if _is_chat(problem) else text_of(problem)
        found_kind = kind or text_of(value.get("kind")).lower() or None
        options = None
        if value.get("options") not in (None, MISSING) and found_kind in (None, "choice"):
            options = parse_options(value["options"])
            found_kind = "choice"
        if found_kind is None:
            found_kind = "boolean" if text_of(gold).lower() in ("yes", "no", "true", "false") else "math"
        if found_kind not in KINDS:
            raise RowRejected(f"kind is none of {', '.join(KINDS)}", found_kind)
        return Draft(
            problem=with_options(problem, options) if options else problem,
            answer=_gold(gold, found_kind, options),
            kind=found_kind,
            solution=prose_of(value.get("solution")),
            id=text_of(value.get("id")) or None,
            source=text_of(value.get("source")) or None,
        )

    return to_draft


def _gold(value: Any, kind: str, options: dict[str, str] | None) -> str:
    if not text_of(value):
        return ""
    if kind == "choice":
        return choice_gold(value, options)
    return boolean_gold(value) if kind == "boolean" else text_of(value)


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _id(row: Row, *columns: str) -> str | None:
    return text_of(pick_optional(row, *columns)) or None


def _source(row: Row) -> str | None:
    return text_of(pick_optional(row, "data_source", "source")) or None


# Guessed columns, in order of preference.
_USUAL = {
    "problem": ("problem", "question", "Problem", "Question", "prompt", "query", "instruction", "input"),
    "answer": (
        "answer",
        "final_answer",
        "expected_answer",
        "gold",
        "ground_truth",
        "target",
        "label",
        "Answer",
    ),
    "solution": ("solution", "rationale", "Rationale", "reasoning", "explanation"),
    "id": ("id", "question_id", "qid", "unique_id", "uid"),
    "options": ("options", "choices"),
    "kind": ("kind",),
    "source": ("source", "data_source"),
}


def guess(row: Row, need: Need = QUESTION) -> tuple[str | dict[str, str], bool]:
    """A mapping for rows like this one, and whether it is more than the plain column names.

    Raises DataError, naming the columns that exist, where a needed column is not recognised.
    """
    named = _recognise(row)
    if named and _suits(named, row):
        return named, True
    columns = {}
    for field, candidates in _USUAL.items():
        present = [candidate for candidate in candidates if candidate in row]
        if present:
            columns[field] = next((c for c in present if row[c] is not None), present[0])
        elif field not in QUESTION:
            columns[field] = field  # a later row may have it
    missing = [field for field in need if field not in columns]
    if missing:
        raise missing_column(
            missing[0], _USUAL[missing[0]], row, "no mapping is given and none could be guessed"
        )
    return columns, any(field != column for field, column in columns.items())


def _suits(named: str, row: Row) -> bool:
    try:
        NAMED[named](row)
    except MissingColumn:
        return False
    except RowRejected:
        return True
    return True


def _recognise(row: Row) -> str | None:
    answer, solution = row.get("answer"), row.get("solution")
    if lookup(row, "reward_model.ground_truth") is not MISSING and "prompt" in row:
        if isinstance(row["prompt"], str):
            return "dapo_math_17k"
        if not text_of(lookup(row, "extra_info.raw_problem")):
            prompt = row["prompt"]
            text = last_user_message(prompt) if _is_chat(prompt) else ""
            return "dapo_math_17k" if _DAPO_BEFORE.match(text) else "verl"
        return "verl"
    if {"Problem", "options", "correct"} <= row.keys() or {"options_raw", "annotated_formula"} <= row.keys():
        return "mathqa"
    if any(isinstance(text, str) and "\n#### " in text for text in (answer, solution)):
        return "gsm8k"
    if "facts" in row and text_of(answer).lower() in ("yes", "no", "true", "false"):
        return "strategyqa"
    boxed = isinstance(solution, str) and last_boxed(solution) is not None
    return "math" if boxed and "problem" in row and "answer" not in row else None


def missing_column(field: str, tried: tuple[str, ...], row: Row, because: str) -> DataError:
    """The error for a column that is not there: what exists, and how to map it."""
    return DataError(
        f"no column for {field!r} ({because}; looked for {', '.join(tried)}). "
        f"The rows have: {', '.join(map(str, row))}. Map the columns: "
        "mapping: {problem: <column>, answer: <column>}; dotted paths reach into nested columns"
    )
