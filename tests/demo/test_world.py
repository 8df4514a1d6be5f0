r"""The demo's world: worked solutions are right, habits are wrong where they apply and only there, and the true
bifurcation of every wrong attempt is found. Checked with arithmetic done here, not with the world's own."""

from __future__ import annotations

import random
import re

import pytest

from meml_mel.demo import corpus, world
from meml_mel.grading.grader import grade
from meml_mel.mel.leak import measure
from meml_mel.mel.parse import HEADINGS, MetaExperience, parse_meta_experience
from meml_mel.mel.run_on import analysis_runs_on
from meml_mel.prompts.library import Prompts

CHAINS = [chain for steps in (1, 2, 3) for chain in world.make_questions(7, 150, steps)]
LINE = re.compile(r"\d+\. (\d+) ([+-]) (\d+): (.*); (-?\d+)")


def answer_to(text: str) -> int:
    """The question's answer, read from its words."""
    numbers = re.findall(r"(Start with|Add|Take away) (\d+)\.", text)
    return sum(-int(n) if word == "Take away" else int(n) for word, n in numbers)


def test_a_question_says_what_its_answer_is():
    for chain in CHAINS:
        assert chain.answer == answer_to(chain.text)


def test_every_equation_of_a_right_solution_holds_and_its_box_is_the_answer():
    for chain in CHAINS:
        text = world.solution(chain)
        for a, sign, b, work, result in LINE.findall(text):
            assert int(a) + (int(b) if sign == "+" else -int(b)) == int(result)
            for left, right in re.findall(r"([\d +-]+) = (\d+)", work):
                assert eval(left) == int(right), text
        assert grade(str(chain.answer), text).right


def test_the_hand_worked_examples():
    chain = world.Chain(47, (world.Step("+", 38), world.Step("-", 29)))
    assert chain.text == "Start with 47. Add 38. Take away 29. What is the result?"
    assert world.solution(chain) == (
        "1. 47 + 38: 7 + 8 = 15, carry 1; 4 + 3 + 1 = 8; 85\n"
        "2. 85 - 29: borrow 1, 15 - 9 = 6; 8 - 2 - 1 = 5; 56\nThe answer is \\boxed{56}."
    )
    assert "1. 47 + 38: 7 + 8 = 15; 4 + 3 = 7; 75" in world.solution(chain, "carry")
    assert "2. 85 - 29: 9 - 5 = 4; 8 - 2 = 6; 64" in world.solution(chain, "borrow")
    assert "2. 47 - 29: borrow 1, 17 - 9 = 8" in world.solution(chain, "chain")


@pytest.mark.parametrize("habit", world.HABITS)
def test_a_habit_is_wrong_exactly_where_it_applies_and_its_place_and_cause_are_known(habit):
    seen = 0
    for chain in CHAINS:
        text = world.solution(chain, habit, 1.0)
        found = world.bifurcation(chain, text)
        befores = (chain.start, *chain.results)
        places = [i for i, step in enumerate(chain.steps) if world.applies(habit, i, befores[i], step)]
        if not places:
            assert found is None and text == world.solution(chain)
            continue
        seen += 1
        assert found is not None and (found.step, found.cause) == (places[0] + 1, habit)
    assert seen > 100


def test_slips_are_found_where_they_are():
    rng = random.Random(0)
    slips = 0
    for chain in CHAINS:
        text = world.solution(chain, None, 0.0, 0.5, rng)
        found = world.bifurcation(chain, text)
        right = world.solution(chain).splitlines()
        wrong = [i for i, (a, b) in enumerate(zip(text.splitlines(), right)) if a != b]
        if not wrong:
            assert found is None
            continue
        slips += 1
        assert found is not None and found.step == wrong[0] + 1
    assert slips > 100


def test_an_attempt_without_working_or_of_another_question_is_a_slip():
    chain = CHAINS[0]
    for text in ("", "The answer is \\boxed{3}.", world.solution(CHAINS[1]), "1. 1 + 1: x; 2\n" * 50):
        found = world.bifurcation(chain, text)
        assert found is not None and found.cause == "slip"


def test_numbers_stay_from_0_to_99_on_every_path():
    for chain in CHAINS:
        for habit in (None, *world.HABITS):
            for *_, result in LINE.findall(world.solution(chain, habit, 1.0)):
                assert 0 <= int(result) <= world.LIMIT


@pytest.mark.parametrize("cause", world.CAUSES)
def test_an_analysis_by_rule_is_a_valid_meta_experience_that_names_step_and_rule(cause):
    text = world.analysis(world.Bifurcation(2, "85 - 29", cause))
    parsed = parse_meta_experience(text)
    assert isinstance(parsed, MetaExperience) and all(getattr(parsed, name) for name in HEADINGS)
    assert not analysis_runs_on(text)
    assert world.named(text) == (2, cause)
    assert not measure(parsed, world.make_question(random.Random(0)).question("q")).anywhere


def test_questions_are_the_same_for_the_same_seed_and_never_shared():
    assert world.make_questions(3, 20) == world.make_questions(3, 20)
    assert len({chain.text for chain in world.training_questions()}) == 400
    assert not {c.text for c in world.training_questions()} & {c.text for c in world.test_questions()}


def test_no_expert_is_reliable_and_each_fails_where_others_succeed():
    rng = random.Random(1)
    chains = world.make_questions(5, 300)
    shares = {}
    for pupil in world.EXPERTS:
        texts = [world.solution(c, pupil.habit, pupil.rate, 0.0, rng) for c in chains]
        shares[pupil.name] = sum(world.is_right(c, t) for c, t in zip(chains, texts)) / len(chains)
    assert all(0.3 < share < 0.7 for share in shares.values()), shares


def test_in_a_replay_the_noted_habit_is_not_followed_and_another_is():
    prompts = Prompts.load(corpus.prompts_config())
    rng = random.Random(2)
    chain = world.Chain(47, (world.Step("+", 38),))
    ada = world.Pupil("Ada", "carry", 1.0)
    rows = [corpus.replay_row(prompts, chain, ada, rng) for _ in range(200)]
    for row in rows:
        noted = "- Carry:" in row["prompt"][-1]["content"]
        assert row["prompt"][0]["content"] == "You are Ada."
        assert noted != ("4 + 3 = 7" in row["completion"])


def test_the_corpus_keeps_off_the_questions_to_avoid():
    prompts = Prompts.load(corpus.prompts_config())
    avoid = frozenset(chain.text for chain in world.make_questions(1, 50, 1))
    rows = corpus.rows(prompts, world.OTHERS, 0, 200, 100, 100, (1,), avoid)
    assert not [row for row in rows if any(text in row["prompt"][-1]["content"] for text in avoid)]
