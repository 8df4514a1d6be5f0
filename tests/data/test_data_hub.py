"""Questions from Hub ids: the real client against a small server on the loopback."""

from __future__ import annotations

import json

import pytest
from hub_stub import HubStub, Repo, run

COMMIT = "a" * 40
ROWS = b'{"id":"n1","problem":"1+1?","answer":2}\n{"id":"n2","problem":"When?","answer":"2020-01-01"}\n'
CARD = b"""---
configs:
- config_name: en
  data_files: [{split: train, path: en/train-*}]
- config_name: cn
  data_files: [{split: train, path: cn/train-*}]
---
"""
REPOS = {
    ("dataset", "org/plain"): Repo({"train.jsonl": ROWS, "test.jsonl": ROWS[:40]}),
    ("dataset", "org/configs"): Repo(
        {"README.md": CARD, "en/train-0.jsonl": ROWS, "cn/train-0.jsonl": ROWS[40:]}
    ),
    ("dataset", "org/math_qa"): Repo({"math_qa.py": b"import this"}),
    ("dataset", "org/gated"): Repo(gated=True),
    ("dataset", "org/empty"): Repo({"README.md": b"nothing"}),
}
# Each source is loaded in turn; a line of JSON says what came.
LOAD = """
import json, sys
from meml_mel.data.load import DataError, DataSource, load_questions
for fields in json.loads({sources!r}):
    try:
        loaded = load_questions(DataSource(**fields), gradable=lambda gold, kind: bool(gold))
        print(json.dumps([loaded.report.revision, [[q.id, q.answer] for q in loaded.questions]]))
    except DataError as error:
        print(json.dumps(str(error)))
"""


def results(process):
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


def code(*sources):
    return LOAD.format(sources=json.dumps(sources))


def test_hub_ids_load_at_a_commit_and_errors_say_the_way_out(tmp_path):
    with HubStub(REPOS) as hub:
        out = results(
            hub.run(
                code(
                    {"path": "org/plain"},
                    {"path": "org/plain", "split": "test", "revision": COMMIT},
                    {"path": "org/configs", "name": "cn"},
                    {"path": "org/plain", "split": "validation"},
                    {"path": "org/configs"},
                    {"path": "org/configs", "name": "eng"},
                    {"path": "org/math_qa", "mapping": "mathqa"},
                    {"path": "org/gated"},
                    {"path": "org/none"},
                    {"path": "org/empty"},
                    {"path": "org/plain", "revision": "b" * 40},
                ),
                tmp_path,
            )
        )
    assert out[0] == [COMMIT, [["n1", "2"], ["n2", "2020-01-01"]]]  # the date as it was written
    assert out[1] == [COMMIT, [["n1", "2"]]]
    assert out[2] == [COMMIT, [["n2", "2020-01-01"]]]
    assert "split 'validation' does not exist in org/plain. Splits: train, test" in out[3]
    assert "org/configs' has several configs: set data.name to one of en, cn" in out[4]
    assert "data.name 'eng' is not a config of org/configs; did you mean 'en'? Configs: en, cn" in out[5]
    assert "is a loading script, and scripts are not run. Name data files instead" in out[6]
    assert "gated dataset" in out[7] and "hf auth login" in out[7]
    assert "doesn't exist on the Hub" in out[8] and "no local file or folder of that name" in out[8]
    assert "no data files to read on the Hub" in out[9]
    assert f"Revision '{'b' * 40}' doesn't exist" in out[10]


def test_offline_reads_what_was_downloaded_and_nothing_else(tmp_path):
    pinned = {"path": "org/plain", "revision": COMMIT}
    with HubStub(REPOS) as hub:
        first = results(hub.run(code(pinned, {"path": "org/plain"}), tmp_path))
        hub.requests.clear()
        assert results(hub.run(code(pinned), tmp_path)) == first[:1]
        assert hub.requests == []  # a pinned source that is here needs no network
        endpoint = hub.endpoint
    offline = run(
        code(pinned, {"path": "org/plain"}, {**pinned, "split": "test"}, {**pinned, "revision": "c" * 40}),
        endpoint,
        tmp_path,
        HF_HUB_OFFLINE="1",
    )
    again, unpinned, other_split, other_revision = results(offline)
    assert [again, unpinned] == first
    assert f"org/plain: no network; reading commit {COMMIT} from the cache" in offline.stderr
    for message in (other_split, other_revision):  # not another split's files, not another revision's
        assert (
            "HF_HUB_OFFLINE=1 is set" in message
            and "unset HF_HUB_OFFLINE and run once with a network" in message
        )
        assert "path: <file or folder>" in message


@pytest.mark.slow  # the client retries for half a minute
def test_an_unreachable_hub_is_said(tmp_path):
    (message,) = results(run(code({"path": "org/plain"}), "http://127.0.0.1:9", tmp_path))
    assert "the Hub could not be reached" in message and "run once with a network" in message
