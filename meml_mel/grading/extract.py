r"""What answer does a response give? Text in, answer text out; no mathematics is parsed here.

The order: the last `\boxed{}`; the last "Answer:", "the answer is" or `####`; the last LaTeX formula; the last
plain number or fraction. A text that is nothing but an answer ("1/2", "x = 5", "10 cm") is taken whole.
What a base model writes after its answer (a new "Question:", "Human:", an end token) is cut first, and only
what follows `</think>` counts.

Everything here is linear in the length of the response (a few bounded regular expressions and scans), as it
runs in the caller's process, without a time limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Source = Literal["boxed", "marker", "whole", "latex", "expression", "none"]

# An answer longer than this is compared as text only: nothing that long is worth parsing.
MAX_ANSWER_CHARS = 2000
_BARE_CHARS = 400


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer's text (None: the response gives none) and where it was found."""

    text: str | None
    source: Source


NOTHING = Extraction(None, "none")


def extract(response: str, *, gold: bool = False) -> Extraction:
    """The answer that `response` gives; `response` may be a bare answer.

    `gold=True` reads a reference answer: an unterminated box is taken to its end, and a long text without a
    box or an answer marker gives none (it is prose, not an answer).
    """
    text = response if gold else own_text(response)
    found = passage(text, tolerant=gold)
    if found.source == "marker" and found.text:
        answer = _answer_in(found.text)
        if answer is not None:
            return Extraction(answer, "marker") if answer else NOTHING
    elif found.source != "none" or found.text == "":
        return found if found.text else NOTHING
    if gold and len(_WORD.findall(text)) > 8:
        return NOTHING
    return _last_formula(text)


def passage(text: str, *, tolerant: bool = False) -> Extraction:
    """Where `text` says its answer: the box's content, the whole of a bare answer, or the sentence after the
    last marker. The text is "" where that place is empty, and None where there is no such place."""
    boxed = _boxed(text, tolerant)
    if boxed is not None and _MINERVA.search(text, max(text.rfind("\\boxed"), 0)):
        boxed = None  # the format whose last line is the answer, whatever was boxed on the way
    if boxed is not None:
        return Extraction(boxed, "boxed" if boxed else "none")
    if is_bare(text):
        return Extraction(_trim(text), "whole" if _trim(text) else "none")
    ends = [marker.end() for marker in _MARKER.finditer(text)]
    if not ends:
        return NOTHING
    rest = text[ends[-1] :]
    if not rest.strip(" \t\n*_.:：\"'`"):
        return Extraction("", "none")
    return Extraction(_first_sentence(rest), "marker")


def own_text(response: str) -> str:
    """The part of a response that is its own: after its thinking, before what it runs on to write."""
    return _cut_run_on(_after_thinking(response))


# ---------------------------------------------------------------- what belongs to the response

_HARD_STOP = re.compile(r"<\|[A-Za-z_]{2,24}\|>|</s>|<eos>|<end_of_turn>|\[/?INST\]")
_ROLE = re.compile(
    r"(?:^|\n)[ \t>#*_]{0,8}(?:Human|User|Assistant)[ \t]{0,2}[*_]{0,2}[:：]|(?<=[.!?})\]$ ])(?:Human|User):"
)
_NEXT_TASK = re.compile(
    r"(?:^|\n)[ \t>#*_]{0,8}"
    r"(?:(?:Question|Problem|Exercise|Instruction|Example|Q|问题|题目|Input)[ \t]{0,2}\d{0,3}[ \t]{0,2}[*_]{0,2}[:：]"
    r"|\#{1,6}[ \t]{0,2}(?:Question|Problem|Exercise|Instruction)\b)"
)


def _after_thinking(text: str) -> str:
    """What follows the last `</think>`; nothing if a `<think>` is still open."""
    head, closed, tail = text.rpartition("</think>")
    if closed:
        answer, opened, _ = tail.partition("<think>")
        return answer if opened and answer.strip() else ("" if opened else tail)
    before, opened, _ = text.partition("<think>")
    return before if opened else head + tail


def _cut_run_on(text: str) -> str:
    """The response without what a base model goes on to write after its answer.

    End tokens and dialogue roles end it wherever they stand; "Question:" and the like only once an answer
    has been given, as a solution may open by restating its problem.
    """
    for marker in _HARD_STOP.finditer(text):
        if text[: marker.start()].strip():
            text = text[: marker.start()]
            break
    for marker in _ROLE.finditer(text):
        if text[: marker.start()].strip():
            text = text[: marker.start()]
            break
    given = [m.start() for m in (_BOX.search(text), _MARKER.search(text)) if m]
    if given:
        after = _NEXT_TASK.search(text, min(given))
        if after:
            text = text[: after.start()]
    return text


# ---------------------------------------------------------------- \boxed

_BOX = re.compile(r"\\f?boxed\b|\\fbox\b")
_PERCENT_AFTER = re.compile(r"\s{0,3}(?:\$|\\\)|\\\])?\s{0,3}(?:\\?%|percent\b|pct\b|percentage\b)", re.I)
_CONNECTED = re.compile(r"(?:\band\b|\bor\b|[,;&])", re.I)
_NAMED = re.compile(r"[A-Za-z](?:_\{?\w{1,4}\}?)?\s{0,2}=\s{0,2}$")
_NOT_CONNECTED = re.compile(
    r"\b(?:so|thus|therefore|hence|then|wait|actually|instead|rather|but|not|which|equals?|is|simplif\w+|"
    r"approximately|correct\w*|that)\b|[.!?]\s|[.!?]$|=|\n\s*\n",
    re.I,
)


def _boxed(text: str, tolerant: bool) -> str | None:
    """The last box's content ("" when it is empty or never closed); None when there is no box.

    Boxes that stand together as one answer, `\\boxed{1} and \\boxed{2}`, are joined by commas.
    """
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    last = boxes[-1]
    content, end = _box_content(text, last.end())
    if content is None:
        return _trim(text[last.end() :].lstrip().lstrip("{")) if tolerant else ""
    content = content.strip()
    if not content:
        return ""
    if _PERCENT_AFTER.match(text, end) and not content.endswith("%"):
        content += "%"
    parts = [content]
    start = last.start()
    for box in reversed(boxes[:-1][-20:]):
        earlier, end = _box_content(text, box.end())
        between = text[end:start]
        if earlier is None or end > start or len(between) > 70 or not earlier.strip():
            break
        between = _NAMED.sub("", between)  # "x = \boxed{1} and y = \boxed{2}"
        close = len(between.strip(" $\\()[]\n")) == 0
        if not close and (not _CONNECTED.search(between) or _NOT_CONNECTED.search(between)):
            break
        if earlier.strip() != parts[-1]:
            parts.append(earlier.strip())
        start = box.start()
    return ", ".join(reversed(parts))


def _box_content(text: str, start: int) -> tuple[str | None, int]:
    r"""Content and end of the box whose command ends at `start`; None when it is never closed.

    `\boxed 5` without braces takes what stands up to the next space or dollar.
    """
    while start < len(text) and text[start] in " \t\n":
        start += 1
    if start >= len(text):
        return None, start
    if text[start] != "{":
        bare = re.compile(r"[^\s$\\{}]+").match(text, start)
        return (bare.group().rstrip(".,;"), bare.end()) if bare else (None, start)
    depth = 0
    for token in _BRACE.finditer(text, start):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : token.start()], token.end()
    return None, start


_BRACE = re.compile(r"\\.|[{}]", re.S)  # an escaped brace is no group

# ---------------------------------------------------------------- "Answer:", "the answer is", ####

_MARKER = re.compile(
    r"\#{4,}"
    r"|\banswers?\b[^\n.!?:：=]{0,60}?(?:\bis\b|\bare\b|\bshould\s{1,3}be\b|[:：=])"
    r"|(?:^|\n)[ \t#*_]{0,6}(?:final[ \t])?answer[*_ \t]{0,6}(?:\n|(?=[$\\(\d-]))"
    r"|答案(?:应该|应)?(?:是|为|：|:)"
    r"|\br[ée]ponse(?:[ \t]finale)?[ \t]{0,2}(?:est|:)"
    r"|\brespuesta(?:[ \t]final)?[ \t]{0,2}(?:es|:)"
    r"|\bantwort[ \t]{0,2}(?:ist|lautet|:)",
    re.I,
)
_MINERVA = re.compile(r"final answer is[^\n]{0,400}?i hope it is correct", re.I)
_FILLER = re.compile(
    r"(?:[\s*_:=$€£¥\"'`({\[]|\\\(|\\\[|\\\$|approximately|about|exactly|equal to|therefore|thus|simply|just|"
    r"still|\\approx|≈|~|[A-Za-z]\s{0,2}=)*",
    re.I,
)
_TAIL = re.compile(r"\s{0,3}i hope it is correct.*", re.I | re.S)


def _answer_in(segment: str) -> str | None:
    """The answer in the sentence after a marker ("" for a blank one); None when it holds none."""
    if is_bare(segment) and _trim(segment):
        return _trim(segment)
    found = candidates(segment)
    if not found:
        return _trim(segment) if len(_WORD.findall(segment)) <= 4 else None
    filler = _FILLER.match(segment)
    if found[0].start <= (filler.end() if filler else 0):
        return found[0].text
    return _best(segment, found).text


def _first_sentence(text: str) -> str:
    """The first non-blank line, up to its sentence's end; a display formula counts as one line."""
    text = _TAIL.sub("", text.lstrip(" \t\n*_:：\"'`"))
    for opening, closing in (("\\[", "\\]"), ("$$", "$$")):
        if text.startswith(opening):
            end = text.find(closing, 2)
            if end >= 0:
                return text[: end + 2]
    line, _, _ = text.partition("\n")
    if not line.strip(" *_"):
        return line
    spans = math_spans(line)
    for stop in re.finditer(r"[.!?](?=\s|$|\*)|。", line):
        if not any(start <= stop.start() < end for start, end, _ in spans):
            return line[: stop.start()]
    return line


# ---------------------------------------------------------------- LaTeX and plain expressions in prose


@dataclass(frozen=True, slots=True)
class Candidate:
    """A formula or number in running text. A `label` only names something, as $ABC$ or $x$ does."""

    start: int
    end: int
    text: str
    latex: bool
    label: bool = False


_WORD = re.compile(r"[A-Za-zÀ-ÿ][A-Za-zÀ-ÿ_'-]+")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_TEXT_COMMAND = re.compile(
    r"\\(?:text|mbox|mathrm|textbf|textit|operatorname|textnormal|begin|end)[a-z]{0,3}\s?\{[^{}]*\}(?:\s?\{[lcr|]*\})?"
)
_COMMAND = re.compile(r"\\[A-Za-z]+")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.\\])(?:(?<![\d)\]}])(?:(?<=[^A-Za-z])|^)[-−])?[$€£¥]?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:(?<=\d)|(?=\.\d))(?:\.\d+)?"
    r"(?:\s?/\s?\d+(?:\.\d+)?(?![\d/]))?(?:\s?\\?%|\s?percent\b|\s?pct\b)?"
)
_LATEX_NUMBER = re.compile(
    r"-?\d{0,9}\s?\\[dtc]?frac\s?\{[^{}]{1,200}\}\s?\{[^{}]{1,200}\}|-?\d{0,9}\\sqrt\s?\{[^{}]{1,200}\}"
)
_JOINER = re.compile(r"(?:\s|,|;|\band\b|\bor\b){1,12}")
_VERB = re.compile(r"\bis\b|\bare\b|\bwas\b|\bequals?\b|\bbe\b|=|:|：|是|为|有")


def math_spans(text: str) -> list[tuple[int, int, str]]:
    r"""(start, end, content) of each `$..$`, `$$..$$`, `\(..\)`, `\[..\]`, left to right.

    A dollar sign followed by prose before the next one is a currency sign, not a delimiter.
    """
    spans: list[tuple[int, int, str]] = []
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
            end = text.find(_CLOSING[token], position)
            if end < 0:
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
        percent = _PERCENT_AFTER.match(text, end)
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


def _best(text: str, found: list[Candidate]) -> Candidate:
    """The last formula, or the number that follows it as in "the area of $ABC$ is 120"."""
    formulas = [c for c in found if c.latex and not c.label] or [c for c in found if c.latex]
    numbers = [c for c in found if not c.latex]
    if not formulas:
        return numbers[-1]
    formula = formulas[-1]
    if numbers and (
        formula.label
        or (numbers[-1].start > formula.end and _VERB.search(text, formula.end, numbers[-1].start))
    ):
        return numbers[-1]
    return formula


def _last_formula(text: str) -> Extraction:
    """The answer in the last sentence that holds a formula or a number."""
    found = candidates(text)
    if not found:
        return NOTHING
    stop = 0
    for boundary in re.finditer(r"[.!?](?=[\s$\\])|\n|。", text):
        if boundary.end() > found[-1].start:
            break
        stop = boundary.end()
    best = _best(text, [c for c in found if c.start >= stop] or found[-1:])
    return Extraction(best.text, "latex" if best.latex else "expression")


# ---------------------------------------------------------------- bare answers

_SENTENCE = re.compile(
    r"\b(?:is|are|was|the|so|we|then|therefore|thus|hence|equals|answers?|which|it|that|this|there|total|find|have|"
    r"has|because|since|let|step|final|solution|gives|get)\b",
    re.I,
)
_ALLOWED_WORDS = {
    "and",
    "or",
    "percent",
    "pct",
    "percentage",
    "sin",
    "cos",
    "tan",
    "log",
    "ln",
    "sqrt",
    "pi",
    "inf",
    "infinity",
}


def is_bare(text: str) -> bool:
    """Is the text an answer and nothing else ("x = 5", "10 square units", "Evelyn", "$1$ and $2$")?"""
    stripped = text.strip()
    if len(stripped) > _BARE_CHARS:
        return False
    if (
        "\n" in stripped
        and "\\begin" not in stripped
        and not (stripped.startswith("\\[") or stripped.startswith("$$"))
    ):
        return False
    spans = math_spans(stripped)
    outside = stripped
    for start, end, _ in reversed(spans):
        outside = outside[:start] + " " + outside[end:]
    plain = _without_commands(outside)
    if _SENTENCE.search(plain) or re.search(
        r"(?<!\\)[.!?]\s|[：。？！，；]|[\u4e00-\u9fff]|\w:\s|[?!]$", plain
    ):
        return False
    words = [w for w in _WORD.findall(plain) if w.lower() not in _ALLOWED_WORDS]
    if spans:
        after = stripped[spans[-1][1] :]
        return not words or (len(words) <= 3 and len(_WORD.findall(after)) >= len(words))
    return len(words) <= 3


def _trim(text: str) -> str:
    return text.strip().strip('*_`"').strip().rstrip(".,;:").strip()
