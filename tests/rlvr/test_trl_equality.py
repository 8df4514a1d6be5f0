"""With no objective, one expert and `advantage: grpo`, RLVRTrainer is TRL's GRPOTrainer, number for number."""

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from meml_mel.rlvr.trainer import RLVRTrainer
from tests import tiny


def config(folder, **changes):
    settings = dict(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_generations=4,
        max_completion_length=8,
        num_train_epochs=2,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        seed=7,
    )
    return GRPOConfig(**settings | changes)


def losses(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def run_trl(args):
    tokenizer, rows = tiny.tokenizer(), tiny.rows(7)
    dataset = [{"prompt": [dict(m) for m in row.prompt], "question": row.question.id} for row in rows]

    def reward(completions, completion_ids, question, **_):
        texts = [
            (None, c[0]["content"], ids[-1] not in (1, 2)) for c, ids in zip(completions, completion_ids)
        ]
        return [grade.reward for grade in tiny.grade_by_length(texts)]

    from datasets import Dataset

    trainer = GRPOTrainer(tiny.model(), reward, args, Dataset.from_list(dataset), processing_class=tokenizer)
    trainer.train()
    return trainer


def run_ours(args, **kwargs):
    trainer = RLVRTrainer(
        tiny.model(), args, tiny.rows(7), tiny.grade_by_length, processing_class=tiny.tokenizer(), **kwargs
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_weights_and_losses_equal_trl_over_two_epochs(tmp_path, loss_type, temperature):
    changes = dict(loss_type=loss_type, temperature=temperature)
    theirs = run_trl(config(tmp_path / "trl", **changes))
    ours = run_ours(config(tmp_path / "ours", **changes))
    assert losses(ours) == losses(theirs)
    assert len(losses(ours)) == 6  # 7 questions, 2 a step: 3 steps an epoch, 2 epochs
    assert any(loss != 0 for loss in losses(ours))
    for (name, a), (_, b) in zip(ours.model.named_parameters(), theirs.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_equal_with_groups_of_three_where_rounding_shows(tmp_path):
    """Groups of 4 with rewards 0 and 1 have the same float32 advantages however they are computed; of 3 not."""
    changes = dict(num_generations=3, per_device_train_batch_size=6, gradient_accumulation_steps=1)
    theirs = run_trl(config(tmp_path / "trl", **changes))
    ours = run_ours(config(tmp_path / "ours", **changes))
    assert losses(ours) == losses(theirs) and any(loss != 0 for loss in losses(ours))
    for (name, a), (_, b) in zip(ours.model.named_parameters(), theirs.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_equal_with_several_updates_per_generation(tmp_path):
    changes = dict(num_iterations=2, steps_per_generation=4, beta=0.0, epsilon_high=0.28)
    theirs = run_trl(config(tmp_path / "trl", **changes))
    ours = run_ours(config(tmp_path / "ours", **changes))
    assert losses(ours) == losses(theirs)
    for a, b in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(a, b)
