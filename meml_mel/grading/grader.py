r"""`grade(gold, answer)`: the verdict on one response, in this process and without a time limit.

A hostile answer can run for ever here; the reward uses `GradingPool` (pool.py), which gives the same verdicts
from worker processes that it can kill.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from . import choice, compare
from .extract import MAX_ANSWER_CHARS, NOTHING, Extraction, extract
from .latex import squeeze, tidy
from .terms import Sequence, Term, read
from .verdict import Grade, Kind

Gold = str | list[str] | tuple[str, ...]
KINDS = ("math", "choice", "boolean")
_LETTER_GOLD = re.compile(r"\$?(?:\\text(?:bf)?\{)?\(?[A-E]\)?\}?\$?")
UNGRADABLE = Grade("ungradable", "unparsable_gold")
ENDLESS_GOLD = Grade("ungradable", "timeout")


class NeedsAlgebra(Exception):
    """The comparison cannot be decided without the computer algebra system."""


class _NoAlgebra:
    """Stands in for `symbolic` where only what text and exact numbers decide is wanted."""

    def parses(self, text: str) -> bool:
        raise NeedsAlgebra

    def value(self, text: str) -> tuple[Fraction, bool] | None:
        raise NeedsAlgebra

    def same(self, gold: str, answer: str) -> bool:
        raise NeedsAlgebra

    def same_equation(self, gold: tuple[str, str], answer: tuple[str, str]) -> bool:
        raise NeedsAlgebra


NO_ALGEBRA = _NoAlgebra()


@dataclass(frozen=True, slots=True)
class Claim:
    """What is left to decide after extraction; equal claims have equal grades. Golds are tuples of answers."""

    gold: tuple[str, ...]
    extracted: str | None
    kind: Kind = "math"
    truncated: bool = False
    serial: int = 0  # tells equal claims apart where each is to be graded for itself


def grade(gold: Gold, answer: str, kind: Kind = "math", truncated: bool = False) -> Grade:
    """Grade a response, or a bare answer, against the gold.

    `gold` may be several final answers (a list): all of them are asked for, in any order. `truncated` says that
    the generation was cut at its length limit, which is wrong whatever it holds. Raises ValueError for an
    unknown kind and TypeError for a gold or answer that is not text; never for what the text holds.
    """
    from . import symbolic

    return decide(claim(gold, answer, kind, truncated), symbolic)


def claim(gold: Gold, answer: str, kind: Kind = "math", truncated: bool = False) -> Claim:
    """Extract the answer and put the question that is left (linear in the response's length)."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}: use one of {', '.join(KINDS)}")
    if not isinstance(answer, str):
        raise TypeError(f"the answer is {type(answer).__name__}, not str")
    if isinstance(gold, str):
        golds = _listed_gold(gold)
    elif isinstance(gold, list | tuple) and all(isinstance(part, str) for part in gold):
        golds = tuple(gold)
    else:
        raise TypeError(f"the gold is {type(gold).__name__}, not str or a list of str")
    reader = {"math": extract, "choice": choice.choice_letter, "boolean": choice.boolean_answer}[kind]
    if kind == "math" and len(golds) == 1 and _LETTER_GOLD.fullmatch(golds[0].strip()):
        reader = choice.choice_letter  # the gold of a multiple-choice question in a mathematics data set
    text = reader(answer).text
    if text is not None and len(text) > MAX_ANSWER_CHARS:
        text = text[: MAX_ANSWER_CHARS + 1]  # too long to be right: enough of it to say so
    return Claim(golds, text, kind, truncated)


def _listed_gold(gold: str) -> tuple[str, ...]:
    """A gold that is a JSON list of strings, as some data sets store it, is that list."""
    if gold.startswith('["') and gold.endswith('"]'):
        try:
            parts = json.loads(gold)
        except ValueError:
            return (gold,)
        if all(isinstance(part, str) for part in parts):
            return tuple(parts)
    return (gold,)


def decide(claim: Claim, algebra: Any) -> Grade:
    """The grade of a claim. With NO_ALGEBRA it raises NeedsAlgebra where text and numbers do not decide it."""
    shown = claim.extracted
    if claim.kind != "math":
        return _decide_letters(claim, shown)
    try:
        gold = read_gold(claim.gold)
        if gold is None or not compare.gradable(gold, algebra):
            return UNGRADABLE
    except compare.TooLargeError:
        return ENDLESS_GOLD
    except RecursionError:
        return UNGRADABLE
    if claim.truncated:
        return Grade("wrong", "truncated", shown)
    if not claim.extracted or not tidy(claim.extracted[:MAX_ANSWER_CHARS]):
        return Grade("wrong", "no_answer")
    try:
        right = claim.extracted == " ".join(claim.gold).strip() or _right(gold, claim.extracted, algebra)
    except compare.TooLargeError:  # it would take for ever to evaluate
        return Grade("wrong", "timeout", shown)
    return Grade("right", None, shown) if right else Grade("wrong", "different", shown)


def _right(gold: Term, extracted: str, algebra: Any) -> bool:
    if len(extracted) > MAX_ANSWER_CHARS:
        return False
    answer = read(extracted, gold=False)
    return answer is not None and compare.same(gold, answer, algebra)


def _decide_letters(claim: Claim, shown: str | None) -> Grade:
    read_letter = choice.choice_gold if claim.kind == "choice" else choice.boolean_gold
    gold: str | bool | None = read_letter(claim.gold[0]) if len(claim.gold) == 1 else None
    if gold is None:
        return UNGRADABLE
    if claim.truncated:
        return Grade("wrong", "truncated", shown)
    if not claim.extracted:
        return Grade("wrong", "no_answer")
    answer = claim.extracted if claim.kind == "choice" else {"yes": True, "no": False}.get(claim.extracted)
    return Grade("right", None, shown) if answer == gold else Grade("wrong", "different", shown)


@lru_cache(maxsize=4096)
def read_gold(golds: tuple[str, ...]) -> Term | None:
    """The gold's term: several golds make one list, so that a part alone is not accepted; None if unreadable."""
    terms = []
    for gold in golds:
        found: Extraction = extract(gold, gold=True)
        if found is NOTHING or not found.text or len(found.text) > MAX_ANSWER_CHARS:
            return None
        term = read(found.text, gold=True)
        if term is None:
            return None
        terms.append(term)
    if not terms:
        return None
    if len(terms) == 1:
        return terms[0]
    items = tuple(
        item for t in terms for item in (t.items if isinstance(t, Sequence) and not t.open else (t,))
    )
    return Sequence(", ".join(squeeze(t.text) for t in terms), "", "", items)
