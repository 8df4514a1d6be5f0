"""`meml-mel pin`: commits are written where revisions are null, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_stub import HubStub, Repo, run

from meml_mel.data.load import DataError
from meml_mel.data.pin import find_unpinned, pin

CONFIG = """\
# A recipe.
model_name_or_path: Qwen/Tiny   # the base model
model_revision: null
data:
    path: 'openai/gsm8k'   # quoted, indented by four
    name: main
    revision: ~            # unknown yet
decontaminate:
  against:
  - {path: org/aime, revision: null, split: test}   # flow style
  - path: org/pinned
    revision: refs/convert/parquet
  - path: ./local/eval.jsonl
    revision: null
experts:
- name: r1
  solutions:
    revision:
    path: openai/gsm8k
    column: response
learning_rate: 1e-6
other_revision: null
"""
DATA, AIME, MODEL = "d" * 40, "e" * 40, "f" * 40
PINNED = (
    CONFIG.replace("model_revision: null", f"model_revision: {MODEL}")
    .replace("revision: ~  ", f"revision: {DATA}  ")
    .replace("org/aime, revision: null", f"org/aime, revision: {AIME}")
    .replace("    revision:\n    path: openai", f"    revision: {DATA}\n    path: openai")
)
REPOS = {
    ("model", "Qwen/Tiny"): Repo(commit=MODEL),
    ("dataset", "openai/gsm8k"): Repo(commit=DATA),
    ("dataset", "org/aime"): Repo(commit=AIME),
}
PIN = """
import argparse
from meml_mel.data.pin import add_arguments, run
parser = argparse.ArgumentParser()
add_arguments(parser)
raise SystemExit(run(parser.parse_args([{path!r}])))
"""


def commit_of(repo_id, repo_type):
    return REPOS[repo_type, repo_id].commit


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode())
    return path


def test_every_null_beside_a_hub_id_is_filled_in_and_the_rest_is_untouched(tmp_path):
    path = written(tmp_path, CONFIG)
    path.chmod(0o640)
    pinned = pin(path, commit_of)
    assert path.read_text() == PINNED
    assert [(item.where, item.repo_type) for item, _ in pinned] == [
        ("model_revision", "model"),
        ("data.revision", "dataset"),
        ("decontaminate.against.0.revision", "dataset"),
        ("experts.0.solutions.revision", "dataset"),
    ]
    assert path.stat().st_mode & 0o777 == 0o640 and list(tmp_path.iterdir()) == [path]
    assert pin(path, commit_of) == [] and path.read_text() == PINNED  # a second run has nothing to do


def test_line_endings_and_text_outside_ascii_stay(tmp_path):
    text = "# für später\r\ndata:\r\n  path: org/aime\r\n  revision: null\r\n"
    path = written(tmp_path, text)
    pin(path, commit_of)
    assert path.read_bytes().decode() == text.replace("null", AIME)


def test_an_anchor_is_pinned_once():
    text = "data: &d {path: org/aime, revision: null}\ndecontaminate: {against: [*d]}\n"
    assert len(find_unpinned(text)) == 1


def test_one_failure_leaves_the_whole_file_alone(tmp_path):
    def only_data(repo_id, repo_type):
        if repo_type == "model":
            raise DataError("model 'Qwen/Tiny' is not on the Hub")
        return commit_of(repo_id, repo_type)

    path = written(tmp_path, CONFIG)
    with pytest.raises(DataError, match="model_revision: model 'Qwen/Tiny' is not on the Hub"):
        pin(path, only_data)
    assert path.read_text() == CONFIG


def test_bad_files_are_named(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        pin(tmp_path / "none.yaml", commit_of)
    with pytest.raises(DataError, match="is not YAML"):
        pin(written(tmp_path, "a: [1"), commit_of)


def test_the_command_asks_the_hub(tmp_path):
    path = written(tmp_path, CONFIG)
    with HubStub(REPOS) as hub:
        done = hub.run(PIN.format(path=str(path)), tmp_path)
        requests = list(hub.requests)
    assert done.returncode == 0, done.stderr
    assert path.read_text() == PINNED
    assert f"data.revision: dataset openai/gsm8k at {DATA}" in done.stdout
    assert sorted(requests) == [
        "GET /api/datasets/openai/gsm8k/revision/main",  # once, though it stands in two places
        "GET /api/datasets/org/aime/revision/main",
        "GET /api/models/Qwen/Tiny/revision/main",
    ]


def test_the_command_changes_nothing_when_it_cannot_find_one(tmp_path):
    path = written(tmp_path, CONFIG)
    with HubStub(
        {("dataset", "openai/gsm8k"): Repo(commit=DATA), ("dataset", "org/aime"): Repo(gated=True)}
    ) as hub:
        done = hub.run(PIN.format(path=str(path)), tmp_path)
        endpoint = hub.endpoint
    assert done.returncode == 1 and path.read_text() == CONFIG
    assert "model_revision: model 'Qwen/Tiny' is not on the Hub, or private" in done.stderr
    assert "decontaminate.against.0.revision: dataset 'org/aime' is gated" in done.stderr
    assert f"{path} is unchanged" in done.stderr

    unplugged = run(PIN.format(path=str(path)), endpoint, tmp_path)
    assert unplugged.returncode == 1 and path.read_text() == CONFIG
    assert "offline: the Hub could not be reached for dataset 'openai/gsm8k'" in unplugged.stderr

    offline = run(PIN.format(path=str(path)), endpoint, tmp_path, HF_HUB_OFFLINE="1")
    assert offline.returncode == 1 and path.read_text() == CONFIG
    assert "offline: HF_HUB_OFFLINE is set" in offline.stderr
