"""Does a meta-experience state the gold answer? Then a replay can pass by copying it (docs/mel.md, Leaks).

For numbers an upper bound by design: a number of the answer's value counts wherever it stands as a number of
its own. It is not one inside a longer number, in an exponent, an index or a fraction, before a variable (`2x`),
or as a label (`step 2`, a list's `2.`). Numbers written out as words are not looked for. Linear in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ..data.question import Question
from .parse import MetaExperience

# LaTeX's and markdown's ways to write the same thing, made one.
_REWRITES = [
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"\\[dt]frac", r"\\frac"),
        (r"\\frac\s?(\d)\s?(\d)", r" \1/\2 "),
        (r"\\left\b|\\right\b|\\[,!;: ]|(?<=\d)\{(?=,\})|(?<=,)\}(?=\d)|\*\*", ""),
        (r"\\(?:[()\[\]$]|q?quad\b)|\$", " "),
        (r"\\\{", "("),
        (r"\\\}", ")"),
        (r"\\(?:text|mathrm|mathbf|textbf|mbox|operatorname)\s?\{([^{}]*)\}", r" \1 "),
        (r"\^\s?\{?\\circ\}?|°", " degrees "),
        (r"\\%", "%"),
        (r"\\(?:cdot|times)\b", "*"),
        ("[\u2212\u2013]", "-"),
        (r"(?<=[\^_])\{(\w)\}", r"\1"),
        (r"(?<=sqrt)\{(\w)\}", r"\1"),
        (r"\\boxed\s?\{([^{}]*)\}", r" answer: \1 "),
        # a list's numbers and the like are no numbers of the text
        (r"^[ \t]*(?:[-*+#]{1,6}[ \t]+)?\(?\d{1,2}[.):](?=[ \t]+\S)", " "),
        (r"\b(?i:step|rule|section|case|equation|part|line|attempt|method)s?\s?#?\d{1,3}\b", " "),
        (r"[ \t]{2,}", " "),
    )
]
_FRACTION = re.compile(r"\\frac\s?\{([^{}]*)\}\s?\{([^{}]*)\}")
_NUMERAL = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+")
_BELOW = re.compile(r"\s?/\s?(\d+)(?!\d|\.\d)")
_INSIDE = re.compile(r"[\w.\\^{/]$|/\s$")  # ahead of a numeral: x2, x^2, \sqrt{2}, the 2 of 1/2
_GOES_ON = re.compile(
    r"\s?[\^/]|\(|\\[A-Za-z]|[A-Za-z](?![A-Za-z])|(?:st|nd|rd|th)\b"
)  # behind it: 2x, 2^n, 2nd
_NEGATIVE = re.compile(r"(?:(?:^|\n)-|[=(\[,:<>]\s?-\s?|[A-Za-z]{2}\s-)$")
_GOLD_NUMBER = re.compile(r"(-?)\s?([\d.,]+)(?:\s?/\s?(\d+))?\s?(?:%|[A-Za-z]{2}[A-Za-z ]{0,20})?")
_MAX_DIGITS = 60  # a longer numeral is compared as text

_FILLERS = r"(?:\s(?:here|then|must|should|be|is|was|therefore|thus|clearly|really)\b){0,4}"
_SAYS = rf"\b(?:answer|result|option|choice)\b{_FILLERS}\s?[:=]?\s?[\"'(*]{{0,2}}"
_YES_NO = {"yes": "yes|true", "true": "yes|true", "no": "no|false", "false": "no|false"}


@dataclass(frozen=True, slots=True)
class Leak:
    """Where a meta-experience states the answer: sections 1-2 speak of this problem, 3-4 should not."""

    specific: bool  # failure, success
    general: bool  # reflection, heuristics

    @property
    def anywhere(self) -> bool:
        return self.specific or self.general


def measure(experience: MetaExperience, question: Question) -> Leak:
    """Both halves of a meta-experience, checked apart."""
    return Leak(
        specific=leaks(f"{experience.failure}\n{experience.success}", question),
        general=leaks(f"{experience.reflection}\n{experience.heuristics}", question),
    )


def leaks(text: str, question: Question) -> bool:
    """Whether `text` states the question's gold answer, by the rules of its kind.

    math: the number, or the expression, as such. boolean: only in words such as "the answer is yes", or boxed.
    choice: the letter as an option ("(B)", "option B"), or the option's own text.
    """
    text = _plain(text)
    if question.kind == "boolean":
        return _says(text, _YES_NO.get(question.answer.strip().lower(), "(?!)"))
    if question.kind == "choice":
        letter = question.answer.strip(" ().$").upper()
        option = _options(question.problem).get(letter, "")
        return _states_choice(text, letter) or (bool(option) and _states_value(text, option))
    return _states_value(text, question.answer)


def _plain(text: str) -> str:
    for _ in range(2):  # a fraction in a fraction
        text = _FRACTION.sub(lambda m: f" {_grouped(m[1])}/{_grouped(m[2])} ", text)
        for pattern, replacement in _REWRITES:
            text = pattern.sub(replacement, text)
    return text


def _grouped(part: str) -> str:
    part = part.strip()
    return f"({part})" if re.search(r"[+\- /]", part.lstrip("-")) else part


def _states_value(text: str, gold: str) -> bool:
    gold = re.sub(r"^[A-Za-z]\w?\s?=\s?", "", _plain(gold).strip()).strip(" .")
    value = _value(gold)
    if value is not None:
        return value in _numbers(text)
    if len(re.sub(r"\W", "", gold)) < 2:  # a single letter stands everywhere: ask for a plain statement
        return bool(gold) and _says(text, re.escape(gold))
    pieces = [re.escape(piece) for piece in re.findall(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]", gold)]
    start = r"(?<![\w.\\])" if gold[0].isalnum() else ""
    end = r"(?!\w|\.\d)" if gold[-1].isalnum() else ""
    return re.search(start + r"\s?".join(pieces) + end, text) is not None


def _value(gold: str) -> Fraction | None:
    """The gold as a number, its unit or percent sign left out; None where it is none."""
    match = _GOLD_NUMBER.fullmatch(gold)
    if not match or not _NUMERAL.fullmatch(match[2]):
        return None
    value = _fraction(match[2], match[3])
    return None if value is None else -value if match[1] else value


def _fraction(top: str, bottom: str | None) -> Fraction | None:
    if max(len(top), len(bottom or "")) > _MAX_DIGITS or (bottom and not int(bottom)):
        return None
    return Fraction(top.replace(",", "")) / int(bottom or 1)


def _numbers(text: str) -> set[Fraction]:
    """The values of the numbers that stand on their own in a plain text."""
    found = set()
    for numeral in _NUMERAL.finditer(text):
        before = text[max(0, numeral.start() - 4) : numeral.start()]
        below = _BELOW.match(text, numeral.end())
        end = below.end() if below else numeral.end()
        if _INSIDE.search(before) or _GOES_ON.match(text, end):
            continue
        value = _fraction(numeral[0], below[1] if below else None)
        if value is not None:
            found.add(-value if _NEGATIVE.search(before) else value)
    return found


def _says(text: str, word: str) -> bool:
    return re.search(rf"{_SAYS}(?:{word})(?!\w)", text, re.IGNORECASE) is not None


def _states_choice(text: str, letter: str) -> bool:
    """`(B)`, `option B`, `the answer is B`; not where it goes on with `is wrong`."""
    if not re.fullmatch("[A-Z]", letter):
        return bool(letter) and _says(text, re.escape(letter))
    named = rf"\({letter}\)|(?i:{_SAYS}){letter}(?![\w'])|(?i:{_SAYS}\s?\(?{letter}\))"
    wrong = r"(?!\W{0,3}(?:is|was)\s(?:wrong|incorrect|not\b|false))"
    return re.search(f"(?:{named}){wrong}", text) is not None


def _options(problem: str) -> dict[str, str]:
    """The texts of a problem's options by letter, where they run A, B, ... in order."""
    marks: list[re.Match[str]] = []
    for mark in re.finditer(r"(?:^|(?<=[\s,;]))\(?([A-Ha-h])\s?[).:]\s", problem):
        if mark[1].upper() == chr(ord("A") + len(marks)):
            marks.append(mark)
        elif mark[1].upper() == "A" and len(marks) < 2:
            marks = [mark]
    if len(marks) < 2:
        return {}
    ends = [mark.start() for mark in marks[1:]] + [len(problem)]
    texts = (problem[mark.end() : end].strip(" ,;\n").split("\n")[0] for mark, end in zip(marks, ends))
    return {mark[1].upper(): text.strip(" ,;") for mark, text in zip(marks, texts)}
