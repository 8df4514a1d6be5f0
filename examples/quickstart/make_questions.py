"""Writes questions.jsonl: 50 word sums, each with two experts' solutions. Stands in for a file of your own.

python examples/quickstart/make_questions.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

NAMES = ("Ana", "Ben", "Chen", "Dora", "Emil", "Farah", "Goran", "Hana")
THINGS = ("apples", "stamps", "marbles", "books", "shells")


def row(number: int, rng: random.Random) -> dict[str, str]:
    """One question: two steps, a sum and a difference or a product and a sum."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a, b, c = rng.randint(2, 20), rng.randint(2, 20), rng.randint(2, 9)
    if number % 2:
        c = min(c, a + b - 1)
        first, second = a + b, a + b - c
        question = f"{name} has {a} {thing}, buys {b} more and gives {c} away. How many {thing} are left?"
        lines = f"{a} + {b} = {first}\n{first} - {c} = {second}"
        prose = f"{name} first has {a} + {b} = {first} {thing}."
        prose += f" After giving {c} away, {first} - {c} = {second} are left."
    else:
        first, second = c * a, c * a + b
        question = (
            f"{name} fills {c} boxes with {a} {thing} each and keeps {b} more. How many {thing} are there?"
        )
        lines = f"{c} * {a} = {first}\n{first} + {b} = {second}"
        prose = f"The boxes hold {c} * {a} = {first} {thing}. With the other {b} there are {first} + {b} = {second}."
    boxed = f"\\boxed{{{second}}}"
    return {
        "id": f"sum-{number:02d}",
        "question": question,
        "answer": str(second),
        "short": f"{lines}\n{boxed}",
        "prose": f"{prose} The answer is {boxed}.",
    }


def main() -> None:
    rng = random.Random(7)
    rows = [row(number, rng) for number in range(50)]
    path = Path(__file__).with_name("questions.jsonl")
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    print(f"{path.name}: {len(rows)} questions")


if __name__ == "__main__":
    main()
