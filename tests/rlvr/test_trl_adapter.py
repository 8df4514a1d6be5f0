"""What the adapter assumes about TRL: a release that changed it fails here, by name, before any run does."""

import inspect

import pytest
import torch
import trl
from packaging.version import Version
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer

from meml_mel.rlvr.losses import TokenExample, pad
from meml_mel.rlvr.options import PhaseSampling
from meml_mel.rlvr.trainer import RLVRTrainer
from meml_mel.rlvr.trl_adapter import check_skip
from tests import tiny
from tests.rlvr.test_trl_equality import config

SIGNATURES = {
    "_generate": ["self", "prompts"],
    "_generate_single_turn": [
        "self",
        "prompt_ids",
        "images",
        "multimodal_fields",
        "num_generations",
        "has_tool_images",
    ],
    "_tokenize_prompts": ["self", "prompts"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_compute_loss": ["self", "model", "inputs"],
    "compute_loss": ["self", "model", "inputs", "return_outputs", "num_items_in_batch"],
    "training_step": ["self", "model", "inputs", "num_items_in_batch"],
    "_get_train_sampler": ["self", "dataset"],
    "_save_checkpoint": ["self", "model", "trial"],
}


def test_this_trl_is_in_the_tested_range():
    assert Version("1.16") <= Version(trl.__version__) < Version("1.17")


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_the_adapter_was_written_for(name):
    parameters = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)
    assert parameters == SIGNATURES[name], f"TRL {trl.__version__} changed {name}: adapt rlvr/trl_adapter.py"


def test_log_probabilities_are_called_as_expected():
    parameters = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    assert parameters[:7] == [
        "self",
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
    ]
    assert list(inspect.signature(grpo_trainer.add_fused_lm_head).parameters) == [
        "model",
        "temperature",
        "cast_lm_head_to_fp32",
        "outputs",
    ]


def test_generation_answers_with_eight_parts():
    source = inspect.getsource(GRPOTrainer._generate)
    assert (
        "return prompt_ids, completion_ids, tool_mask, completions, logprobs, extra_fields, images, tool_images"
        in source
    )


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    args = config(tmp_path_factory.mktemp("run"), temperature=0.5)
    return RLVRTrainer(
        tiny.model(),
        args,
        tiny.rows(4),
        tiny.grade_by_length,
        processing_class=tiny.tokenizer(),
        max_length=200,
    )


def test_supervised_likelihood_is_at_temperature_one_beside_a_sampling_temperature(trainer):
    batch = pad(
        (TokenExample((10, 11, 12), (13, 14), 1.0), TokenExample((10,), (20,), 1.0)), 0, torch.device("cpu")
    )
    logits = trainer.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits[:, :-1]
    plain = logits.log_softmax(-1).gather(-1, batch.input_ids[:, 1:, None]).squeeze(-1)
    ours = trainer.next_token_logps(trainer.model, batch)
    assert torch.allclose(ours[batch.target_mask], plain[batch.target_mask], atol=1e-5)
    halved = (logits / 0.5).log_softmax(-1).gather(-1, batch.input_ids[:, 1:, None]).squeeze(-1)
    assert not torch.allclose(ours[batch.target_mask], halved[batch.target_mask], atol=1e-2)
    theirs, _, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, batch.input_ids, batch.attention_mask, 2
    )
    assert torch.allclose(
        theirs[0], halved[0, -2:], atol=1e-5
    )  # the policy's stay at the sampling temperature


def test_a_phase_samples_with_its_own_parameters_and_restores_the_rollouts(trainer):
    before = (trainer.generation_config.max_new_tokens, trainer.generation_config.temperature)
    torch.manual_seed(0)
    with pytest.raises(RuntimeError), trainer.sampling(PhaseSampling(temperature=0.0, max_tokens=3)):
        greedy = trainer.sample([[10, 11], [10, 11], [12]])
        raise RuntimeError
    assert greedy[0] == greedy[1]
    assert max(map(len, greedy)) <= 3
    assert (
        (trainer.generation_config.max_new_tokens, trainer.generation_config.temperature)
        == before
        == (8, 0.5)
    )
    with trainer.sampling(PhaseSampling(temperature=1.0, top_k=1, max_tokens=3)):
        assert trainer.sample([[10, 11], [10, 11], [12]]) == greedy  # the most likely token alone


def test_finish_reads_both_end_tokens(trainer):
    assert trainer.eos_token_ids == [2, 1]
    assert [trainer.finish(ids) for ids in ([5, 2], [5, 1], [5], [])] == ["stop", "stop", "length", "length"]


@pytest.mark.parametrize(
    "change, name",
    [
        ({"beta": 0.1}, "KL"),
        ({"entropy_coef": 0.01}, "entropy bonus"),
        ({"loss_type": "bnpo"}, "bnpo"),
        ({"top_entropy_quantile": 0.2}, "top_entropy_quantile"),
    ],
)
def test_skipping_rows_is_refused_where_it_would_change_the_loss(tmp_path, change, name):
    args = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **change)
    with pytest.raises(ValueError, match=name):
        check_skip(args)
