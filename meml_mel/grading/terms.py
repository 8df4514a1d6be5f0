r"""Reading an answer into terms: numbers, words, tuples, sets, lists, named values, equations, formulas.

Only the shape is read here; what a formula means is left to math-verify (symbolic.py). Every term keeps its
tidied text. Reading is bounded: texts are at most MAX_ANSWER_CHARS long and brackets MAX_DEPTH deep.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .latex import balanced, matching, split, squeeze, strip_group, tidy, tokens
from .numerals import PERCENT, SIMPLE, Number, plain_value, read_number
from .units import Unit, take_unit

MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Based:
    """A numeral with its base, `204_5`."""

    text: str
    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Words:
    r"""A word answer ("odd", "Evelyn"). `marked`: it was written as `\text{}`."""

    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class Formula:
    """Anything that only a computer algebra system can read: expressions, inequalities, sums of matrices."""

    text: str
    percent: bool = False
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Sequence:
    r"""Several terms. `open` and `close` are "" for a bare list, "matrix" for a matrix (row-major, `columns`),
    ":" for a ratio, "\cup" for a union."""

    text: str
    open: str
    close: str
    items: tuple[Term, ...]
    columns: int = 0


@dataclass(frozen=True, slots=True)
class Named:
    r"""`name = term` or `name \in term`, where the name only says what the value is ("x", "f(x)", "AB", "(p,q)")."""

    text: str
    name: str
    right: str
    term: Term


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation between two expressions, the first and last sides of a chain."""

    text: str
    left: str
    right: str


Term = Number | Based | Words | Formula | Sequence | Named | Equation


def read(text: str, *, gold: bool) -> Term | None:
    """The term that `text` (as extracted) writes; None where there is nothing to read."""
    if SIMPLE.fullmatch(text):  # most answers
        value = plain_value(text)
        return None if value is None else Number(text, *value)
    tidied = tidy(text)
    if not re.search(r"[0-9A-Za-z]|\\infty|\\emptyset", tidied) or not balanced(tidied):
        return None
    return _read(tidied, gold, 0)


def _read(text: str, gold: bool, depth: int) -> Term:
    text = _strip_doubled(strip_group(text.strip()))
    if depth > MAX_DEPTH:
        return Formula(text)
    approximate = split(text, {"\\approx"})
    if len(approximate) > 1:  # "1/3 ≈ 0.33" is 1/3, "p ≈ 0.33" is 0.33
        named = name_like(approximate[0])
        text = f"{approximate[0]} = {approximate[1]}" if named else approximate[0]
    number = read_number(text)
    if number is not None:
        return number
    parts = split_list(text)
    if len(parts) > 1:
        return _list(text, parts, gold, depth)
    if parts and parts[0] != text and not text.startswith("\\text"):
        text = parts[0]
    plus = _plus_minus(text)
    if plus is not None:
        return Sequence(text, "", "", tuple(_flat([_read(side, gold, depth + 1) for side in plus])))
    return (
        _relation(text, gold, depth)
        or _bracketed(text, gold, depth)
        or _matrix(text, gold, depth)
        or _ratio_or_union(text, gold, depth)
        or _atom(text, gold)
    )


def _strip_doubled(text: str) -> str:
    """ "((x))" without its outer parentheses: the parser's time grows exponentially with their depth."""
    while text.startswith("((") and text.endswith("))"):
        inner = text[1:-1].strip()
        if matching(text, 0) != len(text) - 1 or matching(inner, 0) != len(inner) - 1:
            return text
        text = inner
    return text


# ---------------------------------------------------------------- lists

_THOUSANDS_HEAD = re.compile(r"(?<![\d.])[1-9]\d{0,2}(?:,\d{3})*$")
_THOUSANDS_TAIL = re.compile(r"\d{3}(?![\d])")
_CONDITION = re.compile(
    r"(?:\\text\{\s*)?(?:where|for|if|when|with|such that|provided)\b|[a-zA-Z](?:,\s?[a-zA-Z])*\s*\\in\s*\\mathbb|"
    r"[a-z]\s*\\in\s*(?:\\text\{\s*)?[ZNQR]\b"
)


def split_list(text: str, *, inner: bool = False) -> list[str]:
    """The parts of a list separated by `;`, or else by commas and "and" / "or"; thousands stay together.

    Inside brackets (`inner`) a comma separates unless other commas of the same list are followed by a space.
    """
    groups = split(text, {";"})
    if len(groups) > 1:
        return groups
    pieces = split(text, {","}, words=True)
    if len(pieces) < 2:
        return pieces
    spaced = ", " in text or not inner
    merged: list[str] = []
    for piece in pieces:
        joined = f"{merged[-1]},{piece}" if merged else piece
        if (
            spaced
            and merged
            and joined in text
            and _THOUSANDS_HEAD.search(merged[-1])
            and _THOUSANDS_TAIL.match(piece)
        ):
            merged[-1] = joined
        else:
            merged.append(piece)
    for i, piece in enumerate(merged):
        if i and _CONDITION.match(piece):
            return merged[:i]
    return merged


def _list(text: str, parts: list[str], gold: bool, depth: int) -> Sequence:
    items = []
    for part in parts:
        term = _read(part, gold, depth + 1)
        if isinstance(term, Sequence) and not term.open and len(split_list(part)) > 1:  # "p=5,q=2; p=7,q=2"
            term = Sequence(term.text, "(", ")", term.items)
        items.append(term)
    return Sequence(text, "", "", tuple(_grouped(text, _flat(items))))


def _flat(items: list[Term]) -> list[Term]:
    out: list[Term] = []
    for item in items:
        if isinstance(item, Sequence) and not item.open:
            out += item.items
        else:
            out.append(item)
    return out


def _grouped(text: str, items: list[Term]) -> list[Term]:
    """ "p=5, q=2 and p=7, q=2" is two pairs: names that come round again start a new tuple."""
    names = [item.name for item in items if isinstance(item, Named)]
    if len(names) != len(items):
        return items
    width = len(dict.fromkeys(names))
    if (
        width < 2
        or width == len(names)
        or len(names) % width
        or names != names[:width] * (len(names) // width)
    ):
        return items
    return [
        Sequence(", ".join(i.text for i in items[k : k + width]), "(", ")", tuple(items[k : k + width]))
        for k in range(0, len(items), width)
    ]


def _plus_minus(text: str) -> tuple[str, str] | None:
    if len(re.findall(r"\\pm(?![A-Za-z])", text)) != 1:
        return None
    upper = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", text))
    lower = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", text))
    return _leading_plus(upper), _leading_plus(lower)


def _leading_plus(text: str) -> str:
    return re.sub(r"(^|[=,({\[])(\s*)\+\s*", r"\1\2", text)


# ---------------------------------------------------------------- equations and names

_INEQUALITIES = {"<", ">", "\\le", "\\ge", "\\ne"}
_VARIABLE = r"(?:\\[A-Za-z]+|[A-Za-z])(?:_(?:\{[^{}]*\}|\w))?'*"
_SUBSCRIPT = re.compile(r"_(?:\{[^{}]*\}|\\?\w+)")


def simple_variable(name: str) -> bool:
    """Is the name one letter (with a subscript), as x or a_1, rather than a description of a quantity?"""
    return re.fullmatch(_VARIABLE, name) is not None


def name_like(text: str) -> bool:
    """Does this side of an equation only name what the other side is worth?

    Yes for x, a_n, f(x), AB, |z|, P(A), NO/BO, A:B, (p,q), "Area"; no for sums, powers, numbers and products of
    small letters, which make it an equation to be kept whole.
    """
    bare = squeeze(text)
    if not bare:
        return False
    if re.fullmatch(_VARIABLE, bare) or re.fullmatch(
        r"\(?" + _VARIABLE + r"(?:[,;]" + _VARIABLE + r")+\)?", bare
    ):
        return True
    call = re.match(_VARIABLE + r"(?:\^\{?-1\}?)?\(", bare)
    if call and matching(bare, call.end() - 1) == len(bare) - 1:
        return True
    if re.fullmatch(r"\\text\{[^{}]*\}", bare) or re.fullmatch(r"[A-Za-z]{3,}(?: [A-Za-z]+)*", bare):
        return True
    rest = _SUBSCRIPT.sub("", bare)
    if any(token in "+-" or token == "^" for _, token, depth in tokens(rest) if depth == 0) or re.search(
        r"\d", rest
    ):
        return False
    letters = re.sub(r"\\[A-Za-z]+|[^A-Za-z]", "", rest)
    marked = re.search(
        r"\\(?:angle|overline|vec|Delta|triangle|operatorname|sin|cos|tan|text|max|min|frac|gcd)|[|:\[]", rest
    )
    return bool(letters) and (letters.isupper() or bool(marked))


def _relation(text: str, gold: bool, depth: int) -> Term | None:
    top = [token for _, token, level in tokens(text) if level == 0]
    if "\\in" in top and "=" not in top:
        sides = split(text, {"\\in"})
        if len(sides) == 2 and name_like(sides[0]):
            return Named(text, squeeze(sides[0]), sides[1], _read(sides[1], gold, depth + 1))
        return None
    if "=" not in top or any(token in _INEQUALITIES for token in top):
        return None
    sides = split(text, {"="})
    if len(sides) < 2:
        return _read(sides[0], gold, depth + 1) if sides else None
    left, right = sides[0], sides[-1]
    if not name_like(left):
        if len(sides) == 2 and simple_variable(squeeze(right)):
            left, right = right, left
        elif len(sides) > 2:  # a chain: any side may name what the last one is worth
            left = next((side for side in sides[:-1] if name_like(side)), left)
    if name_like(left):
        return Named(text, squeeze(left), right, _read(right, gold, depth + 1))
    return Equation(text, left, right)


# ---------------------------------------------------------------- brackets, matrices, ratios, unions

_PAIRS = {"(": ")", "[": "]", "\\{": "\\}", "\\langle": "\\rangle"}


def _bracketed(text: str, gold: bool, depth: int) -> Term | None:
    opening = next((o for o in _PAIRS if text.startswith(o)), None)
    if opening is None:
        return None
    end = matching(text, 0)
    if end is None:
        return None
    closing = text[end:].strip()
    if closing not in _PAIRS.values():
        return None
    inner = text[len(opening) : end].strip()
    if opening == "\\{":
        builder = split(inner, {"\\mid", "|", ":"})
        if len(builder) == 2:
            return _read(builder[1], gold, depth + 1)
    parts = split_list(inner, inner=True)
    if inner.startswith("\\begin") and len(parts) == 1 and opening in ("(", "["):  # the brackets of an array
        return _read(inner, gold, depth + 1)
    if len(parts) == 1 and (opening, closing) == ("(", ")"):
        if read_number(inner) is None and not re.search(r"[A-Za-z\\=]", inner):
            return None
        return _read(inner, gold, depth + 1)
    if not parts:
        return None
    items = [_read(part, gold, depth + 1) for part in parts]
    if opening == "\\{":
        items = _flat(items)
    return Sequence(text, opening, closing, tuple(items))


_MATRIX = re.compile(
    r"\\begin\s*\{(?:[pbB]?matrix|smallmatrix|array|cases|aligned|align\*?)\}(?:\s*\{[^{}]*\})?"
)


def _matrix(text: str, gold: bool, depth: int) -> Term | None:
    begin = _MATRIX.match(text)
    end = re.search(r"\\end\s*\{[A-Za-z]+\}$", text)
    if begin is None or end is None or text.count("\\begin") != 1:
        return None
    rows = [row for row in re.split(r"\\\\|\\cr\b", text[begin.end() : end.start()]) if row.strip()]
    if (
        "cases" in begin.group() or "align" in begin.group()
    ):  # a system of equations; not a piecewise function
        if any("&" in row for row in rows) and "cases" in begin.group():
            return None
        rows = [row.replace("&", "").strip(" ,;") for row in rows]
        return Sequence(text, "", "", tuple(_flat([_read(row, gold, depth + 1) for row in rows])))
    cells = [[cell.strip() for cell in row.split("&")] for row in rows]
    if not cells or len({len(row) for row in cells}) != 1 or not all(cell for row in cells for cell in row):
        return None
    items = tuple(_read(cell, gold, depth + 1) for row in cells for cell in row)
    return Sequence(text, "matrix", "matrix", items, len(cells[0]))


def _ratio_or_union(text: str, gold: bool, depth: int) -> Term | None:
    for separator in (":", "\\cup"):
        parts = split(text, {separator})
        if len(parts) > 1:
            items = tuple(_read(part, gold, depth + 1) for part in parts)
            if separator == "\\cup" or all(isinstance(item, Number) for item in items):
                return Sequence(text, separator, separator, items)
    return None


# ---------------------------------------------------------------- atoms

_BASED = re.compile(r"(?P<digits>[0-9A-F]+)\s?_\s?(?:\{\s?(?P<base>\d{1,2})\s?\}|(?P<base1>\d))")


def _atom(text: str, gold: bool) -> Term:
    based = _BASED.fullmatch(text)
    if based and 2 <= int(based["base"] or based["base1"]) <= 36:
        return Based(text, based["digits"].lstrip("0") or "0", int(based["base"] or based["base1"]))
    percent = PERCENT.search(text)
    value = strip_group(text[: percent.start()].rstrip()) if percent else text
    unit = None
    if not percent:
        value, unit = take_unit(text)
        value = strip_group(value)
        if unit is not None and unit.glued and gold:  # "10m" as a gold may be ten times m
            value, unit = text, None
    while value.startswith("(") and matching(value, 0) == len(value) - 1 and plain_value(value[1:-1].strip()):
        value = value[1:-1].strip()
    plain = plain_value(value)
    if plain is not None:
        return Number(text, plain[0], plain[1], percent is not None, unit)
    words = _words(text)
    if words is not None:
        return words
    return Formula(value if value else text, percent is not None, unit)


_LETTERS = re.compile(r"[A-Za-zÀ-ÿ][A-Za-zÀ-ÿ_' .-]*")


def _words(text: str) -> Words | None:
    marked = "\\text" in text
    plain = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text).strip()
    if marked and re.fullmatch(r"\(\s*[A-Za-z]\s*\)", plain):
        plain = plain.strip("() ")
    if not _LETTERS.fullmatch(plain) or (len(plain) == 1 and not marked):
        return None
    if "_" in plain and len(plain) < 8:  # x_n
        return None
    if not marked and len(plain) < 4 and plain.islower() and not re.search("[aeiou]", plain):
        return None  # xy, bc: products
    return Words(" ".join(plain.split()), marked)
