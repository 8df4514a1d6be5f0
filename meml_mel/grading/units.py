r"""Units: taking them off a value, and telling whether two of them contradict each other.

A unit is optional: "17" answers a gold "17 km" and the other way round. Two *known* units that differ make two
answers different (5 km is not 5 miles); unknown words ("12 apples") are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = {
    "km": "km kilometer kilometers kilometre kilometres kms",
    "m": "m meter meters metre metres",
    "cm": "cm centimeter centimeters centimetre centimetres cms",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "mile": "mile miles mi",
    "yard": "yard yards yd yds",
    "foot": "foot feet ft",
    "inch": "inch inches",
    "kg": "kg kgs kilogram kilograms kilo kilos",
    "g": "g gram grams gm gms",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs pound pounds",
    "oz": "oz ounce ounces",
    "ton": "ton tons tonne tonnes",
    "l": "l L liter liters litre litres",
    "ml": "ml mL milliliter milliliters millilitre millilitres",
    "gallon": "gallon gallons gal",
    "cup": "cup cups",
    "s": "s sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "year years yr yrs",
    "dollar": "dollar dollars usd USD",
    "cent": "cent cents",
    "euro": "euro euros",
    "pound sterling": "gbp GBP",
    "rupee": "rupee rupees rs Rs",
    "degree": "degree degrees deg",
    "radian": "radian radians rad rads",
    "celsius": "celsius",
    "fahrenheit": "fahrenheit",
    "mph": "mph",
    "km/h": "kmph kph kmh",
    "acre": "acre acres",
    "hectare": "hectare hectares ha",
    "newton": "newton newtons",
    "joule": "joule joules",
    "watt": "watt watts",
    "volt": "volt volts",
    "ohm": "ohm ohms",
    "hz": "hz Hz hertz",
    "am": "am a.m. a.m AM A.M.",
    "pm": "pm p.m. p.m PM P.M.",
}
KNOWN = {name: unit for unit, names in _NAMES.items() for name in names.split()}
_CURRENCY = {"\\$": "dollar", "€": "euro", "£": "pound sterling", "₹": "rupee", "¥": "yen"}
_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3, "cu": 3}
_NOT_UNITS = {
    "pi", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "mod", "if", "for", "where", "when",
    "and", "or", "with", "choose", "infty", "to", "such", "is", "are", "not", "max", "as",
}  # fmt: skip
_TRAILING = re.compile(r"(?P<words>[A-Za-zµ/][A-Za-zµ .'·/-]*)(?:\^?\s*\{?(?P<power>[23])\}?)?$")
_TEXT_END = re.compile(r"\\text\{(?P<words>[^{}]*)\}\s*(?:\^\s*\{?(?P<power>-?\d)\}?)?$")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
_DEGREE_END = re.compile(r"\s*\^\{\\circ\}\s*(?:\\text\{)?\s*(?P<scale>[CF]?)\}?$")


@dataclass(frozen=True, slots=True)
class Unit:
    """`name` is canonical where the unit is known, else None. `glued`: a letter written against its number."""

    name: str | None
    glued: bool = False


def conflict(gold: Unit | None, answer: Unit | None) -> bool:
    """Do both state a known unit, and not the same one?"""
    if gold is None or answer is None or gold.name is None or answer.name is None:
        return False
    return gold.name != answer.name


def canonical(words: str, power: str | None = None) -> str | None:
    """The canonical name of a unit as written ("square cm" -> "cm^2", "miles per hour" -> "mph"), or None."""
    text = re.sub(r"\bper\b", "/", words.strip().strip(",;"))
    sides = [side.strip() for side in re.split(r"/", text)]
    names = []
    for i, side in enumerate(sides):
        exponent = int(power) if power and i == len(sides) - 1 else 1
        unit = None
        for word in side.split():
            if word.lower() in _POWER_WORDS:
                exponent = _POWER_WORDS[word.lower()]
            elif unit is None:
                unit = (
                    KNOWN.get(word)
                    or KNOWN.get(word.lower() if len(word) > 1 else word)
                    or KNOWN.get(word.rstrip("."))
                )
                if unit is None:
                    return None
            else:
                return None
        if unit is None:
            return "square unit" if side in ("square", "sq") else None
        names.append(unit if exponent == 1 else f"{unit}^{exponent}")
    joined = "/".join(names)
    return {"mile/h": "mph"}.get(joined, joined)


def take_unit(text: str) -> tuple[str, Unit | None]:
    r"""(value, unit) of a tidied text; the text itself and None where it carries no unit."""
    for sign, name in _CURRENCY.items():
        if text.startswith(sign) or re.match(r"-\s*" + re.escape(sign), text):
            return text.replace(sign, "", 1).strip(), Unit(name)
        if text.endswith(sign) and len(text) > len(sign):
            return text[: -len(sign)].strip(), Unit(name)
    degree = _DEGREE_END.search(text)
    if degree and text[: degree.start()].strip() and not _TRIGONOMETRIC.search(text):
        scale = {"C": "celsius", "F": "fahrenheit"}.get(degree["scale"], "degree")
        return text[: degree.start()].strip(), Unit(scale)
    return _text_unit(text) or _word_unit(text) or (text, None)


def _text_unit(text: str) -> tuple[str, Unit | None] | None:
    r"""Trailing `\text{..}` groups, with exponents, joined by `/`."""
    words: list[str] = []
    power = None
    value = text
    while True:
        found = _TEXT_END.search(value)
        if found is None:
            break
        word = found["words"].strip()
        if set(re.findall(r"[a-z]+", word.lower())) & _NOT_UNITS:
            break
        if found["power"] and power is None and not words:
            power = found["power"]
        words.insert(0, word)
        value = value[: found.start()].rstrip()
        if value.endswith("/"):
            words.insert(0, "/")
            value = value[:-1].rstrip()
    if not words or not value or not re.search(r"[\dA-Za-z]", value):
        return None
    name = canonical(" ".join(words), power)
    if name is None and not re.search(r"\d", value):
        return None
    return value, Unit(name)


def _word_unit(text: str) -> tuple[str, Unit | None] | None:
    """Trailing plain words: known units, or any words after a number ("12 apples")."""
    found = _TRAILING.search(text)
    if found is None:
        return None
    value, words = text[: found.start()], found["words"]
    if not value.strip() or value.rstrip()[-1] not in "0123456789})]!.":
        return None
    parts = [w for w in re.split(r"[\s/·]+", words) if w]
    if not parts or set(w.lower() for w in parts) & _NOT_UNITS:
        return None
    name = canonical(words, found["power"])
    plain_number = re.fullmatch(r"-?[\d.,]+(?:/\d+)?|-?\d*\s?\\frac\{\d+\}\{\d+\}", value.strip()) is not None
    glued = value[-1] != " "
    if name is not None:
        single = len(parts) == 1 and len(parts[0]) == 1
        if single and not plain_number:
            return None
        return value.strip(), Unit(name, glued=glued and single and not found["power"])
    if plain_number and all(len(w) >= 3 for w in parts if w != "of") and not found["power"]:
        return value.strip(), Unit(None)
    return None
