"""Read the calculations out of a worked solution: `3 sprints * 60 meters = 180` is 3 * 60 = 180.

Pure text and exact fractions; units between the numbers are read over, `30% of 180` is 30/100 * 180.
"""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass
from fractions import Fraction

_NUMBER = r"\d+(?:\.\d+)?%?|\.\d+%?"
_TOKEN = re.compile(
    rf"(?P<number>{_NUMBER})|(?P<word>[A-Za-z][A-Za-z'’-]*)|(?P<sign>[-+*/()=])|(?P<stop>\S|\n)"
)
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"<<[^<>]*>>", ""),  # GSM8K's calculator notes
        (r"\\\$|[$€£]|\*\*|\\[()\[\]]", ""),
        (r"\\times|\\cdot|[×·]", "*"),
        (r"(?<=[\d)]) ?[xX] ?(?=[\d(])|(?<=[a-z)]) [xX] (?=[\d(])", "*"),
        (r"÷", "/"),
        (r"[−–]", "-"),
        (r"(?<=\d),(?=\d{3}(?!\d))", ""),
        (r"(?m)^\s*\d{1,2}[.)]\s+", ""),  # the numbers of a list
        (r"(?<=%) of (?=[\d(])", " * "),
    )
]
_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
MAX_UNIT_WORDS = 4


@dataclass(frozen=True, slots=True)
class Calculation:
    """`expression = result` as a solution states it; `value` is what the expression comes to."""

    expression: str
    numbers: tuple[Fraction, ...]
    operations: tuple[str, ...]
    value: Fraction
    result: Fraction

    @property
    def holds(self) -> bool:
        """Whether the stated result is the value, rounded or cut to the digits it is written with."""
        percent = (self.value * 100, self.value / 100)  # 8 / 20 = 40%, 8 / 20 * 100 = 40%
        if any(close(value, self.result) for value in (self.value, *percent)):
            return True
        rounded = self.result.denominator == 1 and self.value.denominator != 1
        glued = self.value.denominator == 1 and int(self.result) == self.value  # "= 22.3. Change received"
        return glued or (rounded and abs(self.value - self.result) < 1)

    def __str__(self) -> str:
        return f"{self.expression} = {as_text(self.result)}"


def close(a: Fraction, b: Fraction) -> bool:
    """Equal up to the rounding of a calculation that is written with two decimals."""
    return (
        abs(a - b) <= Fraction(1, 100) + abs(a) / 2000 if a.denominator != 1 or b.denominator != 1 else a == b
    )


def as_text(value: Fraction) -> str:
    """A number as a solution writes it: whole, or with at most two decimals."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.2f}".rstrip("0").rstrip(".")


def has_algebra(text: str) -> bool:
    """Whether the solution computes with letters, which `calculations` can't read."""
    return re.search(r"\d[a-zA-Z]\b(?!')|[-+*/=]\s?[a-zA-Z]\b|\b[a-zA-Z]\s?[-+*/=]", _plain(text)) is not None


def numbers_in(text: str) -> list[Fraction]:
    """Every number of a text, in order; `30%` counts as 30."""
    return [Fraction(n.rstrip("%")) for n in re.findall(_NUMBER, _plain(text))]


def calculations(text: str) -> list[Calculation]:
    """The calculations in a solution, in order. What can't be read as one is left out."""
    found = []
    for line in _plain(text).split("\n"):
        tokens = [(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(line)]
        for i, token in enumerate(tokens):
            if token == ("sign", "=") and (result := _result(tokens, i)) is not None:
                calculation = _calculation(_before(tokens, i), result)
                if calculation is not None:
                    found.append(calculation)
    return found


def _plain(text: str) -> str:
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def _result(tokens: list[tuple[str, str]], equals: int) -> Fraction | None:
    """The number right of an equals sign; None where an expression follows, as in `a = b * c`."""
    rest = tokens[equals + 1 :]
    if not rest or rest[0][0] != "number":
        return None
    following = [t for t in rest[1 : MAX_UNIT_WORDS + 2] if t[0] != "word"][:2]
    goes_on = len(following) == 2 and following[0][0] == "sign" and following[0][1] in "+-*/"
    if goes_on and (following[1][0] == "number" or following[1][1] == "("):
        return None
    return _value(rest[0][1])


def _before(tokens: list[tuple[str, str]], equals: int) -> list[str]:
    """The numbers, signs and brackets left of an equals sign, units left out."""
    kept: list[str] = []
    i = equals - 1
    while i >= 0:
        kind, text = tokens[i]
        if kind == "word":
            start = i
            while start >= 0 and (tokens[start][0] == "word" or _per(tokens, start)):
                start -= 1
            number = start >= 0 and (tokens[start][0] == "number" or tokens[start][1] == ")")
            if not number or i - start > MAX_UNIT_WORDS or (kept and not _joins(kept[-1])):
                break
            i = start
            continue
        if kind == "stop" or text == "=":
            break
        if kept and (kind == "number" or text == ")") and not _joins(kept[-1]):
            return []  # 2(x + 8): a product without a sign, mostly algebra
        kept.append(text)
        i -= 1
    return kept[::-1]


def _joins(sign: str) -> bool:
    """Whether a number may stand left of this sign."""
    return sign in ("+", "-", "*", "/", ")")


def _per(tokens: list[tuple[str, str]], i: int) -> bool:
    """The slash of `meters/sprint`."""
    return tokens[i] == ("sign", "/") and i + 1 < len(tokens) and tokens[i + 1][0] == "word"


def _value(number: str) -> Fraction:
    return Fraction(number[:-1]) / 100 if number.endswith("%") else Fraction(number)


def _calculation(parts: list[str], result: Fraction) -> Calculation | None:
    while parts and (parts[0] in "+*/)" or parts[0] == "-"):  # a list's dash, the end of another expression
        parts = parts[1:]
    expression = ""
    for part in parts:
        expression += f" {part} " if part in "+-*/" else part
    readable = re.sub(r"([\d.]+)%", r"(\1/100)", expression)
    numbers = tuple(_value(part) for part in parts if part[0].isdigit() or part[0] == ".")
    operations = tuple(part for part in parts if part in "+-*/")
    if len(numbers) < 2 or not operations or len(readable) > 120:
        return None
    try:
        value = _evaluate(ast.parse(readable, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None
    return Calculation(expression, numbers, operations, value, result)


def _evaluate(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    raise ValueError(f"not arithmetic: {ast.dump(node)}")
