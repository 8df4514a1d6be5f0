r"""The computer algebra behind the grader: math-verify and latex2sympy2_extended, from 0.5.2 to 0.9.

Their own time limits are not used: they are built on `signal.alarm`, which fails off the main thread (verify
then scores 0 without a word) and cannot interrupt a long integer power. The limit is the worker process's
(pool.py). Importing this module imports sympy (about a second), so that only workers and `grade()` do it.
"""

from __future__ import annotations

import inspect
import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import math_verify.grader as verify
import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from sympy import Basic, Expr, MatrixBase, S

from .compare import TooLargeError
from .extract import MAX_ANSWER_CHARS

# A number with more digits than this is not evaluated: 5^(5^(5^5)) would never end.
MAX_DIGITS = 300_000
_PRECISION = 50  # digits
_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_SUBSCRIPT = re.compile(r"_\s?\{\s?\\(?:text\{)?([A-Za-z0-9 ]+)\}?\s?\}")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
_COMPLEX = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")


@lru_cache(maxsize=8192)
def parse(text: str) -> Basic | MatrixBase | None:
    """`text` as a sympy object, unevaluated where possible; None when it cannot be parsed."""
    if len(text) > MAX_ANSWER_CHARS:
        return None
    if "^{\\circ}" in text and _TRIGONOMETRIC.search(text):
        text = text.replace("^{\\circ}", "\\cdot\\frac{\\pi}{180}")
    try:
        normal = normalize_latex(_SUBSCRIPT.sub(r"_{\1}", text), _NORMALIZATION)
        parsed = latex2sympy(
            normal,
            is_real=not (verify.should_treat_as_complex(normal) or _COMPLEX.search(normal)),
            convert_degrees=False,
            normalization_config=None,
        )
        if not isinstance(parsed, Basic | MatrixBase) or parsed.has(S.NaN, S.ComplexInfinity):
            return None
    except (Exception, RecursionError):  # the parsers raise bare Exception
        return None
    return parsed


def parses(text: str) -> bool:
    """Can the text be parsed, and evaluated? Raises TooLargeError where evaluating would not end."""
    parsed = parse(text)
    if parsed is not None:
        _refuse_large(parsed)
    return parsed is not None


def value(text: str) -> tuple[Fraction, bool] | None:
    """(value, exact) of the real number that `text` writes, to 50 digits where it is not rational; None when it
    is not a real number."""
    parsed = parse(text)
    if not isinstance(parsed, Expr) or parsed.free_symbols:
        return None
    _refuse_large(parsed)
    try:
        whole = parsed.doit()
        if whole.is_Rational:
            return Fraction(int(whole.p), int(whole.q)), True
        number = parsed.evalf(_PRECISION)
        return (Fraction(str(number)), False) if number.is_Float else None
    except (Exception, RecursionError):
        return None


def same(gold: str, answer: str) -> bool:
    """Are the two expressions equal (gold first: math-verify's comparison is not symmetric)?"""
    first, second = parse(gold), parse(answer)
    if first is None or second is None:
        return False
    _refuse_large(first)
    _refuse_large(second)
    try:
        return _same(first, second)
    except TooLargeError:
        raise
    except (Exception, RecursionError):
        return False


def _same(gold: Any, answer: Any) -> bool:
    if isinstance(gold, Expr) and isinstance(answer, Expr) and not (gold.free_symbols or answer.free_symbols):
        close = _numerically_same(gold, answer)
        if close is not None:
            return close
    if _differ_at_a_point(gold, answer):
        return False
    if _verify(gold, answer):
        return True
    gold_set, answer_set = _as_set(gold), _as_set(answer)
    if gold_set is not None and answer_set is not None and (gold_set is not gold or answer_set is not answer):
        return bool(gold_set == answer_set or gold_set.symmetric_difference(answer_set).is_empty)
    imaginary = [s for s in gold.free_symbols | answer.free_symbols if s.name == "i"]
    if imaginary and isinstance(gold, Expr) and isinstance(answer, Expr):
        difference = (gold - answer).subs({s: sympy.I for s in imaginary})
        return sympy.simplify(sympy.expand(difference)) == 0
    return False


_PARAMETERS = inspect.signature(verify.sympy_expr_eq).parameters


def _verify(gold: Any, answer: Any) -> bool:
    """math-verify's comparison, with its default 6 decimals, in any of its signatures."""
    options: dict[str, Any] = (
        {"float_rounding": 6, "numeric_precision": 15}
        if "float_rounding" in _PARAMETERS
        else {"precision": 6}
    )
    return bool(verify.sympy_expr_eq(gold, answer, **options))


def _numerically_same(gold: Expr, answer: Expr) -> bool | None:
    """Compare two constants, exactly where they are rational; None when 50 digits do not decide it.

    math-verify drops what is smaller than 1e-15, so that 2^-60 would equal 2^-61.
    """
    whole = gold.doit(), answer.doit()
    if whole[0].is_Rational and whole[1].is_Rational:
        return bool(whole[0] == whole[1])
    first, second = gold.evalf(_PRECISION), answer.evalf(_PRECISION)
    if not (first.is_number and second.is_number) or first.has(S.NaN) or second.has(S.NaN):
        return None
    if first.is_infinite or second.is_infinite:
        return bool(first == second)
    size = max(abs(first).evalf(15), abs(second).evalf(15))  # sympy's numbers: a float overflows at 2^1024
    difference = abs(first - second).evalf(15)
    if size == 0 or difference <= size * sympy.Rational(1, 10**40):
        return True
    if gold.has(sympy.Float) or answer.has(sympy.Float):
        return bool(difference <= size * sympy.Rational(1, 10**7))
    return False if difference > size * sympy.Rational(1, 10**12) else None


def _differ_at_a_point(gold: Any, answer: Any) -> bool:
    """Do two expressions in the same variables take clearly different values at a point of their domain?

    Spares most wrong answers the simplification of the difference, by far the slowest step. Lone symbols are
    left to math-verify, which also compares their names.
    """
    if not isinstance(gold, Expr) or not isinstance(answer, Expr) or gold.is_Symbol or answer.is_Symbol:
        return False
    symbols = gold.free_symbols | answer.free_symbols
    if not symbols or any(s.name in ("i", "e") for s in symbols) or gold.free_symbols != answer.free_symbols:
        return False
    if any(
        e.has(sympy.core.function.AppliedUndef, sympy.Integral, sympy.Sum, sympy.Product)
        for e in (gold, answer)
    ):
        return False
    point = {s: sympy.Float(1.17 + 0.29 * k) for k, s in enumerate(sorted(symbols, key=str))}
    values = [e.evalf(20, subs=point) for e in (gold, answer)]
    if not all(v.is_Float for v in values):
        return False
    first, second = values
    return bool(abs(first - second) > sympy.Rational(1, 10**6) * max(abs(first), abs(second)))


def _as_set(term: Any) -> sympy.Set | None:
    if isinstance(term, sympy.Set):
        return term
    if (
        isinstance(term, sympy.And | sympy.Or | sympy.core.relational.Relational)
        and len(term.free_symbols) == 1
    ):
        if isinstance(term, sympy.Eq):
            return None
        return term.as_set()
    return None


def same_equation(gold: tuple[str, str], answer: tuple[str, str]) -> bool:
    """Do two equations say the same? Their differences of sides must be a constant multiple of one another."""
    sides = [parse(side) for side in (*gold, *answer)]
    if any(side is None for side in sides):
        return False
    for side in sides:
        _refuse_large(side)
    gold_left, gold_right, left, right = sides
    try:
        for one, two in ((left, right), (right, left)):
            if _same(gold_left, one) and _same(gold_right, two):
                return True
        first, second = gold_left - gold_right, left - right  # type: ignore[operator]
        if first.free_symbols != second.free_symbols or not first.free_symbols:
            return False
        first, second = (sympy.expand(sympy.numer(sympy.together(e.doit()))) for e in (first, second))
        if first == 0 or second == 0:
            return False
        ratio = sympy.cancel(sympy.nsimplify(first, rational=True) / sympy.nsimplify(second, rational=True))
        return not ratio.free_symbols and ratio != 0
    except TooLargeError:
        raise
    except (Exception, RecursionError):
        return False


# ---------------------------------------------------------------- what would never end


def _refuse_large(parsed: Any) -> None:
    """Raise TooLargeError when a constant in the expression has more than MAX_DIGITS digits."""
    if isinstance(parsed, MatrixBase):
        for entry in parsed:
            _refuse_large(entry)
        return
    try:
        for node in sympy.preorder_traversal(parsed):
            grows = node.is_Pow or isinstance(node, sympy.factorial)
            if grows and not node.free_symbols and _digits(node) > MAX_DIGITS:
                raise TooLargeError(f"a number with more than {MAX_DIGITS} digits")
    except RecursionError:
        raise TooLargeError("nested too deeply") from None


def _digits(node: Any) -> float:
    """An upper estimate of how many digits the constant `node` has, as a number or a fraction."""
    if node.is_Rational:
        return max(abs(node.p).bit_length(), abs(node.q).bit_length()) * 0.30103
    if node.is_Pow:
        base, exponent = node.args
        size = _magnitude(exponent)
        return math.inf if size > 8 else max(_digits(base), 0.01) * 10**size
    if isinstance(node, sympy.factorial):
        size = _magnitude(node.args[0])
        return math.inf if size > 8 else 10**size * max(size, 1)
    return sum((_digits(arg) for arg in node.args), start=1.0)


def _magnitude(node: Any) -> float:
    """An upper estimate of log10 |node| for a constant; infinite where that overflows."""
    if node.is_Rational:
        return math.log10(abs(node.p)) - math.log10(node.q) if node.p else -math.inf
    if node.is_Float:
        return float(sympy.log(abs(node), 10)) if node else -math.inf
    if node.is_Add:
        return max(_magnitude(arg) for arg in node.args) + math.log10(len(node.args))
    if node.is_Mul:
        return sum(_magnitude(arg) for arg in node.args)
    if node.is_Pow:
        base, exponent = node.args
        size = _magnitude(exponent)
        grows = _magnitude(base)
        if size > 8:
            return math.inf if exponent.could_extract_minus_sign() is (grows < 0) else -math.inf
        return grows * 10**size * (-1 if exponent.could_extract_minus_sign() else 1)
    if isinstance(node, sympy.factorial):
        return _digits(node)
    return max((_magnitude(arg) for arg in node.args), default=1.0)
