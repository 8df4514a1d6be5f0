"""Where a wrong solution leaves a right one, and what to say about it: analyses by rule, no model involved.

`find_slip` compares the calculations of the two; `analysis` writes the four sections that the prompt
`analyse.v1` asks for. Sections 3 and 4 hold no number of the problem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from calculations import Calculation, as_text, calculations, close, has_algebra, numbers_in

from meml_mel.mel.parse import HEADINGS

Kind = Literal["arithmetic", "operation", "quantity", "stopped", "overshot", "subgoal"]
VERB = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


@dataclass(frozen=True, slots=True)
class Slip:
    """The first calculation of the wrong solution that the right one does not share.

    `wrong` is None where nothing differs but the end (`stopped`); `right` is the right solution's calculation
    that stands in its place, where one does. `detail` says which number took which one's place.
    """

    kind: Kind
    wrong: Calculation | None
    right: Calculation | None
    shared: int  # calculations whose results both have, ahead of it
    detail: str = ""


def find_slip(problem: str, wrong: str, right: str) -> Slip | None:
    """The slip, or None where the rules can't tell: algebra, no calculations, or a right solution with an error."""
    if has_algebra(wrong) or has_algebra(right):
        return None
    theirs, ours = calculations(wrong), calculations(right)
    if not theirs or not ours or not all(c.holds for c in ours):
        return None
    known = [c.result for c in ours] + numbers_in(right)
    shared = 0
    for calculation in theirs:
        if not calculation.holds:
            return Slip("arithmetic", calculation, None, shared)
        if not _has(known, calculation.result):
            return _classify(problem, calculation, theirs[:shared], ours, shared)
        shared += 1
    return _stopped(theirs, ours, shared)


def _stopped(theirs: list[Calculation], ours: list[Calculation], shared: int) -> Slip | None:
    """Every result is shared, so the wrong solution ends too early; None where its end is not on the right's way."""
    reached = [i for i, c in enumerate(ours) if close(c.result, theirs[-1].result)]
    following = ours[reached[0] + 1 :] if reached else []
    return Slip("stopped", theirs[-1], following[0], shared) if following else None


def _classify(
    problem: str, wrong: Calculation, before: list[Calculation], ours: list[Calculation], shared: int
) -> Slip | None:
    final = ours[-1].result
    if _has(list(wrong.numbers), final) and _has([c.result for c in before], final):
        return Slip("overshot", wrong, None, shared)
    done = [c.result for c in before]
    following = [c for c in ours if not _has(done, c.result)]
    for right in following:
        if sorted(right.numbers) == sorted(wrong.numbers) and right.operations != wrong.operations:
            return Slip("operation", wrong, right, shared)
    given = [*numbers_in(problem), *done]
    for right in following:
        if right.operations == wrong.operations and (swap := _one_swapped(wrong, right)):
            put, instead = swap
            source = "" if _has(given, put) else ", which is neither given nor computed before"
            return Slip(
                "quantity", wrong, right, shared, f"{as_text(put)}{source}, in place of {as_text(instead)}"
            )
    return Slip("subgoal", wrong, following[0], shared) if shared and following else None


def _one_swapped(wrong: Calculation, right: Calculation) -> tuple[Fraction, Fraction] | None:
    """(the number that was used, the one that belongs there) where the two differ in just one number."""
    extra, missing = list(wrong.numbers), list(right.numbers)
    for number in right.numbers:
        if number in extra:
            extra.remove(number)
            missing.remove(number)
    return (extra[0], missing[0]) if len(extra) == len(missing) == 1 else None


def _has(numbers: list[Fraction], value: Fraction) -> bool:
    return any(close(number, value) for number in numbers)


def _verbs(calculation: Calculation) -> str:
    return " and ".join(dict.fromkeys(VERB[sign] for sign in calculation.operations))


def _step(slip: Slip) -> str:
    wrong, right = slip.wrong, slip.right
    if slip.kind == "arithmetic" and wrong:
        return f'the wrong attempt writes "{wrong}", but {wrong.expression} is {as_text(wrong.value)}.'
    if slip.kind == "stopped":
        return f'the wrong attempt stops after "{wrong}"; the step "{right}" is missing.'
    if slip.kind == "overshot":
        return f'the wrong attempt has the result already and goes on to "{wrong}".'
    return f'the wrong attempt writes "{wrong}" where "{right}" is needed.'


def _cause(slip: Slip) -> str:
    wrong, right = slip.wrong, slip.right
    if slip.kind == "arithmetic":
        return "an arithmetic slip. The step itself serves, but the result was written down unchecked."
    if slip.kind == "operation" and wrong and right:
        return (
            f"the wrong operation. It did {_verbs(wrong)} where it should {_verbs(right)}: it followed the look of "
            "the numbers, not what they mean."
        )
    if slip.kind == "quantity":
        return f"a wrong quantity. It used {slip.detail}: a condition was read too fast."
    if slip.kind == "stopped":
        return (
            "a missing step. It took a result on the way for the answer and did not read the question again."
        )
    if slip.kind == "overshot":
        return "a step too many. It did not notice that the question was answered."
    return "a sub-goal that does not serve. It computed something that the question does not ask for."


SUCCESS = {
    "arithmetic": "The right attempt carries every calculation out correctly. "
    "The wrong one needed a check of its result.",
    "operation": 'The right attempt computes "{right}": it says first what the result will mean. '
    "The wrong one needed that sentence before choosing an operation.",
    "quantity": 'The right attempt computes "{right}" with the quantity that the text gives for it. '
    "The wrong one needed to read that condition again.",
    "stopped": 'The right attempt goes on to "{right}", since the question asks for more. '
    "The wrong one needed to compare its result with the question.",
    "overshot": "The right attempt stops when the question is answered. "
    "The wrong one needed to compare its result with the question.",
    "subgoal": 'The right attempt computes "{right}" next, which leads to what is asked. '
    "The wrong one needed a plan from the question backwards.",
}
REFLECTION = {
    "arithmetic": "I trusted a result that I had not checked. A right plan is lost by one careless calculation. "
    "Next time I will check each result with the inverse operation.",
    "operation": "I chose an operation before I knew what its result would mean. The relation between the quantities "
    "decides the operation. Next time I will say in words what I compute, then compute it.",
    "quantity": "I put a number where another one belongs. Each number belongs to one thing in the text. "
    "Next time I will name what each number stands for before I use it.",
    "stopped": "I stopped at a result on the way. A result is the answer only if it is what the question asks for. "
    "Next time I will read the question again before I answer.",
    "overshot": "I went on after the answer was there. Every further step changes what the result means. "
    "Next time I will compare each result with the question and stop in time.",
    "subgoal": "I computed what was easy, not what was asked. Each step has to bring me closer to the question. "
    "Next time I will plan from the question backwards.",
}
RULE = {
    "arithmetic": "- Check by the inverse: if a result was just computed, then undo it with the inverse operation "
    "before using it.",
    "operation": "- Meaning first: if two quantities are combined, then say what the result means and take the "
    "operation that gives it.",
    "quantity": "- Name the number: if a number enters a calculation, then say which thing in the text it measures.",
    "stopped": "- Answer the question: if a result looks final, then read the question again and do what is still "
    "missing.",
    "overshot": "- Stop in time: if a result is what the question asks for, then give it and compute nothing more.",
    "subgoal": "- Backwards plan: if the first step is not clear, then ask what the last step needs and compute that "
    "first.",
}
# The first pattern that the problem's text holds decides its class.
CLASSES = [
    (
        r"%|percent",
        "- Percent of what: if a percentage is given, then find the whole that it refers to; after a change the whole "
        "is a new one.",
    ),
    (
        r"\bhalf\b|third|quarter|fourth|fifth|\d/\d",
        "- Fraction of what: if a fraction of something is taken, then multiply by it; what is left is the rest of "
        "the whole.",
    ),
    (
        r"\b(twice|double|triple|times as|times more|times the)\b",
        "- Compare in the right direction: if one amount is a multiple of another, then find the base amount first and "
        "multiply it.",
    ),
    (
        r"\b(more|less|fewer|older|younger|taller|longer) than\b",
        "- More or less than: if one amount is compared with another, then find the base amount first, and add for "
        "more, subtract for less.",
    ),
    (
        r"\b(per|each|every)\b[^.?]*\b(day|week|month|year|hour|minute)s?\b|\b(day|week|hour|month)s?\b",
        "- One time unit: if amounts come per day, week or hour, then bring all to the same unit of time before "
        "combining.",
    ),
    (
        r"\b(left|remain|remaining|rest|still)\b",
        "- What is left: if part of an amount is taken away, then subtract every part from the whole, each one once.",
    ),
    (
        r"\$|\b(cost|price|pay|paid|spend|earn|dollars?|cents?)\b",
        "- Price times count: if several things have a price each, then multiply each price by its own count, "
        "then add.",
    ),
    (
        r"",
        "- Groups and totals: if equal groups are given, then multiply the size by the number of groups; add groups "
        "that differ.",
    ),
]


def class_rule(problem: str) -> str:
    """The if-then rule for the class of problem, by words in its text."""
    return next(rule for pattern, rule in CLASSES if re.search(pattern, problem, re.IGNORECASE))


def analysis(problem: str, slip: Slip) -> str:
    """The four sections under the headings that `mel.parse` reads."""
    sections = {
        "failure": f"Step: {_step(slip)}\nCause: {_cause(slip)}",
        "success": SUCCESS[slip.kind].format(right=slip.right),
        "reflection": REFLECTION[slip.kind],
        "heuristics": f"{RULE[slip.kind]}\n{class_rule(problem)}",
    }
    return "\n\n".join(f"## {HEADINGS[name]}\n{sections[name]}" for name in HEADINGS)
