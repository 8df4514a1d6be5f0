"""The RL entry point from command line to saved model, with real files, on a tiny model."""

import json
import signal

import pyarrow.parquet as pq
import pytest
import yaml

from meml_mel.train import rl
from tests import processes, tiny
from tests.rlvr.resumable import Kill


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A model folder, 6 questions with solutions, and a config."""
    folder = tmp_path_factory.mktemp("world")
    tiny.model().save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    with (folder / "questions.jsonl").open("w") as file:
        for i in range(6):
            file.write(
                json.dumps({"problem": f"{i}+{i}", "answer": str(2 * i), "solution": f"{2 * i}"}) + "\n"
            )
    config = {
        "model_name_or_path": str(folder / "model"),
        "data": {"path": str(folder / "questions.jsonl")},
        "experts": [{"name": "a", "system_prompt": "A"}, {"name": "b"}],
        "objectives": {
            "meta_experience": {},
            "mutual_learning": {},
            "hard_examples": {"capacity": 4},
        },
        "sampling": {"analysis": {"max_tokens": 8}},
        "grading": {"workers": 1},
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 8,
        "max_steps": 4,
        "learning_rate": 1e-3,
        "save_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "disable_tqdm": True,
        "loss_type": "grpo",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def arguments(world, output, *more):
    return ["--config", str(world / "config.yaml"), "--output_dir", str(output), *more]


def test_a_run_leaves_what_it_promises(world, tmp_path, capsys):
    out = tmp_path / "run"
    assert rl.main(arguments(world, out)) == 0
    printed = capsys.readouterr().out
    assert "6 rows, 6 questions" in printed
    assert "prompt format: chat template" in printed
    assert (out / "final" / "model.safetensors").exists()
    assert not (out / "final" / "training_args.bin").exists()
    assert json.loads((out / "final" / "generation_config.json").read_text())["eos_token_id"] == [2, 1]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    # nobody is ever right here: two questions x two experts fill the buffer of 4 in each new step
    assert lines[0]["objective/hard_examples/flushed"] == 4
    assert lines[0]["objective/hard_examples/loss"] > 0
    rollouts = [r for p in sorted((out / "records/rollouts").iterdir()) for r in pq.read_table(p).to_pylist()]
    assert len(rollouts) == 4 * 16 and {r["verdict"] for r in rollouts} == {"wrong"}
    facts = json.loads((out / "run.json").read_text())
    assert facts["data"]["train"]["questions"] == 6 and len(facts["data"]["train"]["content_hash"]) == 64
    assert facts["versions"]["trl"].startswith("1.16")
    resolved = yaml.safe_load((out / "config.resolved.yaml").read_text())
    assert resolved["objectives"]["meta_experience"]["coefficient"] == 1.0

    # a second run must not write over the first
    assert rl.main(arguments(world, out)) == 2
    assert "holds a run already: go on with --resume_from_checkpoint true" in capsys.readouterr().err
    # resuming with another config is refused, and says how to go on
    resume = ["--resume_from_checkpoint", "true"]
    assert rl.main(arguments(world, out, *resume, "--learning_rate", "1e-5")) == 2
    assert "--allow-changed-config" in capsys.readouterr().err


class Main:
    """A picklable `rl.main(argv)`, killed at a point if one is given."""

    def __init__(self, kill=None):
        self.kill = kill

    def __call__(self, *argv):
        if self.kill:
            from meml_mel.rlvr.trainer import RLVRTrainer

            train, kill = RLVRTrainer.train, self.kill

            def killed(trainer, *args, **kwargs):
                trainer.add_callback(Kill(*kill))
                return train(trainer, *args, **kwargs)

            RLVRTrainer.train = killed
        raise SystemExit(rl.main(list(argv)))


def test_two_processes_killed_and_resumed_equal_an_unbroken_run(world, tmp_path):
    folders = [tmp_path / "whole", tmp_path / "broken"]
    lines = []
    for folder, kill in zip(folders, (None, ("end", 3)), strict=True):
        folder.mkdir()
        argv = arguments(world, folder / "run", "--gradient_accumulation_steps", "1")
        codes = processes.run_together(Main(kill), tuple(argv), folder, 2, timeout=300)
        if kill:
            assert -signal.SIGKILL in codes, processes.output(folder)
            argv += ["--resume_from_checkpoint", "true"]
            codes = processes.run_together(Main(), tuple(argv), folder, 2, timeout=300)
        assert codes == [0, 0], processes.output(folder)
        rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        lines.append([{k: v for k, v in r.items() if "time" not in k} for r in rows])
    whole, broken = [(f / "run/final/model.safetensors").read_bytes() for f in folders]
    assert whole == broken
    assert lines[0] == lines[1]


def test_dry_run_needs_no_model(world, tmp_path, capsys):
    missing = ["--model_name_or_path", "nobody/has-this", "--bf16", "true", "--use_cpu", "false"]
    argv = arguments(world, tmp_path / "run", *missing, "--dry-run", "--num-processes", "8")
    assert rl.main(argv) == 2  # 8 processes don't divide: said with the numbers that do
    problem = capsys.readouterr()
    assert "processes" in problem.out + problem.err
    assert rl.main([*argv, "--per_device_train_batch_size", "4", "--data.max_questions", "6"]) in (0, 2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "more, message",
    [
        (["--data.path", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--model_name_or_path", "./nowhere"], "is no folder here"),
        (["--objectives.meta_experiense", "{}"], "meta_experience"),
        (["--learning_rate", "fast"], "learning_rate"),
        (["--per_device_train_batch_size", "7"], "7"),
        (["--max_completion_length", "600"], "the context leaves"),
        (["--hub_token", "hf_abcdefghijklmnopqrstuvwxyz"], "hf auth login"),
    ],
)
def test_mistakes_are_told_before_the_model_loads(world, tmp_path, capsys, more, message):
    assert rl.main(arguments(world, tmp_path / "run", *more)) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and "hf_abc" not in error
    assert not (tmp_path / "run").exists()
