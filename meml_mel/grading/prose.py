"""Formulas and numbers in running text: where they stand, and which of them is the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BARE_CHARS = 400  # a longer text is no bare answer
PERCENT_AFTER = re.compile(r"\s{0,3}(?:\$|\\\)|\\\])?\s{0,3}(?:\\?%|percent\b|pct\b|percentage\b)", re.I)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A formula or number in running text. A `label` only names something, as $ABC$ or $x$ does."""

    start: int
    end: int
    text: str
    latex: bool
    label: bool = False


WORD = re.compile(r"[A-Za-zÀ-ÿ][A-Za-zÀ-ÿ_'-]+")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_TEXT_COMMAND = re.compile(
    r"\\(?:text|mbox|mathrm|textbf|textit|operatorname|textnormal|begin|end)[a-z]{0,3}\s?\{[^{}]*\}(?:\s?\{[lcr|]*\})?"
)
_COMMAND = re.compile(r"\\[A-Za-z]+")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.\\])(?<!\d:)(?:(?<![\d)\]}])(?:(?<=[^A-Za-z])|^)[-−])?[$€£¥]?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:(?<=\d)|(?=\.\d))(?:\.\d+)?"
    r"(?:\s?/\s?\d+(?:\.\d+)?(?![\d/]))?(?:\s?\\?%|\s?percent\b|\s?pct\b)?"
)
_LATEX_NUMBER = re.compile(
    r"-?\d{0,9}\s?\\[dtc]?frac\s?\{[^{}]{1,200}\}\s?\{[^{}]{1,200}\}|-?\d{0,9}\\sqrt\s?\{[^{}]{1,200}\}"
)
_JOINER = re.compile(r"(?:\s|,|;|\band\b|\bor\b){1,12}")
_EQUALS_BEFORE = re.compile(r"=\s{0,2}[*_]{0,2}$")
_VERB = re.compile(r"\bis\b|\bare\b|\bwas\b|\bequals?\b|\bbe\b|=|:|：|是|为|有")


def math_spans(text: str) -> list[tuple[int, int, str]]:
    r"""(start, end, content) of each `$..$`, `$$..$$`, `\(..\)`, `\[..\]`, left to right.

    A dollar sign followed by prose before the next one is a currency sign, not a delimiter.
    """
    spans: list[tuple[int, int, str]] = []
    unclosed: set[str] = set()  # searched for once: the scan stays linear
    position = 0
    while True:
        opening = _OPENING.search(text, position)
        if opening is None:
            return spans
        token = opening.group()
        position = opening.end()
        if token == "$":
            closing = _DOLLAR.search(text, position)
            if closing is None or "\n\n" in text[position : closing.start()]:
                continue
            content = text[position : closing.start()]
            if not content.strip() or _is_prose(content) or _CURRENCY.fullmatch(content):
                continue
            end = closing.end()
        else:
            end = -1 if token in unclosed else text.find(_CLOSING[token], position)
            if end < 0:
                unclosed.add(token)
                continue
            content = text[position:end]
            end += len(_CLOSING[token])
        spans.append((opening.start(), end, content.strip()))
        position = end


# "$9 * $2": what stands between two currency signs starts with a digit and ends loosely, or is a word or two.
_CURRENCY = re.compile(r"\d[^\\$]{0,80}[\s*+/=(-]|\d[\d.,]*\s[A-Za-z]{2,}[^\\$^_=]{0,80}")
_OPENING = re.compile(r"(?<!\\)\$\$|(?<!\\)\$|\\\(|\\\[")
_DOLLAR = re.compile(r"(?<!\\)\$")
_CLOSING = {"$$": "$$", "\\(": "\\)", "\\[": "\\]"}


def _is_prose(content: str) -> bool:
    if len(content) > _BARE_CHARS * 4:
        return True
    return len(_PROSE.findall(_without_commands(content))) >= 2


def _without_commands(text: str) -> str:
    return _COMMAND.sub(" ", _TEXT_COMMAND.sub(" ", text))


def candidates(text: str) -> list[Candidate]:
    """Formulas and plain numbers of `text` from left to right; neighbours joined by and/or/, are one."""
    found: list[Candidate] = []
    blanked = []
    position = 0
    for start, end, content in math_spans(text):
        blanked += [text[position:start], " " * (end - start)]
        position = end
        percent = PERCENT_AFTER.match(text, end)
        content = content.strip(" .,;")
        if percent and not content.endswith("%"):
            content += "%"
        if not content:
            continue
        label = not re.search(r"\d|=|<|>|\\(?:frac|sqrt|pi|infty|text|le|ge|in|emptyset)\b", content)
        if found and found[-1].latex and _JOINER.fullmatch(text, found[-1].end, start):
            before = found.pop()
            content, start, label = f"{before.text}, {content}", before.start, before.label and label
        found.append(Candidate(start, end, content, True, label))
    blanked.append(text[position:])
    plain = "".join(blanked)
    taken = [(m.start(), m.end()) for m in _LATEX_NUMBER.finditer(plain)]
    found += [Candidate(start, end, plain[start:end].strip(), True) for start, end in taken]
    if taken:
        plain = _LATEX_NUMBER.sub(lambda m: " " * len(m.group()), plain)
    for number in _NUMBER.finditer(plain):
        if number.group().strip():
            found.append(Candidate(number.start(), number.end(), number.group().strip(), False))
    return sorted(found, key=lambda c: c.start)


def best(text: str, found: list[Candidate]) -> Candidate:
    """The last formula, or the number that follows it ("the area of $ABC$ is 120"), or the number after the last
    equals sign ("he pays 4 * 4 = 16 dollars for 60 days")."""
    formulas = [c for c in found if c.latex and not c.label] or [c for c in found if c.latex]
    numbers = [c for c in found if not c.latex]
    if not formulas:
        results = [n for n in numbers if _EQUALS_BEFORE.search(text, max(0, n.start - 6), n.start)]
        return (results or numbers)[-1]
    formula = formulas[-1]
    if numbers and (
        formula.label
        or (numbers[-1].start > formula.end and _VERB.search(text, formula.end, numbers[-1].start))
    ):
        return numbers[-1]
    return formula


# ---------------------------------------------------------------- bare answers

_SENTENCE = re.compile(
    r"\b(?:is|are|was|the|so|we|then|therefore|thus|hence|equals|answers?|which|it|that|this|there|total|find|have|"
    r"has|because|since|let|step|gives|get|know|think|cannot|will|would|you|they|she|he|am)\b|\bI(?= [a-z]{2})",
    re.I,
)
_PUNCTUATED = re.compile(r"(?<!\\)[.!?]\s|[。？！\u4e00-\u9fff]|[A-Za-z]{2}:\s|\?$|[A-Za-z]{2}!$")
_ALLOWED_WORDS = {
    *("and", "or", "percent", "pct", "percentage", "pi", "inf", "infinity"),
    *("sin", "cos", "tan", "log", "ln", "sqrt"),
}


def is_bare(text: str) -> bool:
    """Is the text an answer and nothing else ("x = 5", "10 square units", "Evelyn", "$1$ and $2$")?"""
    stripped = text.strip()
    if len(stripped) > _BARE_CHARS:
        return False
    if "\n" in stripped and "\\begin" not in stripped and not stripped.startswith(("\\[", "$$")):
        return False
    spans = math_spans(stripped)
    outside = stripped
    for start, end, _ in reversed(spans):
        outside = outside[:start] + " " + outside[end:]
    plain = _without_commands(outside)
    if _SENTENCE.search(plain) or _PUNCTUATED.search(plain):
        return False
    words = [w for w in WORD.findall(plain) if w.lower() not in _ALLOWED_WORDS]
    if spans:
        after = stripped[spans[-1][1] :]
        return not words or (len(words) <= 3 and len(WORD.findall(after)) >= len(words))
    return len(words) <= 3


def trim(text: str) -> str:
    return text.strip().strip('*_`"').strip().rstrip(".,;:").strip()
