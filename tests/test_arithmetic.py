"""The dry run's numbers, against hand calculations, published parameter counts, and TRL's and the Trainer's own
counting."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meml_mel.config import ConfigError
from meml_mel.config.run import from_mapping
from meml_mel.train.arithmetic import (
    Launch,
    dry_run,
    make_report,
    read_launch,
    refuse_silent_data_parallel,
    render,
)
from meml_mel.train.batches import batch_plan
from meml_mel.train.footprint import ModelFacts, estimate_memory, facts_from_config, model_facts

TRL = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "num_iterations": 1,
    "max_steps": -1,
    "num_train_epochs": 1.0,
    "steps_per_generation": None,
    "generation_batch_size": None,
    "save_strategy": "no",
}
# The models' published config.json, the keys that count.
QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "max_position_embeddings": 32768,
}
SMOLLM2_135M = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}
QWEN25_MATH_15B = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "intermediate_size": 8960,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
}


def config(stage="rl", **more):
    base = {"model_name_or_path": "some/model", "output_dir": "runs/test", "data": {"path": "x.jsonl"}}
    return from_mapping({**base, **more}, stage)


# -- batches -------------------------------------------------------------------------------------------------


def test_mels_published_setting_is_one_update_of_128_questions_and_135_steps():
    """128 questions x 8 responses on 8 GPUs, one update a rollout batch, 17,398 questions."""
    plan = batch_plan({**TRL, "gradient_accumulation_steps": 16}, processes=8, questions=17_398)
    assert (plan.completions_per_step, plan.questions_per_step) == (1024, 128)
    assert plan.steps_per_generation_served == 1
    assert plan.whole_questions_on_ranks and plan.problems == ()
    assert plan.total_steps == 17_398 // 128 == 135
    assert any("118 of 17398 questions are left out" in note for note in plan.notes)  # 17398 - 135 * 128


def test_meml_counts_experts():
    """3 experts x 8 rollouts: 24 completions a question."""
    plan = batch_plan({**TRL, "gradient_accumulation_steps": 6}, experts=3, processes=1, questions=100)
    assert (plan.rollouts_per_question, plan.questions_per_step) == (24, 2)
    assert plan.total_steps == 50


@pytest.mark.parametrize(
    ("micro", "accumulation", "processes", "experts", "generations", "named"),
    [
        (
            8,
            3,
            1,
            2,
            8,
            ["= 24 completions", "2 experts x num_generations 8 = 16", "steps 2 or 4", "size 16"],
        ),
        (4, 1, 1, 0, 8, ["= 4 completions", "num_generations = 8", "accumulation_steps 2", "batch_size 8"]),
        (5, 3, 1, 3, 4, ["= 15 completions", "= 12", "accumulation_steps 12", "batch_size 4 or 8"]),
    ],
)
def test_a_batch_of_broken_questions_names_numbers_and_nearest_values(
    micro, accumulation, processes, experts, generations, named
):
    trl = {
        **TRL,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "num_generations": generations,
    }
    plan = batch_plan(trl, experts=experts, processes=processes)
    [problem] = plan.problems
    assert all(part in problem for part in named), problem


@given(
    micro=st.integers(1, 40),
    accumulation=st.integers(1, 40),
    processes=st.integers(1, 16),
    experts=st.integers(0, 5),
    generations=st.integers(2, 16),
)
def test_every_named_nearest_value_works(micro, accumulation, processes, experts, generations):
    trl = {
        **TRL,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "num_generations": generations,
    }
    plan = batch_plan(trl, experts=experts, processes=processes)
    fits = micro * accumulation * processes % (max(1, experts) * generations) == 0
    assert (plan.problems == ()) == fits
    if fits:
        return
    ways = plan.problems[0].split("Nearest: ")[1].split("; or ")
    assert len(ways) == 2
    for way in ways:
        key, *values = re.split(r" or | ", way)
        for value in values:
            assert batch_plan({**trl, key: int(value)}, experts=experts, processes=processes).problems == ()


@pytest.mark.parametrize(
    ("questions", "epochs", "accumulation", "per_generation"),
    [(20, 1.0, 2, None), (23, 2.0, 2, 4), (50, 1.5, 3, 2)],
)
def test_steps_are_what_trls_sampler_and_the_trainer_count(questions, epochs, accumulation, per_generation):
    """RepeatSampler's length through a DataLoader, divided as transformers' Trainer does."""
    from trl.trainer.utils import RepeatSampler

    trl = {
        **TRL,
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": per_generation,
        "num_iterations": 2,
        "num_train_epochs": epochs,
    }
    plan = batch_plan(trl, questions=questions)
    steps = per_generation or accumulation
    sampler = RepeatSampler(range(questions), 4, batch_size=4 * steps // 4, repeat_count=2 * steps, seed=0)
    batches = len(sampler) // (4 * steps)  # the DataLoader's batch holds one generation
    micro_steps = batches  # one per micro-step: each is repeated for every slice
    assert plan.steps_per_epoch == math.ceil(micro_steps / accumulation)
    assert plan.total_steps == math.ceil(epochs * plan.steps_per_epoch)


def test_max_steps_wins_over_epochs_and_too_few_questions_are_a_problem():
    assert batch_plan({**TRL, "max_steps": 7}, questions=100).total_steps == 7
    assert batch_plan({**TRL, "max_steps": 7}).total_steps == 7
    assert batch_plan(TRL).total_steps is None
    [problem] = batch_plan({**TRL, "gradient_accumulation_steps": 4}, questions=3).problems
    assert "3 questions" in problem and "4 of one generation" in problem


def test_whole_questions_on_a_rank_are_told_apart_from_spread_ones():
    spread = batch_plan({**TRL, "per_device_train_batch_size": 4}, processes=2)
    assert spread.problems == () and not spread.whole_questions_on_ranks
    [note] = spread.notes
    assert "spread over processes" in note and "2 micro-steps" in note
    whole = {**TRL, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    assert batch_plan(whole, processes=2).whole_questions_on_ranks


def test_a_generation_over_several_steps_is_told():
    plan = batch_plan({**TRL, "steps_per_generation": 4, "num_iterations": 2})
    assert plan.steps_per_generation_served == 8 and plan.questions_per_generation == 4
    assert any("8 optimizer steps" in note and "off-policy" in note for note in plan.notes)
    assert batch_plan({**TRL, "steps_per_generation": 4}, objectives=True).problems


def test_generation_batch_size_is_divided_with_the_real_number_of_processes():
    asked = {**TRL, "generation_batch_size": 64}
    assert batch_plan(asked, processes=8).steps_per_generation == 1
    assert batch_plan(asked, processes=4).steps_per_generation == 2
    assert "128" in batch_plan({**asked, "generation_batch_size": 100}, processes=8).problems[0]
    late = {**asked, "save_strategy": "steps", "save_steps": 3}
    assert batch_plan(late, processes=8).problems == ()
    assert "save_steps: 3" in batch_plan(late, processes=4).problems[0]


# -- models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "parameters"),
    [(QWEN3_8B, 8_190_735_360), (SMOLLM2_135M, 134_515_008), (QWEN25_MATH_15B, 1_543_714_304)],
)
def test_parameters_from_config_json_are_the_published_counts(published, parameters):
    assert facts_from_config(published, "test").parameters() == parameters


def test_a_real_small_models_count_is_torchs_own():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {**SMOLLM2_135M, "num_hidden_layers": 2, "hidden_size": 72, "vocab_size": 96, "head_dim": 8}
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in sizes.items() if k != "model_type"}))
    count = sum(p.numel() for p in model.parameters())
    assert facts_from_config(model.config.to_dict(), "test").parameters() == count


def test_facts_come_from_a_local_folder_or_are_unknown_and_never_from_the_network(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4096}')
    assert model_facts(str(tmp_path)).context == 4096
    assert model_facts(str(tmp_path)).parameters() is None
    nested = facts_from_config({"text_config": {"max_position_embeddings": 77}}, "test")
    assert nested.context == 77
    for name in ("nobody/nothing-here", "not a / hub : id"):
        facts = model_facts(name)
        assert facts.context is None and name in facts.source
    (tmp_path / "config.json").write_text("{")
    assert model_facts(str(tmp_path)).context is None


def test_memory_of_a_float32_model_by_hand():
    """SmolLM2-135M in float32, no gradient checkpointing: weights 4N, gradients 4N, AdamW 8N."""
    facts = facts_from_config(SMOLLM2_135M, "test")
    n = 134_515_008
    trl = {"bf16": False, "optim": "adamw_torch", "gradient_checkpointing": True}
    memory = estimate_memory(facts, {"dtype": "float32"}, trl, train_tokens=1000, cache_tokens=500)
    assert memory is not None
    assert (memory.parts["weights"], memory.parts["gradients"], memory.parts["optimizer"]) == (
        4 * n,
        4 * n,
        8 * n,
    )
    kept, layer = 30 * 576 * 1000 * 4, (10 * 576 + 4 * 1536) * 1000 * 4
    assert memory.parts["activations"] == kept + layer
    assert memory.parts["generation cache"] == 500 * 2 * 30 * 3 * 64 * 4
    backward = memory.parts["gradients"] + kept + layer + memory.parts["logits"]
    assert memory.peak == 12 * n + max(backward, memory.parts["generation cache"])


def test_sharding_divides_what_it_shards_and_lora_trains_little():
    facts = facts_from_config(QWEN3_8B, "test")
    trl = {"bf16": True, "optim": "adamw_torch_fused"}
    sizes = {}
    for sharding in ("none", "zero1", "zero2", "full"):
        memory = estimate_memory(
            facts, {"dtype": "bfloat16"}, trl, train_tokens=1, cache_tokens=0, processes=8, sharding=sharding
        )
        sizes[sharding] = memory.parts
    n = 8_190_735_360
    assert sizes["none"]["optimizer"] == 4 * n and sizes["zero1"]["optimizer"] == 4 * n / 8
    assert sizes["zero1"]["gradients"] == 2 * n and sizes["zero2"]["gradients"] == 2 * n / 8
    assert sizes["zero2"]["weights"] == 2 * n and sizes["full"]["weights"] == 2 * n / 8
    lora = {"dtype": "bfloat16", "use_peft": True, "lora_r": 16, "lora_target_modules": ["q_proj", "v_proj"]}
    memory = estimate_memory(facts, lora, trl, train_tokens=1, cache_tokens=0)
    # r * (in + out): q 4096 + 4096, v 4096 + 1024, 36 layers; float32, AdamW
    assert memory.parts["optimizer"] == 16 * 36 * (8192 + 5120) * 8


# -- the report ----------------------------------------------------------------------------------------------


def test_a_laptop_checks_a_recipe_for_eight_gpus_in_bf16(tmp_path):
    """GRPOConfig would refuse bf16 on this CPU, and divide by one process."""
    run = config(bf16=True, gradient_accumulation_steps=2, experts=[{"name": "a"}, {"name": "b"}])
    assert dry_run(run, num_processes=1).batches.questions_per_step == 1
    assert dry_run(run, num_processes=8).batches.questions_per_step == 8
    path = tmp_path / "zero3.yaml"
    path.write_text("distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config: {zero_stage: 3}\n")
    report = dry_run(run, accelerate_config=str(path))
    assert (report.launch.processes, report.launch.sharding) == (4, "full")
    assert dry_run(run, num_processes=2, accelerate_config=str(path)).launch.processes == 2


@pytest.mark.parametrize(
    ("text", "processes", "sharding"),
    [
        ("num_processes: 8\ndistributed_type: MULTI_GPU\n", 8, "none"),
        ("num_processes: 8\ndistributed_type: FSDP\n", 8, "full"),
        ("num_processes: 2\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n", 2, "zero2"),
        ("distributed_type: 'NO'\n", 1, "none"),
    ],
)
def test_accelerate_files_are_read(tmp_path, text, processes, sharding):
    (tmp_path / "a.yaml").write_text(text)
    launch = read_launch(tmp_path / "a.yaml")
    assert (launch.processes, launch.sharding) == (processes, sharding)


def test_the_shipped_accelerate_file_is_one_accelerate_takes():
    from accelerate.commands.config.config_args import load_config_from_file

    from meml_mel import resources

    file = resources.path("configs", "accelerate/cpu.yaml")
    loaded = load_config_from_file(str(file))
    assert loaded.num_processes == read_launch(file).processes == 2
    assert loaded.use_cpu


def test_a_bad_accelerate_file_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("num_processes: many\n")
    with pytest.raises(ConfigError, match="num_processes 'many'"):
        read_launch(tmp_path / "a.yaml")


def test_length_budget_of_each_phase_against_the_context():
    """An analysis reads two solutions, a replay reads a meta-experience (MEL 3.2-3.3)."""
    run = config(max_completion_length=1024, objectives={"meta_experience": {}})
    report = make_report(run, Launch(), ModelFacts("test", context=4096))
    rollout, analysis, replay = report.phases
    assert [p.name for p in report.phases] == ["rollout", "analysis", "replay"]
    assert rollout.parts[-1] == ("response", 1024)
    assert ("two solutions", 2048) in analysis.parts and analysis.parts[-1] == ("analysis", 2048)
    assert ("meta-experience", 2048) in replay.parts and replay.parts[-1] == ("response", 1024)
    assert rollout.over == 0 and replay.over == 0
    assert analysis.total > 4096 and analysis.over == analysis.total - 4096
    [note] = [n for n in report.notes if n.startswith("analysis")]
    assert "two solutions" in note
    assert report.problems == ()


def test_a_response_that_fills_the_context_is_a_problem_and_an_unknown_context_is_said():
    run = config(max_completion_length=4096, objectives={"meta_experience": {}})
    report = make_report(run, Launch(), ModelFacts("test", context=4096))
    assert any("max_completion_length 4096" in p and "4096 tokens" in p for p in report.problems)
    with pytest.raises(ConfigError, match="max_completion_length"):
        report.check()
    unknown = make_report(run, Launch(), ModelFacts("nowhere"))
    assert unknown.problems == () and "unknown" in render(unknown)


def test_vllms_own_limit_counts():
    run = config(max_completion_length=512, use_vllm=True, vllm_max_model_length=600)
    report = make_report(run, Launch(), ModelFacts("test", context=4096))
    assert report.phases[0].limit == 600


def test_mutual_learning_with_one_expert_is_told():
    report = make_report(config(objectives={"mutual_learning": {}}), Launch(), ModelFacts("test"))
    assert any("never fires" in note for note in report.notes)


@pytest.mark.parametrize("stage", ["rl", "sft"])
@pytest.mark.parametrize("facts", [QWEN3_8B, {}])
def test_the_report_fits_80_columns_and_tells_what_matters(stage, facts):
    more = {"experts": [{"name": n, "solutions": {"ground_truth": True}} for n in ("E0", "E1")]}
    if stage == "rl":
        more |= {
            "objectives": {"meta_experience": {}, "mutual_learning": {}},
            "gradient_accumulation_steps": 3,
        }
        more |= {"max_completion_length": 30000}
    run = config(stage, **more)
    text = render(
        make_report(run, Launch(8, "full", "--num-processes"), facts_from_config(facts, "test"), 7473)
    )
    assert max(map(len, text.splitlines())) <= 80
    for needed in ["8 processes", "7473", "optimizer steps", "Tokens", "Memory"]:
        assert needed in text
    if stage == "rl":
        assert "questions per optimizer step, Q      12" in text  # 8 * 3 * 8 / (2 * 8)


def test_sft_steps_by_hand():
    """919 rows over 2 processes of 4: ceil(460 / 4) = 115 micro-steps, 58 steps of two."""
    run = config(
        "sft",
        experts=[{"name": "E0", "solutions": {"ground_truth": True}}],
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
    )
    report = make_report(run, Launch(2), ModelFacts("test", context=512), 919)
    assert (report.batches.steps_per_epoch, report.batches.total_steps) == (58, 116)
    assert report.batches.completions_per_step == 16
    assert any("max_length 1024" in p for p in report.problems)


# -- the launcher --------------------------------------------------------------------------------------------


def test_several_gpus_without_a_launcher_name_the_exact_line():
    argv = ["--config", "my configs/a.yaml", "--seed=1"]
    with pytest.raises(ConfigError) as error:
        refuse_silent_data_parallel(4, {}, "rl", argv)
    line = "accelerate launch --num_processes 4 -m meml_mel.train.rl --config 'my configs/a.yaml' --seed=1"
    assert line in str(error.value)
    with pytest.raises(ConfigError):
        refuse_silent_data_parallel(4, {"LOCAL_RANK": "-1"}, "rl", argv)


def test_one_gpu_or_a_launcher_is_fine():
    refuse_silent_data_parallel(1, {}, "rl", [])
    refuse_silent_data_parallel(0, {}, "sft", [])
    refuse_silent_data_parallel(8, {"LOCAL_RANK": "0"}, "rl", [])
