"""docs/mel.md: every function it names exists, its worked example is what the code computes."""

import importlib
import re
from dataclasses import fields
from math import log
from pathlib import Path

import pytest

from meml_mel.mel.objective import MetaExperienceConfig
from tests.mel.mel_batches import replay_by, run, scored

PAGE = (Path(__file__).parents[2] / "docs" / "mel.md").read_text(encoding="utf-8")


def test_every_function_of_the_equation_table_exists():
    table = PAGE.split("## Equation to function")[1].split("\n## ")[0]
    named = re.findall(r"`((?:mel|prompts|rlvr)\.\w+\.[\w.]+)`", table)
    assert len(named) >= 10
    for path in named:
        module, name, *rest = path.split(".")
        found = importlib.import_module(f"meml_mel.{module}.{name}")
        for part in rest:
            found = getattr(found, part)


def test_every_option_and_metric_is_on_the_page():
    options = PAGE.split("## Options")[1].split("\n## ")[0]
    assert all(f"`{field.name}`" in options for field in fields(MetaExperienceConfig))
    metrics = run([scored("q", nameless="RW")]).metrics
    assert [name for name in metrics if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(("normalize", "printed"), [("questions", "**0.5199**"), ("kept", "**1.0397**")])
def test_the_worked_example(normalize, printed):
    questions = [
        scored("q1", nameless="RWW"),
        scored("q2", nameless="RWW"),
        scored("q3", nameless="RW"),
        scored("q4", nameless="RR"),
    ]
    retained = replay_by({"<q1/nameless/1>", "<q1/nameless/2>", "<q2/nameless/1>"})
    outcome = run(questions, retained, pairs_per_question="all", normalize=normalize)
    nll = {"q1": [log(2), log(4)], "q2": [(log(2) + log(4)) / 2]}
    total = sum(example.weight * nll[example.question_id].pop() for example in outcome.examples)
    assert f"**{total:.4f}**" == printed and printed in PAGE
