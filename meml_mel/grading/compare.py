r"""Does an answer equal the gold? The rules of docs/grading.md, over terms; formulas go to an `Algebra`.

The gold stands first throughout: some rules are not symmetric (a gold "x = 5" accepts "5"; a gold "5" accepts
"x = 5", but a gold "x + y = 5" does not accept "5").
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Protocol

from .latex import squeeze
from .numerals import Number, nearly, rounds_to, same_number, same_value
from .terms import (
    Based,
    Equation,
    Formula,
    Named,
    Sequence,
    Term,
    Words,
    read,
    simple_variable,
    split_list,
)
from .units import conflict

MAX_ITEMS = 60  # longer lists are compared as text only


class TooLargeError(ArithmeticError):
    """Evaluating this would not end in reasonable time."""


class Algebra(Protocol):
    """What compares formulas: `symbolic`, or a stand-in that says it is needed (grader.py)."""

    def parses(self, text: str) -> bool: ...

    def value(self, text: str) -> tuple[Fraction, bool] | None: ...

    def same(self, gold: str, answer: str) -> bool: ...

    def same_equation(self, gold: tuple[str, str], answer: tuple[str, str]) -> bool: ...


def gradable(gold: Term, algebra: Algebra) -> bool:
    """Can every part of the gold be parsed? Prose of more than four words cannot."""
    if isinstance(gold, Number | Based):
        return True
    if isinstance(gold, Words):
        return gold.marked or len(gold.text.split()) <= 4
    if isinstance(gold, Named):
        return gradable(gold.term, algebra)
    if isinstance(gold, Equation):
        return algebra.parses(gold.left) and algebra.parses(gold.right)
    if isinstance(gold, Sequence):
        return all(gradable(item, algebra) for item in gold.items) or algebra.parses(gold.text)
    return algebra.parses(gold.text)


def same(gold: Term, answer: Term, algebra: Algebra) -> bool:
    """Is `answer` equal to `gold`?"""
    if squeeze(gold.text) == squeeze(answer.text):
        return True
    if isinstance(gold, Named | Equation) or isinstance(answer, Named | Equation):
        return _same_relation(gold, answer, algebra)
    if isinstance(gold, Sequence) or isinstance(answer, Sequence):
        return _same_sequence(gold, answer, algebra)
    if isinstance(gold, Based) or isinstance(answer, Based):
        return _same_based(gold, answer)
    if isinstance(gold, Words) or isinstance(answer, Words):
        return _same_words(gold, answer, algebra)
    if conflict(gold.unit, answer.unit):
        return False
    if isinstance(gold, Number) and isinstance(answer, Number):
        return same_number(gold, answer)
    return _same_formula(gold, answer, algebra)


# ---------------------------------------------------------------- numerals, words and formulas


def _same_based(gold: Term, answer: Term) -> bool:
    if isinstance(gold, Based) and isinstance(answer, Based):
        return gold.digits == answer.digits and gold.base == answer.base
    based, other = (gold, answer) if isinstance(gold, Based) else (answer, gold)
    assert isinstance(based, Based)
    return squeeze(other.text).lstrip("0") == based.digits


_NUMERALS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
_NUMBER_WORDS = {word: Fraction(i) for i, word in enumerate(_NUMERALS)} | {
    "half": Fraction(1, 2),
    "one half": Fraction(1, 2),
    "one third": Fraction(1, 3),
    "one quarter": Fraction(1, 4),
    "one fourth": Fraction(1, 4),
}


def _spelling(text: str) -> str:
    letters = "".join(c.lower() if c.isalnum() else " " for c in text)
    words = letters.split()
    return " ".join(words[1:] if len(words) > 1 and words[0] in ("the", "a", "an") else words)


def _as_number(term: Term) -> Number | None:
    if isinstance(term, Words) and _spelling(term.text) in _NUMBER_WORDS:
        return Number(term.text, _NUMBER_WORDS[_spelling(term.text)])
    return term if isinstance(term, Number) else None


def _same_words(gold: Term, answer: Term, algebra: Algebra) -> bool:
    numbers = _as_number(gold), _as_number(answer)
    if numbers[0] is not None and numbers[1] is not None:
        return same_number(numbers[0], numbers[1])
    plain = [squeeze(t.text).strip("()") if len(t.text) <= 3 else t.text for t in (gold, answer)]
    if _spelling(plain[0]) == _spelling(plain[1]) != "":
        return True
    if any(isinstance(t, Words) and (t.marked or len(t.text) > 3) for t in (gold, answer)):
        return False
    return algebra.same(gold.text, answer.text)


def _same_formula(gold: Number | Formula, answer: Number | Formula, algebra: Algebra) -> bool:
    if gold.percent != answer.percent:  # "28%" may be meant as 28/100
        hundredth = [
            f"\\frac{{{_value_text(t)}}}{{100}}" if t.percent else _value_text(t) for t in (gold, answer)
        ]
        if algebra.same(hundredth[0], hundredth[1]):
            return True
    first, second = _value_text(gold), _value_text(answer)
    number, formula = (answer, first) if isinstance(answer, Number) else (gold, second)
    if isinstance(number, Number):
        worth = algebra.value(formula)
        if worth is not None:
            return _worth(worth[0], worth[1], number)
    if algebra.same(first, second):
        return True
    whole = gold.text, answer.text  # a unit read off one side may have been part of the formula
    return whole != (first, second) and not (gold.unit and answer.unit) and algebra.same(*whole)


def _worth(value: Fraction, exact: bool, number: Number) -> bool:
    """Does a formula worth `value` (to 50 digits where not exact) equal a plain number?"""
    if exact:
        return same_value(Number("", value), number)
    return nearly(value, number.value, Fraction(1, 10**40)) or rounds_to(value, number)


def _value_text(term: Number | Formula) -> str:
    if isinstance(term, Formula):
        return term.text
    value = term.value
    sign = "-" if value < 0 else ""
    return (
        f"{sign}{abs(value.numerator)}"
        if value.denominator == 1
        else f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
    )


# ---------------------------------------------------------------- equations


def _same_relation(gold: Term, answer: Term, algebra: Algebra) -> bool:
    if isinstance(gold, Named):
        if isinstance(answer, Named):
            if _names_agree(gold.name, answer.name) and same(gold.term, answer.term, algebra):
                return True
            return _equations(gold, answer, algebra)
        if isinstance(answer, Equation):
            return _equations(gold, answer, algebra)
        return same(gold.term, answer, algebra)
    if isinstance(answer, Named):
        return (
            _equations(gold, answer, algebra)
            if isinstance(gold, Equation)
            else same(gold, answer.term, algebra)
        )
    if isinstance(gold, Equation):
        return isinstance(answer, Equation) and _equations(gold, answer, algebra)
    assert isinstance(answer, Equation)
    if _POWER.search(_COMMAND.sub("", answer.left)):  # x^2 + y^2 = 81 is a curve, not 81
        return False
    side = read(answer.right, gold=False)
    return side is not None and same(gold, side, algebra)


_COMMAND = re.compile(r"\\[A-Za-z]+")
_POWER = re.compile(r"[A-Za-z][^=]*\)\s?\^|[A-Za-z]\s?\^")


def _names_agree(gold: str, answer: str) -> bool:
    """x = 5 is not y = 5, but f(x) = 2x may be written y = 2x, and descriptions of a quantity may differ."""
    if gold.casefold() == answer.casefold():
        return True
    if simple_variable(gold) and simple_variable(answer):
        return False
    functions = [name for name in (gold, answer) if "(" in name and name[0].isalpha()]
    if len(functions) == 1:
        other = answer if functions[0] == gold else gold
        return other == "y" or not simple_variable(other)
    return len(functions) == 0 or gold.split("(")[0] == answer.split("(")[0]


def _sides(term: Named | Equation) -> tuple[str, str]:
    return (term.name, term.right) if isinstance(term, Named) else (term.left, term.right)


def _equations(gold: Named | Equation, answer: Named | Equation, algebra: Algebra) -> bool:
    return algebra.same_equation(_sides(gold), _sides(answer))


# ---------------------------------------------------------------- lists, tuples, sets, intervals, matrices


def _value(term: Term) -> Term:
    return term.term if isinstance(term, Named) else term


def _unordered(term: Sequence) -> bool:
    return term.open in ("", "\\{", "\\cup")


def _same_sequence(gold: Term, answer: Term, algebra: Algebra) -> bool:
    if isinstance(gold, Sequence) and isinstance(answer, Sequence):
        if max(len(gold.items), len(answer.items)) > MAX_ITEMS:
            return False
        if _same_sequences(gold, answer, algebra):
            return True
        return "\\cup" in (gold.open, answer.open) and _same_whole(gold, answer, algebra)
    if isinstance(gold, Sequence):
        if _comma_decimal(gold, answer, algebra) or _listed(gold, answer, algebra):
            return True
        if isinstance(answer, Words):
            return False
        if gold.open == ":":
            return _quotient(gold, answer)
        if _unordered(gold) and all(same(item, answer, algebra) for item in gold.items):
            return True
        return _same_whole(gold, answer, algebra)
    assert isinstance(answer, Sequence)
    if _comma_decimal(answer, gold, algebra) or _listed(answer, gold, algebra):
        return True
    if isinstance(gold, Words):
        return False
    if (
        answer.open == ""
        and len(answer.items) <= MAX_ITEMS
        and all(same(gold, item, algebra) for item in answer.items)
    ):
        return True  # the same value in several spellings: "1/2, 0.5"
    return _same_whole(gold, answer, algebra)


def _same_sequences(gold: Sequence, answer: Sequence, algebra: Algebra) -> bool:
    ordered = _ordered(gold, answer)
    if "matrix" in (gold.open, answer.open):
        shapes = [
            (len(s.items) // s.columns, s.columns) if s.open == "matrix" else None for s in (gold, answer)
        ]
        if None in shapes:
            vector = shapes[0] or shapes[1]
            other = answer if shapes[0] else gold
            if vector is None or 1 not in vector or other.open not in ("(", "[", "\\langle"):
                return False
        elif shapes[0] != shapes[1]:
            return False
    elif ":" in (gold.open, answer.open):
        if gold.open != answer.open or len(gold.items) != len(answer.items):
            return False
        return _same_ratio(gold, answer)
    elif ("\\cup" in (gold.open, answer.open) and gold.open != answer.open) or not _brackets_agree(
        gold, answer
    ):
        return False
    if ordered:
        if len(gold.items) != len(answer.items):
            return False
        named = all(isinstance(i, Named) for i in (*gold.items, *answer.items))
        return all(
            same(*((g, a) if named else (_value(g), _value(a))), algebra)
            for g, a in zip(gold.items, answer.items, strict=True)
        )
    return all(any(same(g, a, algebra) for a in answer.items) for g in gold.items) and all(
        any(same(g, a, algebra) for g in gold.items) for a in answer.items
    )


def _ordered(gold: Sequence, answer: Sequence) -> bool:
    """Lists and sets have no order, unless the names of one side ("x = 1, y = 2") give the other's values one."""
    if not _unordered(gold):
        return True
    if gold.open == "" and answer.open in ("", "("):
        names = [i.name for i in gold.items if isinstance(i, Named)]
        unnamed = not any(isinstance(i, Named) for i in answer.items)
        return unnamed and len(names) == len(gold.items) and len(set(names)) == len(names) > 1
    return False


def _brackets_agree(gold: Sequence, answer: Sequence) -> bool:
    kinds = (gold.open, gold.close), (answer.open, answer.close)
    if kinds[0] == kinds[1]:
        return True
    if len(gold.items) == 2 and all("[" in k or "]" in k for k in kinds):
        return False  # intervals: [0, 1) is not [0, 1]
    plain = {("", ""), ("(", ")"), ("\\{", "\\}")}
    if kinds[0] in plain and kinds[1] in plain:
        return True
    if len(gold.items) > 2:  # no interval: (1, 2, 3), [1, 2, 3] and <1, 2, 3> are the same vector
        return kinds[0] != ("\\{", "\\}") and kinds[1] != ("\\{", "\\}")
    vectors = {("(", ")"), ("\\langle", "\\rangle")}
    return kinds[0] in vectors and kinds[1] in vectors


def _same_ratio(gold: Sequence, answer: Sequence) -> bool:
    first, second = ([i.value for i in s.items if isinstance(i, Number)] for s in (gold, answer))
    if len(first) != len(second) or 0 in first or 0 in second:
        return False
    return all(a * second[0] == b * first[0] for a, b in zip(first, second, strict=True))


def _quotient(ratio: Sequence, number: Term) -> bool:
    """Is the ratio a:b written as the fraction a/b on the other side?"""
    values = [item.value for item in ratio.items if isinstance(item, Number)]
    if len(values) != 2 or values[1] == 0 or not isinstance(number, Number):
        return False
    return same_number(Number(ratio.text, values[0] / values[1]), number)


def _same_whole(gold: Term, answer: Term, algebra: Algebra) -> bool:
    """Let the algebra read both as wholes: unions, intervals against inequalities, sets that are evaluated."""
    if isinstance(gold, Number) or isinstance(answer, Number):
        return False
    return algebra.same(gold.text, answer.text)


def _comma_decimal(sequence: Sequence, number: Term, algebra: Algebra) -> bool:
    """Is "1,22" beside a plain number its decimal spelling?"""
    digits = sequence.text.lstrip("-")
    if sequence.open or not isinstance(number, Number) or not digits.replace(",", "", 1).isdigit():
        return False
    decimal = read(sequence.text.replace(",", "."), gold=False)
    return isinstance(decimal, Number) and number.places is not None and same_number(decimal, number)


def _listed(sequence: Sequence, number: Term, algebra: Algebra) -> bool:
    """Is a number with thousands commas, "100,200", meant as the list that stands on the other side?"""
    if not isinstance(number, Number) or "," not in number.text or sequence.open not in ("", "\\{"):
        return False
    parts = [read(part, gold=False) for part in split_list(number.text, inner=True)]
    if any(part is None for part in parts) or len(parts) < 2:
        return False
    return _same_sequences(
        Sequence(number.text, "", "", tuple(p for p in parts if p is not None)), sequence, algebra
    )
