"""The warning on a low yield: told once a rate, with one failing text and its reason, the same after a resume."""

import json
import logging

from meml_mel.mel.objective import MetaExperienceConfig, MetaExperienceObjective
from meml_mel.rlvr.objective import Completion
from tests.mel.mel_batches import BROKEN, PROMPTS, WRONG, Scripted, run, scored


def steps(objective, generate, count, first=0):
    for step in range(first, first + count):
        run([scored("q", nameless="RWW")], generate, objective=objective, step=step)


def test_a_low_valid_rate_is_told_once_with_a_failing_text_and_its_reason(caplog):
    objective = MetaExperienceObjective(MetaExperienceConfig(warn_after_steps=3), PROMPTS)
    generate = Scripted(analyse=lambda request: Completion("I like triangles.", (1,), "stop"))
    with caplog.at_level(logging.WARNING):
        steps(objective, generate, 2)
        assert objective.warnings == [] and not caplog.records
        steps(objective, generate, 4, first=2)
    (warning,) = objective.warnings
    assert len(caplog.records) == 1 and warning in caplog.text
    for part in (
        "0 of 3",
        "warn_below_valid: 0.1",
        "'q'",
        "'1. Failure point' is not there",
        "I like triangles.",
    ):
        assert part in warning


def test_a_low_retained_rate_shows_the_replay():
    objective = MetaExperienceObjective(MetaExperienceConfig(warn_after_steps=2), PROMPTS)
    steps(objective, Scripted(replay=lambda r: Completion("my replay text", (1,), "stop", WRONG)), 3)
    (warning,) = objective.warnings
    assert "warn_below_retained: 0.02" in warning and "my replay text" in warning and "different" in warning


def test_a_healthy_yield_and_steps_without_pairs_are_not_told():
    objective = MetaExperienceObjective(MetaExperienceConfig(warn_after_steps=1), PROMPTS)
    steps(objective, Scripted(), 5)
    run([scored("q", nameless="RR")], objective=objective, step=9)
    assert objective.warnings == []


def test_a_rate_that_falls_later_is_told():
    objective = MetaExperienceObjective(MetaExperienceConfig(warn_after_steps=3), PROMPTS)
    steps(objective, Scripted(), 50)
    steps(objective, Scripted(analyse=lambda request: BROKEN["analysis_truncated"]), 3, first=50)
    assert len(objective.warnings) == 1 and "max_tokens" in objective.warnings[0]


def test_a_share_of_zero_never_warns():
    objective = MetaExperienceObjective(
        MetaExperienceConfig(warn_below_valid=0, warn_below_retained=0), PROMPTS
    )
    steps(objective, Scripted(analyse=lambda request: BROKEN["invalid_format"]), 9)
    assert objective.warnings == []


def test_a_long_failing_text_is_shortened():
    objective = MetaExperienceObjective(MetaExperienceConfig(warn_after_steps=1), PROMPTS)
    steps(objective, Scripted(analyse=lambda request: Completion("x" * 50_000, (1,), "stop")), 1)
    assert len(objective.warnings[0]) < 3000 and "50000 characters" in objective.warnings[0]


def test_a_resumed_objective_warns_at_the_step_at_which_the_unbroken_one_does():
    def bad():
        return Scripted(analyse=lambda request: BROKEN["invalid_format"])

    config = MetaExperienceConfig(warn_after_steps=3)
    unbroken = MetaExperienceObjective(config, PROMPTS)
    steps(unbroken, bad(), 2)
    resumed = MetaExperienceObjective(config, PROMPTS)
    resumed.load_state_dict(json.loads(json.dumps(unbroken.state_dict())))
    steps(resumed, bad(), 1, first=2)
    steps(unbroken, bad(), 1, first=2)
    assert resumed.warnings == unbroken.warnings != []
    again = MetaExperienceObjective(config, PROMPTS)
    again.load_state_dict(json.loads(json.dumps(unbroken.state_dict())))
    steps(again, bad(), 3, first=3)
    assert again.warnings == []
