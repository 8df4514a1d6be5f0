"""Plain numbers: reading them exactly, and when two of them count as equal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from .units import Unit


@dataclass(frozen=True, slots=True)
class Number:
    """An exactly known number. `places`: digits after the point where it is written with one, else None."""

    text: str
    value: Fraction
    places: int | None = None
    percent: bool = False
    unit: Unit | None = None


_DIGITS = 4000  # Python turns no longer text into a number
SIMPLE = re.compile(r"-?\d+(?:\.\d+)?")
_INTEGER = r"[1-9]\d{0,2}(?:,\d{3})+|\d+"
_DECIMAL = re.compile(rf"(?P<sign>[+-]?)\s?(?P<whole>{_INTEGER})?(?:\.(?P<places>\d+)|(?<=\d)\.)?")
_SCIENTIFIC = re.compile(
    rf"(?P<mantissa>[+-]?\s?(?:{_INTEGER})(?:\.\d+)?)\s?(?:(?:\\times|\\cdot|\*|x)\s?10\s?\^\s?\{{?\s?(?P<power>[+-]?\s?\d{{1,4}})\s?\}}?"
    r"|[eE](?P<e>[+-]?\d{1,4}))"
)
_FRACTION = re.compile(
    rf"(?P<sign>[+-]?)\s?(?:(?P<whole>\d+)\s?(?=\\)|(?P<whole2>\d+)\s(?=\d+\s?/))?"
    rf"(?:\\frac\s?\{{\s?(?P<up>-?\s?(?:{_INTEGER}))\s?\}}\s?\{{\s?(?P<down>-?\s?(?:{_INTEGER}))\s?\}}"
    rf"|(?P<up2>{_INTEGER})\s?/\s?(?P<down2>{_INTEGER}))"
)
_SPACED = re.compile(r"-?\d{1,3}(?: \d{3})+")
PERCENT = re.compile(
    r"\s*(?:%|\\text\{\s*(?:percent|percentage|pct|%)\s*\}|(?<![A-Za-z])(?:percent|percentage|pct)\b)$", re.I
)


def plain_value(text: str) -> tuple[Fraction, int | None] | None:
    """(value, digits after the point) of a plain number, fraction or power-of-ten notation."""
    if len(text) > _DIGITS:
        return None
    if _SPACED.fullmatch(text):
        text = text.replace(" ", "")
    found = _DECIMAL.fullmatch(text)
    if found and (found["whole"] or found["places"]):
        places = found["places"]
        digits = (found["whole"] or "0").replace(",", "") + (places or "")
        value = Fraction(int(found["sign"] + digits), 10 ** len(places or ""))
        return value, len(places) if places else None
    found = _SCIENTIFIC.fullmatch(text)
    if found:
        mantissa = plain_value(found["mantissa"].replace(" ", ""))
        power = int((found["power"] or found["e"]).replace(" ", ""))
        if mantissa and abs(power) <= 400:
            places = mantissa[1]
            return mantissa[0] * Fraction(10) ** power, None if places is None else max(places - power, 0)
        return None
    found = _FRACTION.fullmatch(text)
    if found:
        up = int((found["up"] or found["up2"]).replace(",", "").replace(" ", ""))
        down = int((found["down"] or found["down2"]).replace(",", "").replace(" ", ""))
        whole = int(found["whole"] or found["whole2"] or 0)
        if down == 0 or (whole and (up < 0 or down < 0)):
            return None
        value = whole + Fraction(up, down)
        return (-value if found["sign"] == "-" else value), None
    return None


def read_number(text: str) -> Number | None:
    """The plain number, or percentage, that a tidied text writes; None when it writes something else."""
    percent = PERCENT.search(text)
    plain = plain_value(text[: percent.start()].rstrip() if percent else text)
    if plain is None:
        return None
    return Number(text, plain[0], plain[1], percent is not None)


def same_number(gold: Number, answer: Number) -> bool:
    """Exactly equal, or equal as decimals; 28% equals 28 (a bare percentage) and 0.28."""
    return any(same_value(*pair) for pair in _scalings(gold, answer))


def _scalings(gold: Number, answer: Number) -> list[tuple[Number, Number]]:
    if gold.percent == answer.percent:
        return [(gold, answer)]
    if gold.percent:
        return [(gold, answer), (_hundredth(gold), answer)]
    return [(gold, answer), (gold, _hundredth(answer))]


def _hundredth(number: Number) -> Number:
    places = None if number.places is None else number.places + 2
    return Number(number.text, number.value / 100, places)


def same_value(gold: Number, answer: Number) -> bool:
    """`same_number` without its reading of percentages: exactly, to 6 decimals, or correctly rounded."""
    if gold.value == answer.value:
        return True
    if gold.places is None and answer.places is None:
        return False
    if round(gold.value, 6) == round(answer.value, 6) and nearly(
        gold.value, answer.value, Fraction(1, 10**6)
    ):
        return True
    if gold.places is None:
        return not _terminates(gold.value) and rounds_to(gold.value, answer)
    return answer.places is None and not _terminates(answer.value) and rounds_to(answer.value, gold)


def rounds_to(exact: Fraction, decimal: Number) -> bool:
    """Is `decimal` an exact value correctly rounded to the places it shows, and within 1e-4 of it?

    For values without a finite decimal form: 0.3333 is 1/3 and 1.732 is sqrt(3); 0.33 and 1.73 are too coarse.
    """
    if decimal.places is None:
        return False
    half = Fraction(1, 2 * 10**decimal.places)
    return abs(exact - decimal.value) <= half and nearly(exact, decimal.value, Fraction(1, 10**4))


def nearly(one: Fraction, two: Fraction, relative: Fraction) -> bool:
    """Are the two within a relative tolerance of each other?"""
    return abs(one - two) <= relative * max(abs(one), abs(two))


def _terminates(value: Fraction) -> bool:
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1
