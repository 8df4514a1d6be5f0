"""The objective: requests in two waves, retention, final weights, records, metrics, determinism."""

from dataclasses import replace

import pytest

from meml_mel.mel.objective import MetaExperienceConfig, MetaExperienceObjective, distil
from meml_mel.mel.records import RECORD_FIELDS
from meml_mel.prompts.library import load_template
from meml_mel.rlvr.objective import Completion, StepContext
from meml_mel.rlvr.records import schema
from meml_mel.rlvr.rollouts import ScoredBatch
from tests.mel.analyses import PLAIN, F, H, R
from tests.mel.mel_batches import (
    BROKEN,
    PROMPTS,
    WRONG,
    Scripted,
    analysis,
    replay_by,
    run,
    scored,
    wrong_of,
)


def weights(outcome) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for example in outcome.examples:
        found.setdefault(example.question_id, []).append(example.weight)
    return found


FOUR = [
    scored("q1", nameless="RWW"),  # two pairs, both retained
    scored("q2", nameless="RWW"),  # two pairs, one retained
    scored("q3", nameless="RW"),  # one pair, not retained
    scored("q4", nameless="RR"),  # no pair
]
RETAINED = {"<q1/nameless/1>", "<q1/nameless/2>", "<q2/nameless/1>"}


def test_weights_over_questions():
    """c/(Q n_q), Q = 4, c = 1.5: q1 1.5/8 twice, q2 1.5/4; Q counts questions without pairs too (Eq. 7 line 2)."""
    outcome = run(FOUR, replay_by(RETAINED), pairs_per_question="all", coefficient=1.5)
    assert weights(outcome) == {"q1": [0.1875, 0.1875], "q2": [0.375]}


def test_weights_over_kept():
    """c/N, N = 3 retained in the step, c = 1.5 (Eq. 7 line 1)."""
    outcome = run(FOUR, replay_by(RETAINED), pairs_per_question="all", coefficient=1.5, normalize="kept")
    assert weights(outcome) == {"q1": [0.5, 0.5], "q2": [0.5]}


def test_q_counts_questions_not_rows_nor_the_gradable_alone():
    """Two questions under three experts, one of them ungradable: Q is 2, a single retained one weighs 1/2."""
    questions = [scored("q1", a="R", b="W", c="R"), scored("q2", a="U", b="U", c="U")]
    assert weights(run(questions)) == {"q1": [0.5]}


def test_nothing_retained_gives_no_example_and_no_division_by_zero():
    for normalize in ("questions", "kept"):
        outcome = run(FOUR, replay_by(set()), normalize=normalize)
        assert outcome.examples == [] and outcome.metrics["retained"] == 0


def test_all_analyses_go_out_in_one_call_and_all_replays_in_one_more():
    generate = Scripted()
    run(FOUR, generate, pairs_per_question="all")
    assert [[r.phase for r in call] for call in generate.calls] == [["analysis"] * 5, ["replay"] * 5]
    assert all(r.grade_for is None for r in generate.requests("analysis"))
    assert [r.grade_for.id for r in generate.requests("replay")] == ["q1", "q1", "q2", "q2", "q3"]


def test_the_target_is_the_analysis_as_sampled_under_its_own_prompt():
    """NLL(M* | C_retro): C_retro is the very prompt that the analysis was sampled from (Eq. 7)."""
    generate = Scripted()
    (example,) = run([scored("q", nameless="RW")], generate).examples
    (request,) = generate.requests("analysis")
    assert example.prompt == request.prompt
    assert example.target_ids == analysis(request).token_ids
    assert example.objective == "meta_experience" and example.target_text is None


def test_with_experts_the_analysis_has_no_expert_and_the_replay_has_the_one_that_was_wrong():
    generate = Scripted()
    run([scored("q", careful="RR", hasty="WW")], generate)
    (asked,), (replayed,) = generate.requests("analysis"), generate.requests("replay")
    assert [m["role"] for m in asked.prompt] == ["user"] and "You are" not in asked.prompt[0]["content"]
    assert replayed.prompt[0] == {"role": "system", "content": "You are hasty."}
    assert replayed.prompt[1]["content"].index("a sign was lost") < replayed.prompt[1]["content"].index(
        "The problem q?"
    )


def test_without_experts_the_replay_has_no_system_message():
    generate = Scripted()
    run([scored("q", nameless="RW")], generate)
    assert [m["role"] for m in generate.requests("replay")[0].prompt] == ["user"]


def test_a_replay_may_read_the_heuristics_alone():
    generate = Scripted()
    run([scored("q", nameless="RW")], generate, replay_context="heuristics_only")
    told = generate.requests("replay")[0].prompt[0]["content"]
    assert H in told and "a sign was lost" not in told and "I rushed" not in told


def test_the_order_of_the_attempts_is_an_option():
    for order, first in (("wrong_first", "WRONG"), ("right_first", "RIGHT")):
        generate = Scripted()
        run([scored("q", nameless="RW")], generate, order=order)
        told = generate.requests("analysis")[0].prompt[0]["content"]
        positions = {v: told.index(f"[Attempt with a {v} answer]") for v in ("RIGHT", "WRONG")}
        assert min(positions, key=positions.__getitem__) == first


COUNTED = {
    "analysis_prompt_too_long": "prompt_too_long",
    "analysis_truncated": "truncated",
    "analysis_run_on": "run_on",
    "invalid_format": "invalid_format",
}


@pytest.mark.parametrize("exclusion", BROKEN)
def test_a_bad_analysis_is_dropped_counted_and_never_replayed(exclusion):
    generate = Scripted(analyse=lambda request: BROKEN[exclusion])
    outcome = run([scored("q", nameless="RW")], generate)
    assert outcome.examples == [] and generate.requests("replay") == []
    assert outcome.metrics[COUNTED[exclusion]] == 1 and outcome.metrics["retained"] == 0
    (record,) = outcome.records
    assert record["exclusion"] == exclusion and not record["valid"] and not record["retained"]
    assert record["missing"] == ("heuristics" if exclusion == "invalid_format" else None)


def test_an_analysis_that_copies_the_instruction_is_refused_quoting_the_attempts_is_not():
    """A 135M model, asked for the sections, begins them with the very words that describe them."""
    asked = load_template("analyse", "analyse.v1").source
    described = asked.split("## 3. Reflection\n")[1].split("\n")[0]
    echo = PLAIN.replace(R, described)
    generate = Scripted(analyse=lambda request: Completion(echo, (1,), "stop"))
    (record,) = run([scored("q", nameless="RW")], generate).records
    assert record["exclusion"] == "invalid_format" and record["missing"] == "reflection"
    assert record["format_reason"] == "section '3. Reflection' repeats the instruction"
    long = scored(
        "with a long name, so that quoting it takes more characters than any accident would", nameless="RW"
    )
    quoting = PLAIN.replace(F, f"{long.question.problem} was misread.")
    generate = Scripted(analyse=lambda request: Completion(quoting, (1,), "stop"))
    assert run([long], generate).metrics["retained"] == 1


@pytest.mark.parametrize(
    ("replay", "exclusion"),
    [
        (Completion("r", (1,), "stop", WRONG), "replay_wrong"),
        (Completion("r", (1,), "length", replace(WRONG, reason="truncated")), "replay_wrong"),
        (Completion("", (), "prompt_too_long"), "replay_prompt_too_long"),
    ],
)
def test_it_is_kept_only_if_the_replay_is_right(replay, exclusion):
    outcome = run([scored("q", nameless="RW")], Scripted(replay=lambda request: replay))
    (record,) = outcome.records
    assert outcome.examples == [] and record["exclusion"] == exclusion
    assert record["valid"] and record["weight"] is None
    assert record["replay_reason"] == (replay.grade.reason if replay.grade else None)


def test_a_replay_without_a_grade_is_an_error():
    with pytest.raises(ValueError, match="grade"):
        run([scored("q", nameless="RW")], Scripted(replay=lambda request: Completion("r", (1,), "stop")))


def stating(section: str):
    """An analysis whose section states the gold answer 97."""

    def analyse(request):
        text = PLAIN.replace(f"## {section}\n", f"## {section}\nThe result is 97. ")
        return Completion(text, (1, 2, 3), "stop")

    return analyse


@pytest.mark.parametrize(
    ("section", "context", "dropped"),
    [
        ("1. Failure point", "full", True),
        ("1. Failure point", "heuristics_only", False),
        ("4. Heuristics", "full", True),
        ("4. Heuristics", "heuristics_only", True),
        ("3. Reflection", "heuristics_only", False),
    ],
)
def test_a_leak_is_always_measured_and_dropped_on_request_where_the_replay_would_read_it(
    section, context, dropped
):
    for drop_leaked in (False, True):
        generate = Scripted(analyse=stating(section))
        outcome = run([scored("q", nameless="RW")], generate, drop_leaked=drop_leaked, replay_context=context)
        early = section[0] in "12"
        assert outcome.metrics["leak_rate"] == 1
        assert (outcome.metrics["leak_rate_specific"], outcome.metrics["leak_rate_general"]) == (
            early,
            not early,
        )
        gone = drop_leaked and dropped
        assert len(outcome.examples) == len(generate.requests("replay")) == (0 if gone else 1)
        assert outcome.records[0]["exclusion"] == ("leaked" if gone else None)
        assert outcome.records[0]["valid"]
        assert outcome.metrics["retained_leaked"] == (0 if gone else 1)


def test_metrics_of_a_step_by_hand():
    outcome = run(FOUR, replay_by(RETAINED), pairs_per_question="all")
    metrics = outcome.metrics
    expected = {
        "mixed_questions": 3, "pairs": 5, "pairs_across_experts": 0, "prompt_too_long": 0, "truncated": 0,
        "analyses_valid": 5, "valid_rate": 1.0, "replays": 5, "replay_right": 3, "replay_right_rate": 0.6,
        "retained": 3, "retention_rate": 0.6, "questions_with_retained": 2, "leak_rate": 0.0,
        "nll_tokens": 18,  # three targets of six ids
    }  # fmt: skip
    assert {name: metrics[name] for name in expected} == expected
    assert all(isinstance(value, float) for value in metrics.values())


def test_retention_is_over_the_analyses_that_were_generated():
    """Of four pairs one prompt was too long, one analysis was cut, one replay failed: 1 of 3 (Fig. 9)."""

    def analyse(request):
        bad = {"<q/nameless/1>": "analysis_prompt_too_long", "<q/nameless/2>": "analysis_truncated"}
        name = bad.get(wrong_of(request))
        return BROKEN[name] if name else analysis(request)

    generate = replay_by({"<q/nameless/3>"})
    generate.analyse = analyse
    metrics = run([scored("q", nameless="RWWWW")], generate, pairs_per_question="all").metrics
    assert metrics["retention_rate"] == 1 / 3 and metrics["valid_rate"] == 2 / 3
    assert (metrics["pairs"], metrics["prompt_too_long"], metrics["truncated"]) == (4, 1, 1)


def test_a_step_without_pairs_has_counts_but_no_rates():
    metrics = run([scored("q", nameless="RR")]).metrics
    assert metrics["pairs"] == 0 and metrics["mixed_questions"] == 0
    assert not [name for name in metrics if name.endswith("rate")]


def test_records_hold_what_made_each_candidate_and_fit_their_columns():
    import pyarrow as pa

    outcome = run(FOUR, replay_by(RETAINED), pairs_per_question="all", step=12)
    assert len(outcome.records) == 5
    assert all(list(record) == list(RECORD_FIELDS) for record in outcome.records)
    table = pa.Table.from_pylist(outcome.records, schema=schema(RECORD_FIELDS))
    assert table.num_rows == 5
    record = outcome.records[0]
    assert (record["step"], record["question_id"], record["problem"], record["answer"]) == (
        12, "q1", "The problem q1?", "97",
    )  # fmt: skip
    assert record["right_text"] == "<q1/nameless/0>" and record["right_sample"] == 0
    assert (record["analyse_prompt"], record["replay_prompt"], record["solve_prompt"]) == (
        "analyse.v1", "replay.v1", "solve.v1",
    )  # fmt: skip
    assert record["heuristics"] == H and record["valid"] and record["missing"] is None
    assert [r["retained"] for r in outcome.records] == [
        True,
        True,
        *sorted_flags(outcome.records[2:4]),
        False,
    ]
    assert [r["weight"] for r in outcome.records if r["retained"]] == [e.weight for e in outcome.examples]


def sorted_flags(records):
    """q2's two pairs come in a drawn order: exactly the one with the second rollout is retained."""
    flags = [record["wrong_text"] == "<q2/nameless/1>" for record in records]
    assert sorted(flags) == [False, True]
    return flags


MANY = [scored(f"q{i}", a="RRWW", b="RWWT") for i in range(12)]


def drawn(outcome):
    keys = ("question_id", "right_expert", "right_sample", "wrong_expert", "wrong_sample")
    return sorted(tuple(record[key] for key in keys) for record in outcome.records)


@pytest.mark.parametrize(
    "options", [{}, {"pairs_per_question": 3}, {"pairs_per_question": 2, "max_pairs_per_step": 7}]
)
def test_draws_depend_on_the_keys_and_not_on_the_order_of_calls(options):
    forward, backward = run(MANY, **options), run(MANY[::-1], **options)
    assert drawn(forward) == drawn(backward)
    objective = MetaExperienceObjective(MetaExperienceConfig(**options), PROMPTS)
    context = StepContext(seed=3, step=0, questions=len(MANY))
    objective.plan(ScoredBatch(0, tuple(MANY[5:] + MANY[:5])), context)
    one_by_one = []
    for question in MANY[7:] + MANY[:7]:  # a streaming scheduler: one question to its end, then the next
        examination = objective.examine(question, context)
        try:
            answers = next(examination)
            while True:
                answers = examination.send(Scripted()(answers))
        except StopIteration as done:
            one_by_one += [(question.question.id, c.pair.right, c.pair.wrong) for c in done.value]
    streamed = sorted((q, r.expert, r.sample, w.expert, w.sample) for q, r, w in one_by_one)
    assert streamed == drawn(forward)


def test_seed_step_and_question_each_change_the_draw():
    base = drawn(run(MANY))
    assert base == drawn(run(MANY))
    assert base != drawn(run(MANY, seed=4)) and base != drawn(run(MANY, step=1))
    assert len({pair[1:] for pair in base}) > 1


@pytest.mark.parametrize("cap", [1, 5, 12, 17, 1000])
def test_the_cap_holds_over_the_step_and_spreads_over_questions(cap):
    generate = Scripted()
    outcome = run(MANY, generate, pairs_per_question=2, max_pairs_per_step=cap)
    assert len(generate.requests("analysis")) == len(outcome.records) == min(cap, 24)
    per_question = [sum(r["question_id"] == q.question.id for r in outcome.records) for q in MANY]
    assert max(per_question) - min(per_question) <= 1


def test_a_cap_takes_each_question_its_own_first_draws():
    assert set(drawn(run(MANY, max_pairs_per_step=5))) < set(drawn(run(MANY)))


def test_a_cap_needs_the_plan_of_its_own_step():
    objective = MetaExperienceObjective(MetaExperienceConfig(max_pairs_per_step=1), PROMPTS)
    with pytest.raises(RuntimeError, match="plan"):
        next(objective.examine(MANY[0], StepContext(0, 0, 12)))
    objective.plan(ScoredBatch(0, tuple(MANY)), StepContext(0, 0, 12))
    with pytest.raises(RuntimeError, match="plan"):
        next(objective.examine(MANY[0], StepContext(0, 1, 12)))


def test_what_the_analysis_shows_of_a_rollout_can_be_cut():
    objective = MetaExperienceObjective(
        MetaExperienceConfig(), PROMPTS, cut=lambda text: text.replace("nameless", "X")
    )
    generate = Scripted()
    outcome = run([scored("q", nameless="RW")], generate, objective=objective)
    assert "<q/X/0>" in generate.requests("analysis")[0].prompt[0]["content"]
    assert outcome.examples[0].prompt == generate.requests("analysis")[0].prompt
    assert outcome.records[0]["right_text"] == "<q/X/0>"


# ---------------------------------------------------------------- configuration, distilling


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("coefficient", -1.0),
        ("coefficient", float("nan")),
        ("pairs_per_question", 0),
        ("pairs_per_question", "some"),
        ("max_pairs_per_step", 0),
        ("pair_choice", "longest"),
        ("normalize", "rows"),
        ("replay_context", "none"),
        ("order", "random"),
        ("warn_below_valid", 1.5),
        ("warn_after_steps", 0),
    ],
)
def test_a_senseless_option_is_refused_by_name(key, value):
    with pytest.raises(ValueError, match=key):
        MetaExperienceConfig(**{key: value})


def test_distilling_without_a_trainer_gives_the_same_records():
    options = {"pairs_per_question": 2, "max_pairs_per_step": 5}
    config = MetaExperienceConfig(**options)
    records = distil(FOUR, replay_by(RETAINED), config, PROMPTS, seed=3, model_revision="abc")
    assert records == [
        r | {"model_revision": "abc"} for r in run(FOUR, replay_by(RETAINED), **options).records
    ]
    assert {r["question_id"] for r in records if r["retained"]} <= {"q1", "q2"}


def test_distilling_leaves_ungradable_questions_out():
    assert distil([scored("q", nameless="UU")], Scripted(), MetaExperienceConfig(), PROMPTS) == []
