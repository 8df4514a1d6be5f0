"""SIGKILL at any step, then resume: weights, optimizer, buffer, random state, records and metrics are the same."""

import json
import signal

import pyarrow.parquet as pq
import pytest
import torch

from meml_mel.rlvr import checkpoint
from tests import processes
from tests.rlvr import resumable


def train(folder, **arguments):
    folder.mkdir(exist_ok=True)
    return processes.run_together(
        Call(arguments), (str(folder),), folder, arguments.pop("processes", 1), timeout=240
    )


class Call:
    """A picklable `run(folder, **arguments)`."""

    def __init__(self, arguments):
        self.arguments = arguments

    def __call__(self, folder):
        resumable.run(folder, **self.arguments)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    assert train(folder) == [0], processes.output(folder)
    return folder


def metrics(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/") and k != "step_time"} for row in rows]


def records(folder):
    return {
        str(path.relative_to(folder)): pq.read_table(path).to_pylist()
        for path in sorted((folder / "records").glob("*/*.parquet"))
    }


def assert_same_run(ours, theirs, step=6):
    for name in ("model.safetensors",):
        assert (ours / "final" / name).read_bytes() == (theirs / "final" / name).read_bytes(), name
    a, b = ours / f"checkpoint-{step}", theirs / f"checkpoint-{step}"
    assert (a / "rlvr_state.json").read_text() == (b / "rlvr_state.json").read_text()
    optimizers = [torch.load(c / "optimizer.pt", weights_only=True)["state"] for c in (a, b)]
    assert optimizers[0].keys() == optimizers[1].keys()
    for key, state in optimizers[0].items():
        assert all(torch.equal(value, optimizers[1][key][name]) for name, value in state.items())
    states = [torch.load(c / "rng_state.pth", weights_only=False)["cpu"] for c in (a, b)]
    assert torch.equal(*states)
    assert metrics(ours) == metrics(theirs)
    assert records(ours) == records(theirs)


def test_the_run_has_what_must_be_kept(unbroken):
    """Otherwise the comparison below would compare nothing."""
    rows = metrics(unbroken)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert any(row["objective/hard_examples/flushed"] for row in rows)
    assert any(row["objective/echo/loss"] for row in rows)
    assert {name.split("/")[1] for name in records(unbroken)} == {"rollouts", "echo", "hard_examples"}
    assert len(checkpoint.checkpoints(unbroken)) == 2  # rotated


# Steps 2 and 4 end epochs; "saving" is inside a save, between the Trainer's files and the manifest.
@pytest.mark.parametrize("kill", [("end", 1), ("saved", 2), ("saving", 3), ("begin", 4), ("end", 5)])
def test_killed_and_resumed_equals_unbroken(tmp_path, unbroken, kill):
    folder = tmp_path / "run"
    assert train(folder, kill=kill) == [-signal.SIGKILL], processes.output(folder)
    assert train(folder, resume=True) == [0], processes.output(folder)
    assert_same_run(folder, unbroken)


def test_dynamic_sampling_resumes_its_stream(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert train(whole, dynamic_sampling=True) == [0], processes.output(whole)
    assert any(row["dynamic_sampling/drawn"] for row in metrics(whole))
    assert train(broken, dynamic_sampling=True, kill=("end", 4)) == [-signal.SIGKILL]
    assert train(broken, dynamic_sampling=True, resume=True) == [0], processes.output(broken)
    assert_same_run(broken, whole)


def test_an_incomplete_checkpoint_is_passed_over(unbroken, tmp_path):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    (folder / "checkpoint-6" / "complete.json").unlink()
    found, passed_over = checkpoint.latest_complete(folder)
    assert found.name == "checkpoint-5"
    assert passed_over == ["checkpoint-6 has no complete.json: it was not saved to the end"]
    (folder / "checkpoint-5" / "optimizer.pt").write_bytes(b"cut")
    assert "checkpoint-5/optimizer.pt has 3 bytes" in checkpoint.problem(folder / "checkpoint-5")
    assert checkpoint.latest_complete(folder)[0] is None


def test_a_changed_config_is_refused(unbroken):
    with pytest.raises(
        checkpoint.ResumeError, match="resolved config has digest dddddddddddd, this one eeeeeeeeeeee"
    ):
        checkpoint.check_resumable(unbroken / "checkpoint-6", "e" * 64)
    checkpoint.check_resumable(unbroken / "checkpoint-6", "d" * 64)


def test_records_load_with_datasets(unbroken):
    from datasets import load_dataset

    rollouts = load_dataset("parquet", data_files=str(unbroken / "records/rollouts/*.parquet"), split="train")
    assert len(rollouts) == 6 * 2 * 2 * 4
    assert set(rollouts["verdict"]) <= {"right", "wrong"}
