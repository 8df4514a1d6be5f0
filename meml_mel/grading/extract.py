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

from .prose import PERCENT_AFTER, WORD, best, candidates, is_bare, math_spans, trim

Source = Literal["boxed", "marker", "whole", "latex", "expression", "none"]

# An answer longer than this is compared as text only: nothing that long is worth parsing.
MAX_ANSWER_CHARS = 2000


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
    if gold and len(WORD.findall(text)) > 8:
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
    ends = [marker.end() for marker in _MARKER.finditer(text)]
    if not ends:
        whole = trim(text) if is_bare(text) else None
        return NOTHING if whole is None else Extraction(whole, "whole" if whole else "none")
    rest = text[ends[-1] :]
    if not rest.strip(" \t\n*_.:：\"'`"):
        return Extraction("", "none")
    return Extraction(_first_sentence(rest), "marker")


def own_text(response: str) -> str:
    """The part of a response that is its own: after its thinking, before what it runs on to write."""
    return _cut_run_on(_after_thinking(response))


# ---------------------------------------------------------------- what belongs to the response

# The plain words are looked for first: most responses hold none of them, and this runs on every one.
_HARD_SIGNS = ("<|", "</s>", "<eos>", "<end_of_turn>", "INST]")
_ROLES = ("Human", "User", "Assistant")
_TASKS = ("Question", "Problem", "Exercise", "Instruction", "Example", "Q", "问题", "题目", "Input")
_HARD_STOP = re.compile(r"<\|[A-Za-z_]{2,24}\|>|</s>|<eos>|<end_of_turn>|\[/?INST\]")
_ROLE = re.compile(
    r"(?:^|\n)[ \t>#*_]{0,8}(?:Human|User|Assistant)[ \t]{0,2}[*_]{0,2}[:：]"
    r"|(?<=[.!?})\]$])\s{0,2}(?:Human|User):"
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
    for signs, pattern in ((_HARD_SIGNS, _HARD_STOP), (_ROLES, _ROLE)):
        for marker in pattern.finditer(text) if any(sign in text for sign in signs) else ():
            if text[: marker.start()].strip():
                text = text[: marker.start()]
                break
    task = _NEXT_TASK.search(text) if any(word in text for word in _TASKS) else None
    if task is None:
        return text
    if text[: task.start()].strip() and is_bare(text[: task.start()]):  # "Yes.\n\nQuestion: ..."
        return text[: task.start()]
    given = [m.start() for m in (_BOX.search(text), _MARKER.search(text)) if m]
    task = _NEXT_TASK.search(text, min(given)) if given else None
    return text[: task.start()] if task else text


# ---------------------------------------------------------------- \boxed

_BOX = re.compile(r"\\f?boxed\b|\\fbox\b")
_CONNECTED = re.compile(r"\b(?:and|or)\b", re.I)
_NOTHING_BETWEEN = re.compile(r"(?:[\s$,;.&()\[\]{}\\]|quad|text|and|or)*")
_NAMED = re.compile(r"[A-Za-z](?:_\{?\w{1,4}\}?)?\s{0,2}=\s{0,2}$")
_NOT_CONNECTED = re.compile(
    r"\b(?:so|thus|therefore|hence|then|wait|actually|instead|rather|but|not?|which|equals?|is|simplif\w+|"
    r"approximately|correct\w*|that|check|final\w*|now|should|sorry|maybe)\b|[.!?]\s|[.!?]$|=|\n\s*\n",
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
        return trim(text[last.end() :].lstrip().lstrip("{")) if tolerant else ""
    content = content.strip()
    if not content:
        return ""
    if PERCENT_AFTER.match(text, end) and not content.endswith("%"):
        content += "%"
    parts = [content]
    start = last.start()
    for box in reversed(boxes[:-1][-20:]):
        earlier, end = _box_content(text, box.end())
        between = text[end:start]
        if earlier is None or end > start or len(between) > 70 or not earlier.strip():
            break
        between = _NAMED.sub("", between)  # "x = \boxed{1} and y = \boxed{2}"
        if _NOT_CONNECTED.search(between):
            break
        if not _NOTHING_BETWEEN.fullmatch(between) and not _CONNECTED.search(between):
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
_QUOTED = re.compile(r'\s{0,3}"((?:[^"\\\n]|\\.){1,400})"')
_TAIL = re.compile(r"\s{0,3}i hope it is correct.*", re.I | re.S)


def _answer_in(segment: str) -> str | None:
    """The answer in the sentence after a marker ("" for a blank one); None when it holds none."""
    if is_bare(segment) and trim(segment):
        return trim(segment)
    found = candidates(segment)
    if not found:
        return trim(segment) if len(WORD.findall(segment)) <= 4 else None
    filler = _FILLER.match(segment)
    if found[0].start <= (filler.end() if filler else 0):
        return found[0].text
    return best(segment, found).text


def _first_sentence(text: str) -> str:
    """The first non-blank line, up to its sentence's end; a display formula counts as one line."""
    quoted = _QUOTED.match(text)
    if quoted:  # "answer": "42"
        return quoted[1]
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


# ---------------------------------------------------------------- without a box or a marker


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
    answer = best(text, [c for c in found if c.start >= stop] or found[-1:])
    return Extraction(answer.text, "latex" if answer.latex else "expression")
