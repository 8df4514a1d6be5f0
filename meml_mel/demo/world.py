r"""The world: chains of two-digit sums and differences, and pupils with habits that are wrong.

    question = make_question(random.Random(0), steps=2)
    question.text       "Start with 47. Add 38. Take away 29. What is the result?"
    solution(question)  "1. 47 + 38: 7 + 8 = 15, carry 1; 4 + 3 + 1 = 8; 85\n2. ...\nThe answer is \boxed{56}."

A *habit* is a systematic mistake: it is made in most of the places where it applies, and nowhere else. So a wrong
solution has a known first wrong step and a known cause, and for each cause there is one right rule. That is what
a meta-experience should say, and `bifurcation` and `named` measure whether it does.

| habit | applies where | what is done |
|---|---|---|
| carry | the ones add up to ten or more | the tens are added without the carry |
| borrow | the upper ones digit is the smaller | the smaller digit is taken from the larger |
| chain | any step but the first | the step starts from the question's first number |
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from ..data.question import Question

Habit = Literal["carry", "borrow", "chain"]
Cause = Literal["carry", "borrow", "chain", "slip"]
HABITS: tuple[Habit, ...] = get_args(Habit)
CAUSES: tuple[Cause, ...] = get_args(Cause)

LIMIT = 99  # every number in every step, right or wrong, is from 0 to this


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: `sign` is "+" or "-", `number` from 1 to 99."""

    sign: Literal["+", "-"]
    number: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A question: a start and the steps to take from it."""

    start: int
    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        words = {"+": "Add", "-": "Take away"}
        said = " ".join(f"{words[step.sign]} {step.number}." for step in self.steps)
        return f"Start with {self.start}. {said} What is the result?"

    @property
    def results(self) -> tuple[int, ...]:
        """The right result after each step."""
        values = [self.start]
        for step in self.steps:
            values.append(_apply(values[-1], step))
        return tuple(values[1:])

    @property
    def answer(self) -> int:
        return self.results[-1]

    @property
    def traps(self) -> tuple[Habit, ...]:
        """The habits that apply somewhere on the right path, each once."""
        befores = (self.start, *self.results)
        return tuple(
            habit
            for habit in HABITS
            if any(applies(habit, i, befores[i], step) for i, step in enumerate(self.steps))
        )

    def question(self, id: str) -> Question:
        """As the rest of the package takes it, with the right solution as ground truth."""
        return Question(id, self.text, str(self.answer), "math", solution(self), "demo world")


@dataclass(frozen=True, slots=True)
class Pupil:
    """Who writes a solution: a name, a habit (None: reliable), and how often it is followed where it applies."""

    name: str
    habit: Habit | None
    rate: float = 0.6

    @property
    def system_prompt(self) -> str:
        return f"You are {self.name}."


# The experts of the demo. Each fails where the two others mostly succeed.
EXPERTS = (Pupil("Ada", "carry", 0.7), Pupil("Ben", "borrow", 0.7), Pupil("Cleo", "chain", 0.6))
# Whose work the tiny base model has read before: it knows every habit, but not which of the experts has which.
_NAMES: dict[Habit | None, tuple[str, ...]] = {
    "carry": ("Dora", "Emil", "Fay"),
    "borrow": ("Gus", "Hana", "Ivo"),
    "chain": ("Jana", "Karl", "Lena"),
    None: ("Mina", "Nils", "Olga"),
}
OTHERS = tuple(Pupil(name, habit, 0.9) for habit, names in _NAMES.items() for name in names)


def applies(habit: Habit, index: int, before: int, step: Step) -> bool:
    """Whether `habit` would change step number `index` (from 0), taken from the value `before`."""
    if habit == "carry":
        return step.sign == "+" and before % 10 + step.number % 10 >= 10
    if habit == "borrow":
        return step.sign == "-" and before % 10 < step.number % 10
    return index > 0


def make_question(rng: random.Random, steps: int = 2) -> Chain:
    """A chain of `steps` steps: more are harder. All numbers, on wrong paths by habit too, are from 0 to 99.

    About seven steps in ten are a sum that carries or a difference that borrows.
    """
    wanted = [rng.random() < 0.7 for _ in range(steps)]
    while True:
        start = before = rng.randint(10, 89)
        made: list[Step] = []
        while len(made) < steps:
            step = Step("+" if rng.random() < 0.5 else "-", rng.randint(2, 79))
            after = _apply(before, step)
            trap = applies("carry", len(made), before, step) or applies("borrow", len(made), before, step)
            if not 0 <= after <= LIMIT or trap != wanted[len(made)]:
                if rng.random() < 0.1:
                    break  # from some values there is no such step
                continue
            made.append(step)
            before = after
        chain = Chain(start, tuple(made))
        if len(made) == steps and _reachable_values_are_small(chain):
            return chain


def make_questions(seed: int, count: int, steps: int = 2, avoid: Collection[str] = ()) -> list[Chain]:
    """`count` different questions whose texts are not in `avoid`; the same for the same arguments."""
    made: list[Chain] = []
    rng, seen = random.Random(f"demo world {seed} {steps}"), set(avoid)
    while len(made) < count:
        chain = make_question(rng, steps)
        if chain.text not in seen:
            seen.add(chain.text)
            made.append(chain)
    return made


def training_questions(count: int = 400) -> list[Chain]:
    """The demo's RL questions; no demonstration is on one of them."""
    return make_questions(1, count)


def test_questions(count: int = 200) -> list[Chain]:
    """The demo's held-out questions: in no training set of any stage."""
    return make_questions(2, count, avoid=[chain.text for chain in training_questions()])


def solution(
    chain: Chain,
    habit: Habit | None = None,
    rate: float = 1.0,
    slip: float = 0.0,
    rng: random.Random | None = None,
) -> str:
    """A worked solution. `habit` is followed with probability `rate` wherever it applies.

    `slip`: the probability, per step, that one digit is written wrongly for no reason (needs `rng`).
    """
    rng = rng or random.Random(0)
    lines, value = [], chain.start
    for index, step in enumerate(chain.steps):
        follow = habit is not None and rng.random() < rate
        before = chain.start if follow and habit == "chain" and index else value
        line, value = _work(before, step, habit if follow else None, rng.random() < slip, rng)
        lines.append(f"{index + 1}. {line}")
    return "\n".join([*lines, f"The answer is \\boxed{{{value}}}."])


def is_right(chain: Chain, attempt: str) -> bool:
    """Whether an attempt of this world ends with the right answer; the package's grader says the same."""
    return attempt.endswith(f"\\boxed{{{chain.answer}}}.")


@dataclass(frozen=True, slots=True)
class Bifurcation:
    """Where a wrong attempt leaves the right path: the step's number from 1, as written, and why."""

    step: int
    written: str  # the operation as the attempt has it, "85 - 29"
    cause: Cause


_LINE = re.compile(r"^(\d+)\. (\d+) ([+-]) (\d+): (.*); (-?\d+)$", re.MULTILINE)


def bifurcation(chain: Chain, attempt: str) -> Bifurcation | None:
    """The first wrong step of an attempt and its cause; None where all steps are right.

    A step that is missing, unreadable or wrong in another way than by a habit is a slip.
    """
    lines = {int(m[1]): m for m in reversed(list(_LINE.finditer(attempt)))}
    before = chain.start
    for index, (step, right) in enumerate(zip(chain.steps, chain.results)):
        found = lines.get(index + 1)
        if found is None:
            return Bifurcation(index + 1, f"{before} {step.sign} {step.number}", "slip")
        taken, result = int(found[2]), int(found[6])
        written = f"{found[2]} {found[3]} {found[4]}"
        if (taken, found[3], int(found[4])) != (before, step.sign, step.number):
            stale = index > 0 and (taken, found[3], int(found[4])) == (chain.start, step.sign, step.number)
            return Bifurcation(index + 1, written, "chain" if stale else "slip")
        if result != right:
            for habit in ("carry", "borrow"):
                if applies(habit, index, before, step) and result == _apply(before, step, habit):  # type: ignore[arg-type]
                    return Bifurcation(index + 1, written, habit)  # type: ignore[arg-type]
            return Bifurcation(index + 1, written, "slip")
        before = right
    return None


# What an analysis says of each cause. Nothing of a question may stand in these.
_TEXTS: dict[Cause, tuple[str, str, str, str]] = {
    "carry": (
        "The carry was left out of the tens.",
        "It added the carry to the tens.",
        "I left out a carry. I see that it belongs to the tens. Next time I add it.",
        "- Carry: if the ones make ten or more, then add the carry to the tens.",
    ),
    "borrow": (
        "The smaller digit was taken from the larger.",
        "It borrowed ten from the tens.",
        "I turned the digits around. I see that the order counts. Next time I borrow.",
        "- Borrow: if the upper digit is smaller, then borrow ten from the tens.",
    ),
    "chain": (
        "The step went back to the first number.",
        "It went on from the last result.",
        "I went back to the start. I see that the steps build on each other. Next time I go on from the last result.",
        "- Chain: if a step follows another, then go on from the last result.",
    ),
    "slip": (
        "A digit was written wrongly.",
        "It wrote every digit with care.",
        "I wrote a wrong digit. I see that haste costs. Next time I check each digit.",
        "- Check: if a digit is written, then check it once more.",
    ),
}


def analysis(found: Bifurcation) -> str:
    """The meta-experience that the world's rules call for, under the package's four headings."""
    failure, success, reflection, rule = _TEXTS[found.cause]
    return (
        f"## 1. Failure point\nStep: {found.step}. {found.written}\nCause: {failure}\n\n"
        f"## 2. What worked\n{success}\n\n## 3. Reflection\n{reflection}\n\n## 4. Heuristics\n{rule}"
    )


def named(text: str) -> tuple[int | None, Cause | None]:
    """The step and the rule that an analysis names, None for what it does not name (or names twice)."""
    step = re.search(r"^Step: (\d+)\b", text, re.MULTILINE)
    rules = [cause for cause in CAUSES if _TEXTS[cause][3] in text]
    return int(step[1]) if step else None, rules[0] if len(rules) == 1 else None


def _apply(before: int, step: Step, habit: Habit | None = None) -> int:
    if step.sign == "+":
        return before + step.number - (10 if habit == "carry" and before % 10 + step.number % 10 >= 10 else 0)
    if habit == "borrow" and before % 10 < step.number % 10:
        return 10 * (before // 10 - step.number // 10) + step.number % 10 - before % 10
    return before - step.number


def _reachable_values_are_small(chain: Chain) -> bool:
    """Whether every value that any mix of habits can reach is from 0 to 99."""
    values = {chain.start}
    for index, step in enumerate(chain.steps):
        starts = values | ({chain.start} if index else set())
        values = {_apply(v, step, habit) for v in starts for habit in (None, "carry", "borrow")}  # type: ignore[arg-type]
        if not all(0 <= v <= LIMIT for v in values):
            return False
    return True


def _work(before: int, step: Step, habit: Habit | None, slips: bool, rng: random.Random) -> tuple[str, int]:
    """One line of working and the value that it ends with."""
    number = step.number
    a, b, tens_a, tens_b = before % 10, number % 10, before // 10, number // 10
    head = f"{before} {step.sign} {number}: "
    carry = borrow = False
    if step.sign == "+":
        carry = a + b >= 10
        ones = (a + b) % 10
    elif a < b and habit == "borrow":
        ones = b - a
    else:
        borrow = a < b
        ones = (a - b) % 10
    if slips:
        ones = (ones + rng.choice((1, 9))) % 10
    if step.sign == "+":
        written = f"{a} + {b} = {10 + ones if carry else ones}" + (
            ", carry 1" if carry and habit != "carry" else ""
        )
        kept = int(carry and habit != "carry")
        tens = tens_a + tens_b + kept
        work = f"{tens_a} + {tens_b}" + (" + 1" if kept else "") + f" = {tens}"
    elif a < b and habit == "borrow":
        written = f"{b} - {a} = {ones}"
        tens = tens_a - tens_b
        work = f"{tens_a} - {tens_b} = {tens}"
    else:
        written = f"borrow 1, {10 + a} - {b} = {ones}" if borrow else f"{a} - {b} = {ones}"
        tens = tens_a - tens_b - int(borrow)
        work = f"{tens_a} - {tens_b}" + (" - 1" if borrow else "") + f" = {tens}"
    value = 10 * tens + ones
    return f"{head}{written}; {work}; {value}", value
