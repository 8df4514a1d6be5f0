"""One YAML per run: strict keys, types decided by the key, overrides, and a dump that reads back equal."""

from __future__ import annotations

import dataclasses
import runpy
import typing
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from meml_mel.config import ConfigError, RunConfig, load_config, parse_command_line
from meml_mel.config.coerce import Plain, coerce, untyped
from meml_mel.config.command_line import parse_overrides
from meml_mel.config.run import from_mapping
from meml_mel.config.yaml_io import read_yaml, to_yaml

MINIMAL = """\
model_name_or_path: some/model
output_dir: runs/test
data:
  path: questions.jsonl
"""
EXPERTS = """\
experts:
  - name: E0
    system_prompt: |
      You are careful.
      Check each step.
  - name: E1
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def load(write):
    """The minimal config with more lines, and overrides."""

    def load(more: str = "", *overrides: str, stage="rl") -> RunConfig:
        return load_config(write(MINIMAL + more), overrides, stage=stage)

    return load


@pytest.fixture
def refused(load):
    """The message with which lines or overrides are refused."""

    def refused(more: str = "", *overrides: str, stage="rl") -> str:
        with pytest.raises(ConfigError) as error:
            load(more, *overrides, stage=stage)
        return str(error.value)

    return refused


# -- files ---------------------------------------------------------------------------------------------------


def test_a_trl_users_flat_yaml_works_and_defaults_are_trls(load):
    from trl import GRPOConfig

    config = load("learning_rate: 1e-5\nnum_generations: 4\nreport_to: [wandb]\nbf16: false\nuse_cpu: true\n")
    built = GRPOConfig(**config.trl)
    plain = GRPOConfig(
        output_dir="runs/test",
        learning_rate=1e-5,
        num_generations=4,
        report_to=["wandb"],
        bf16=False,
        use_cpu=True,
    )
    assert built.to_dict() == plain.to_dict()


def test_model_keys_go_to_modelconfig(load):
    from trl import ModelConfig

    config = load("use_peft: true\nlora_r: 8\nlora_target_modules: all-linear\n")
    model = ModelConfig(**config.model)
    assert (model.use_peft, model.lora_r) == (True, 8)
    assert model.lora_target_modules == "all-linear"
    assert "lora_r" not in config.trl


def test_an_unpinned_model_is_the_main_branch(load):
    assert load("model_revision: null\n").model["model_revision"] == "main"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("save_strategy: no\n", ("save_strategy", "no")),  # false in YAML 1.1
        ("run_name: 1e5\n", ("run_name", "1e5")),
        ("run_name: 0123\n", ("run_name", "0123")),
        ("hub_revision: 12e4567\n", ("hub_revision", "12e4567")),
        ("learning_rate: 1e-1\n", ("learning_rate", 0.1)),  # text in YAML 1.1
        ("learning_rate: '1e-1'\n", ("learning_rate", 0.1)),
        ("max_steps: 1e3\n", ("max_steps", 1000)),
        ("seed: '7'\n", ("seed", 7)),
        ("bf16: 'true'\n", ("bf16", True)),
        ("bf16: null\n", ("bf16", None)),
        ("epsilon_high:\n", ("epsilon_high", None)),
        ("report_to: none\n", ("report_to", "none")),
        (
            "generation_kwargs: {min_p: 1e-1, stop: ['1']}\n",
            ("generation_kwargs", {"min_p": 0.1, "stop": ["1"]}),
        ),
        ("generation_kwargs: '{\"min_p\": 0.1}'\n", ("generation_kwargs", '{"min_p": 0.1}')),
    ],
)
def test_the_keys_type_decides_what_a_scalar_is(load, text, expected):
    key, value = expected
    found = load(text).trl[key]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("learning_rate: fast\n", ["learning_rate", "'fast'", "a number"]),
        ("num_generations: 2.5\n", ["num_generations", "'2.5'", "a whole number"]),
        ("seed: true\n", ["seed", "'true'", "a whole number"]),
        ("bf16: maybe\n", ["bf16", "'maybe'", "true or false", "null"]),
        ("learning_rate: .nan\n", ["learning_rate", "a number"]),
        ("run_name: [a, b]\n", ["run_name", "text"]),
        ("dtype: int4\n", ["dtype", "'int4'", "'bfloat16'"]),
        ("save_strategy: stpes\n", ["save_strategy", "'stpes'", "did you mean 'steps'"]),
        ("grading: {timeout: soon}\n", ["grading.timeout", "'soon'", "a number"]),
        ("grading: {timeout: 0}\n", ["grading", "timeout 0.0", "above 0"]),
        ("grading: 3\n", ["grading", "a mapping", "'3'"]),
        ("experts: [{system_prompt: x}]\n", ["experts.0", "'name'", "must be given"]),
        ("algorithm: {advantage: rlo}\n", ["algorithm.advantage", "'rlo'", "did you mean 'rloo'"]),
        ("objectives: {mutual_learning: true}\n", ["objectives.mutual_learning", "{}"]),
        ("objectives: {mutual_learning:}\n", ["objectives.mutual_learning", "{}"]),
    ],
)
def test_a_wrong_type_names_key_value_and_expected_type(refused, text, parts):
    message = refused(text)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("value", "hint"), [(True, int), (True, float), (1, bool), (1, str), ([1], int), (None, int)]
)
def test_typed_values_are_held_to_their_type_too(value, hint):
    with pytest.raises(ConfigError, match=r"^key: "):
        coerce(value, hint, "key")


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("lerning_rate: 1\n", "'lerning_rate'", "'learning_rate'"),
        ("expert: []\n", "'expert'", "'experts'"),
        ("objectives: {meta_experiense: {}}\n", "'objectives.meta_experiense'", "'meta_experience'"),
        (
            "objectives: {meta_experience: {coefficent: 1}}\n",
            "'objectives.meta_experience.coefficent'",
            "'coefficient'",
        ),
        ("sampling: {replay: {temp: 1}}\n", "'sampling.replay.temp'", "'temperature'"),
        ("experts: [{nam: x}]\n", "'experts.0.nam'", "'name'"),
        ("hub: {private: true}\n", "'hub'", ""),
    ],
)
def test_an_unknown_key_at_any_level_names_the_nearest(refused, text, key, nearest):
    message = refused(text)
    assert message.startswith("unknown key " + key)
    assert nearest in message


def test_a_key_given_twice_is_an_error_with_both_lines(refused):
    message = refused("seed: 1\nseed: 2\n")
    assert "'seed'" in message and "line 6" in message and "line 5" in message
    assert "given twice" in refused("grading:\n  workers: 1\n  workers: 2\n")


@pytest.mark.parametrize(
    "text", ["[1, 2]", "a: [1", "a: *nowhere", "x: !!python/object/apply:os.getcwd []", "? [a]\n: 1"]
)
def test_what_is_no_mapping_of_words_is_refused_with_the_file(write, text):
    path = write(text)
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        load_config(path)


def test_anchors_and_merges_work(load):
    config = load(
        "sampling:\n  analysis: &a {top_p: 0.9, max_tokens: 7}\n  replay: {<<: *a, max_tokens: 9}\n"
    )
    assert (config.sampling.replay.top_p, config.sampling.replay.max_tokens) == (0.9, 9)


def test_sections_and_keys_of_the_other_stage_say_so(refused):
    assert "belongs to the sft stage" in refused("sft: {keep_only_correct: false}\n")
    assert "belongs to the sft stage" in refused("packing: true\n")
    assert "belongs to the rl stage" in refused("objectives: {}\n", stage="sft")
    assert "belongs to the rl stage" in refused("num_generations: 8\n", stage="sft")


def test_keys_of_trls_scripts_say_where_they_went(refused):
    assert "data.path" in refused("dataset_name: openai/gsm8k\n")
    assert "grading" in refused("reward_funcs: [accuracy]\n")


# -- sections ------------------------------------------------------------------------------------------------


def test_an_objective_is_on_when_named_and_off_when_absent_or_null(load):
    assert load().objectives == {}
    assert load("objectives: {}\n").objectives == {}
    config = load(EXPERTS + "objectives:\n  meta_experience: {}\n  mutual_learning: {coefficient: 0.3}\n")
    assert list(config.objectives) == ["mutual_learning", "meta_experience"]
    assert config.objectives["mutual_learning"].coefficient == 0.3
    assert config.objectives["meta_experience"].coefficient == 1.0  # c_mel = 1, MEL Eq. 9-10
    off = load("objectives: {meta_experience: {}}\n", "--objectives.meta_experience", "null")
    assert off.objectives == {}


def test_phases_default_to_2048_and_to_the_rollouts_limit(load):
    config = load("max_completion_length: 300\nsampling: {analysis: {temperature: 0.8}}\n")
    assert (config.sampling.analysis.max_tokens, config.sampling.replay.max_tokens) == (2048, 300)
    assert config.sampling.analysis.temperature == 0.8


def test_scale_rewards_follows_the_estimator_unless_it_contradicts(load, refused):
    assert load("algorithm: {advantage: reinforce_pp}\n").trl["scale_rewards"] == "batch"
    assert load().trl["scale_rewards"] == "group"  # TRL's own
    message = refused("algorithm: {advantage: rloo}\nscale_rewards: group\n")
    assert "scale_rewards 'group' contradicts advantage 'rloo'" in message


def test_experts_need_different_names(refused):
    assert "E0" in refused("experts: [{name: E0}, {name: E0}]\n")


# -- keys that are ours --------------------------------------------------------------------------------------


TOKEN = "hf_" + "abcdefghij" * 3


@pytest.mark.parametrize(
    ("more", "overrides"),
    [
        (f"hub_token: {TOKEN}\n", ()),
        ("hub_token: anything\n", ()),
        ("", ("--hub_token", TOKEN)),
        ("", (f"--hub_token={TOKEN}",)),
        (f"model_init_kwargs: {{token: {TOKEN}}}\n", ()),
        (f'model_init_kwargs: \'{{"token": "{TOKEN}"}}\'\n', ()),
        ("", ("--model_init_kwargs", "{token: secret}")),
        (f"run_name: {TOKEN}\n", ()),
        (f"report_to: [{TOKEN}]\n", ()),
    ],
)
def test_a_token_is_refused_unseen_with_the_way_to_do_it(refused, more, overrides):
    message = refused(more, *overrides)
    assert "hf auth login" in message and "HF_TOKEN" in message
    assert TOKEN not in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("push_to_hub: true\n", ["push_to_hub", "training_args.bin"]),
        ("eval_strategy: steps\n", ["eval_strategy", "no evaluation during training"]),
        ("remove_unused_columns: true\n", ["remove_unused_columns"]),
        ("reward_weights: [0.5, 0.5]\n", ["reward_weights", "one reward"]),
        ("auto_find_batch_size: true\n", ["auto_find_batch_size"]),
        ("max_completion_length: null\n", ["max_completion_length"]),
        ("num_generations: 1\n", ["num_generations", "at least 2"]),
        (
            "generation_batch_size: 8\nsteps_per_generation: 1\n",
            ["generation_batch_size and steps_per_generation"],
        ),
        ("prompts: {solve: nowhere}\n", ["prompts", "nowhere"]),
        ("algorithm: {skip_zero_advantage_rows: true}\nbeta: 0.1\n", ["skip_zero_advantage_rows", "beta"]),
        ("algorithm: {advantage: rft}\nnum_iterations: 2\n", ["advantage 'rft'"]),
        (
            "objectives: {hard_examples: {trigger: expert}}\nnum_generations: 4\n",
            ["hard_examples", "threshold is 6", "4 responses"],
        ),
        (
            "objectives: {meta_experience: {}}\nsteps_per_generation: 4\ngradient_accumulation_steps: 2\n",
            ["steps_per_generation: 4", "gradient_accumulation_steps 2"],
        ),
    ],
)
def test_contradictions_are_refused_with_a_reason(refused, text, parts):
    message = refused(text)
    assert all(part in message for part in parts), message


def test_all_contradictions_are_told_at_once(refused):
    message = refused("push_to_hub: true\nremove_unused_columns: true\nnum_generations: 1\n")
    assert len(message.splitlines()) == 3


def test_steps_per_generation_may_differ_without_objectives(load):
    config = load("steps_per_generation: 4\ngradient_accumulation_steps: 2\nsave_steps: 10\n")
    assert config.trl["steps_per_generation"] == 4


@pytest.mark.parametrize(
    ("save_steps", "per_generation", "accumulation", "iterations", "fits"),
    [
        (500, 4, 4, 1, True),  # a generation serves one step: any step will do
        (3, 2, 4, 1, True),  # two generations a step
        (6, 4, 1, 2, False),  # a generation serves 8 steps
        (16, 4, 1, 2, True),
        (5, 4, 2, 1, False),  # serves 2 steps
        (6, 4, 2, 1, True),
        (2, 3, 2, 1, False),  # serves 1.5 steps: every third step is a boundary
        (3, 3, 2, 1, True),
        (0.1, 4, 2, 1, False),  # a fraction of the run
        (0.1, 2, 2, 1, True),
    ],
)
def test_saves_fall_on_generation_boundaries(
    load, save_steps, per_generation, accumulation, iterations, fits
):
    text = (
        f"save_steps: {save_steps}\nsteps_per_generation: {per_generation}\n"
        f"gradient_accumulation_steps: {accumulation}\nnum_iterations: {iterations}\n"
    )
    if fits:
        load(text)
        return
    with pytest.raises(ConfigError, match="save_steps"):
        load(text)
    load(text + "save_strategy: epoch\n")  # an epoch is a whole number of generations


def test_the_nearest_save_steps_are_named(refused):
    message = refused("save_steps: 13\nsteps_per_generation: 4\nnum_iterations: 2\n")
    assert message.endswith("Nearest: 8 or 16")


# -- overrides -----------------------------------------------------------------------------------------------


def test_overrides_reach_every_level(load):
    config = load(
        EXPERTS,
        "--learning_rate", "1e-5", "--objectives.meta_experience.coefficient", "0.5", "--experts.0.name=x",
        "--experts.2", "{name: E2, system_prompt: 'a: b'}", "--bf16", "false", "--gradient_checkpointing",
        "--lora_target_modules", "q_proj", "v_proj", "--report_to=[wandb, tensorboard]", "--data.max_questions=5",
    )  # fmt: skip
    assert config.trl["learning_rate"] == 1e-5
    assert config.objectives["meta_experience"].coefficient == 0.5
    assert [e.name for e in config.experts] == ["x", "E1", "E2"]
    assert config.experts[2].system_prompt == "a: b"
    assert config.trl["gradient_checkpointing"] is True and config.trl["bf16"] is False
    assert config.model["lora_target_modules"] == ["q_proj", "v_proj"]
    assert config.trl["report_to"] == ["wandb", "tensorboard"]
    assert config.data is not None and config.data.max_questions == 5


def test_a_text_override_is_taken_as_written(load):
    for text in ("[INST] solve {x}", "a: b # c", "- x", "1e-5", "{x}", "it's"):
        config = load(EXPERTS, "--experts.0.system_prompt", text)
        assert config.experts[0].system_prompt == text


def test_a_later_override_wins_and_negative_numbers_are_values(load):
    assert load("", "--seed", "1", "--seed", "2").trl["seed"] == 2
    assert load("", "--max_steps", "-1").trl["max_steps"] == -1


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (("--learning_rat", "1"), "did you mean 'learning_rate'"),  # no abbreviations
        (("--experts.5.name", "x"), "the list has 2 entries"),
        (("--experts.one.name", "x"), "'one' is no number"),
        (("--seed.x", "1"), "no section"),
        (("--data..path", "x"), "empty"),
        (("stray",), "unexpected 'stray'"),
        (("--seed=1", "2"), "unexpected '2'"),
        (("--learning_rate", "1e-5", "stray"), "learning_rate"),
        (("--seed",), "seed"),  # a key without a value is `true`, and a seed is no switch
    ],
)
def test_bad_overrides_are_refused(refused, overrides, part):
    assert part in refused(EXPERTS + "seed: 1\n", *overrides)


def test_config_is_found_in_both_spellings_and_switches_are_taken_out():
    for words in (["--config", "a/b"], ["--config=a/b"]):
        line = parse_command_line([*words, "--dry-run", "--num-processes=8", "--seed", "1", "--bf16"])
        assert (line.config, line.dry_run, line.num_processes) == ("a/b", True, 8)
        assert line.overrides == ("--seed", "1", "--bf16")
    assert parse_command_line(["-h"]).help


@pytest.mark.parametrize(
    "argv",
    [["--config"], ["--config", "a", "--config", "b"], ["--num-processes", "0"], ["--dry-run", "x"], ["x"]],
)
def test_bad_command_lines_are_refused(argv):
    with pytest.raises(ConfigError):
        parse_command_line(argv)


# -- round trips ---------------------------------------------------------------------------------------------


def test_a_dump_reads_back_equal_with_the_same_digest(load, tmp_path):
    config = load(
        EXPERTS + "objectives: {mutual_learning: {}, hard_examples: {}, meta_experience: {}}\n"
        "algorithm: {advantage: rloo}\ndecontaminate: {against: [{path: a.jsonl}]}\n"
    )
    config.dump(tmp_path / "resolved.yaml")
    again = load_config(tmp_path / "resolved.yaml")
    assert again == config
    assert again.digest() == config.digest()
    again.dump(tmp_path / "twice.yaml")
    assert (tmp_path / "twice.yaml").read_text() == (tmp_path / "resolved.yaml").read_text()


def test_a_dump_writes_every_default_and_any_yaml_reader_reads_it(load, tmp_path):
    config = load("save_strategy: no\nlearning_rate: 1e-6\n")
    config.dump(tmp_path / "resolved.yaml")
    plain = yaml.safe_load((tmp_path / "resolved.yaml").read_text())
    assert plain["save_strategy"] == "no" and plain["learning_rate"] == 1e-6
    assert plain["num_generations"] == 8 and plain["grading"] == {"workers": 2, "timeout": 5.0}
    assert "hub_token" not in plain and "sft" not in plain
    assert plain == config.resolved()


def test_an_sft_config_round_trips(load, tmp_path):
    more = "max_length: 512\nexperts: [{name: E0, solutions: {ground_truth: true}}]\nsft: {keep_only_correct: false}\n"
    config = load(more, stage="sft")
    config.dump(tmp_path / "resolved.yaml")
    assert load_config(tmp_path / "resolved.yaml", stage="sft") == config
    assert "objectives" not in config.resolved()


def test_the_digest_tells_what_is_learnt_and_not_where_or_how_it_is_told(load):
    base = load()
    for same in (
        "--output_dir=elsewhere",
        "--logging_steps=5",
        "--resume_from_checkpoint=x",
        "--report_to=none",
    ):
        assert load("", same).digest() == base.digest()
    for other in (
        "--seed=1",
        "--learning_rate=2e-6",
        "--objectives.meta_experience={}",
        "--data.path=b.jsonl",
    ):
        assert load("", other).digest() != base.digest()


# What YAML of one version or the other reads as something else than text.
AMBIGUOUS = ["null", "~", "", "no", "true", "1e-1", "1", ".inf", "010", "0x1f", "2024-01-01", "1:30"]
AWKWARD = [
    "[a]",
    "{a: 1}",
    "- x",
    "a: b",
    "# x",
    "'",
    '"',
    "a\nb\n",
    " a",
    "a ",
    "<<",
    "=",
    "!x",
    "&x",
    "*x",
    "%",
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [*AMBIGUOUS, *AWKWARD, "\x85", "\u2028", "\ufeff"]
)
finite = st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | st.integers() | finite | texts
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(texts, trees, max_size=4))
def test_written_yaml_reads_back_as_written(tree):
    assert untyped(read_yaml(to_yaml(tree), "test")) == tree


@dataclasses.dataclass(frozen=True)
class Everything:
    flag: bool
    count: int
    number: float
    text: str
    maybe: int | None
    maybe_text: str | None
    choice: Literal["a", "no", "null"]
    count_or_all: int | Literal["all"]
    words: tuple[str, ...]
    numbers: list[float]
    names: dict[str, int]
    word_or_words: str | list[str] | None


EVERYTHING = {
    "flag": st.booleans(),
    "count": st.integers(),
    "number": finite,
    "text": texts,
    "maybe": st.none() | st.integers(),
    "maybe_text": st.none() | texts,
    "choice": st.sampled_from(["a", "no", "null"]),
    "count_or_all": st.integers() | st.just("all"),
    "words": st.lists(texts).map(tuple),
    "numbers": st.lists(finite),
    "names": st.dictionaries(texts, st.integers()),
    "word_or_words": st.none() | texts | st.lists(texts),
}


@given(st.builds(Everything, **EVERYTHING))
def test_a_typed_section_survives_dump_and_load(section):
    raw = read_yaml(to_yaml(dataclasses.asdict(section) | {"words": list(section.words)}), "test")
    assert coerce(raw, Everything, "section") == section


@given(number=finite, count=st.integers(), flag=st.booleans())
def test_scalars_survive_the_command_line(number, count, flag):
    [(_, a), (_, b), (_, c)] = parse_overrides([f"--a={number!r}", f"--b={count}", f"--c={flag}"])
    if abs(number) != float("inf"):
        assert coerce(a, float, "a") == number
    assert coerce(b, int, "b") == count
    assert coerce(c, bool, "c") is flag


@settings(max_examples=25)
@given(
    learning_rate=st.floats(1e-9, 1),
    seed=st.integers(0, 2**31),
    prompt=texts.filter(bool),
    steps=st.integers(1, 99),
)
def test_a_run_survives_dump_and_load(tmp_path_factory, learning_rate, seed, prompt, steps):
    raw = {
        "model_name_or_path": "some/model",
        "output_dir": "runs/test",
        "data": {"path": prompt},
        "experts": [{"name": "E0", "system_prompt": prompt}],
        "objectives": {"meta_experience": {"coefficient": learning_rate}},
        "learning_rate": learning_rate,
        "seed": seed,
        "gradient_accumulation_steps": steps,
    }
    config = from_mapping(raw)
    path = tmp_path_factory.mktemp("dump") / "resolved.yaml"
    config.dump(path)
    assert load_config(path) == config


def test_every_flat_key_of_trl_can_be_written():
    """A type that the layer does not know would only show when a user writes that key."""
    from meml_mel.config.fields import flat_keys

    for stage in typing.get_args(typing.Literal["rl", "sft"]):
        for key in flat_keys(stage).values():
            assert key.coerce(key.default) == key.default
            if not isinstance(key.default, list | dict | type(None)) and key.default != "":
                assert key.coerce(Plain(key.default)) == key.default, key.name


def test_the_reference_of_all_keys_is_up_to_date():
    """docs/configuration.md is made from the dataclasses: python docs/generate_configuration.py."""
    script = Path(__file__).parents[1] / "docs" / "generate_configuration.py"
    made = runpy.run_path(str(script))["page"]()
    assert script.with_name("configuration.md").read_text() == made, "python docs/generate_configuration.py"
