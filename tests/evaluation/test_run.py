"""evaluate_questions and `meml-mel evaluate` on a tiny model: the numbers, the files, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import datasets
import pytest
import torch

from meml_mel import cli
from meml_mel.data.question import Question
from meml_mel.evaluation import results as results_module
from meml_mel.evaluation import run as run_module
from meml_mel.evaluation.decoding import PLAIN_STOPS, Decoding, EvaluationError
from meml_mel.evaluation.loading import LoadedModel, folder_hash, tensors_hash
from meml_mel.evaluation.results import read_results
from meml_mel.evaluation.run import evaluate_questions
from meml_mel.evaluation.sampler import Response
from meml_mel.evaluation.stats import wilson
from meml_mel.evaluation.table import WIDTH
from meml_mel.grading.pool import GradingPool
from meml_mel.meml.experts import Expert
from tests import tiny

EXPERTS = (Expert("brief", "Be brief."), Expert("long", "Be long."))


@pytest.fixture(scope="module")
def pool():
    with GradingPool(workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A saved model, and a file of six questions."""
    made = tmp_path_factory.mktemp("saved")
    tiny.model().save_pretrained(made / "model")
    tiny.tokenizer().save_pretrained(made / "model")
    rows = [{"problem": f"{i}+{i}=?", "answer": str(2 * i)} for i in range(6)]
    (made / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def loaded(name: str = "tiny", **changes) -> LoadedModel:
    return LoadedModel.of(tiny.model(), tiny.tokenizer(), name, **changes)


def scripted(monkeypatch, answers: dict[tuple[str, str], list[str]]) -> None:
    """The sampler answers from a table: (question id, expert) -> the greedy response, then the samples."""

    class Scripted:
        def __init__(self, *_):
            pass

        def __call__(self, requests, max_tokens, temperature, progress=None, **_):
            found = []
            for request in requests:
                question, expert, sample = request.key
                text = answers[question, expert][sample if temperature == 0 else 1 + sample]
                finish = "length" if text.endswith("...") else "stop"
                found.append(Response(text, len(text), finish))
            return found

    monkeypatch.setattr(run_module, "Sampler", Scripted)


QUESTIONS = (Question("q1", "half?", "1/2"), Question("q2", "five?", "5"), Question("q3", "six?", "6"))


def test_every_number_by_hand(monkeypatch, pool):
    scripted(
        monkeypatch,
        {
            # greedy, then four samples
            ("q1", "brief"): ["0.5", "0.5", "1/2", "3", "3"],  # vote: tie of {0.5, 1/2} and {3, 3}: 1/2
            ("q1", "long"): [r"\frac12", "7", "7", "7", "0.5"],  # wrong
            ("q2", "brief"): ["4", "5", "4", "", "4"],  # wrong: two for 4
            ("q2", "long"): ["5", "5", "5...", "5...", "4"],  # cut: no vote; tie of 5 and 4: 1/2
            ("q3", "brief"): ["6...", "6", "6", "6", "6"],
            ("q3", "long"): ["", "1", "2", "3", "4"],  # wrong
        },
    )
    found = evaluate_questions(loaded(), QUESTIONS, EXPERTS, decoding=Decoding(samples=4), pool=pool)

    def number(measure, expert=None):
        estimate = found.cell(measure, expert).estimate
        return estimate.k, estimate.n

    assert (number("pass@1", "brief"), number("pass@1", "long"), number("pass@1")) == ((1, 3), (2, 3), (3, 6))
    assert found.cell("pass@1", "brief").estimate.interval == wilson(1, 3)
    assert found.cell("pass@1").estimate.method == "bootstrap"  # two experts a question
    assert (number("avg@4", "brief"), number("avg@4", "long")) == ((2 + 1 + 4, 12), (1 + 1 + 0, 12))
    assert (number("pass@4", "brief"), number("pass@4", "long"), number("pass@4")) == ((3, 3), (2, 3), (5, 6))
    # pass@2 with 2, 1 and 4 right of 4: 5/6, 1/2 and 1
    assert number("pass@2", "brief")[0] == pytest.approx(5 / 6 + 1 / 2 + 1)
    assert (number("maj@4", "brief"), number("maj@4", "long")) == ((0.5 + 0 + 1, 3), (0 + 0.5 + 0, 3))
    # over the experts' greedy answers: 1/2 twice; 4 against 5; 6 was cut, and the other is no answer
    assert number("vote@2", "(vote)") == (1 + 0.5 + 0, 3)
    # over all eight samples: q1 1/2 3x, 3 2x, 7 3x: a tie; q2 5 2x, 4 3x; q3 6 4x
    assert number("maj@8", "(vote)") == (0.5 + 0 + 1, 3)
    rates = {(r.expert, r.phase): r for r in found.summary.rates}
    assert (rates["brief", "greedy"].truncated, rates["long", "greedy"].no_answer) == (1, 1)
    assert (rates["long", "sampled"].truncated, rates["brief", "sampled"].no_answer) == (2, 1)
    assert found.by_question("brief") == {"q1": 1.0, "q2": 0.0, "q3": 0.0}
    assert found.by_question() == {"q1": 1.0, "q2": 0.5, "q3": 0.0}
    with pytest.raises(KeyError, match=r"no 'pass@3' of 'brief': there are avg@4 of"):
        found.cell("pass@3", "brief")
    table = found.table()
    assert "maj@4" in table and "pass@2" not in table
    assert max(map(len, table.splitlines())) <= WIDTH


def test_ungradable_golds_are_left_out_and_named(monkeypatch, pool):
    questions = (
        *QUESTIONS,
        Question("bad", "why?", "because there is nothing else that it could possibly be here"),
    )
    scripted(monkeypatch, {(q.id, ""): ["5"] for q in questions})
    found = evaluate_questions(loaded(), questions, pool=pool)
    assert found.summary.ungradable == ("bad",)
    assert (found.cell("pass@1").estimate.k, found.cell("pass@1").estimate.n) == (1, 3)
    assert "gold cannot be graded: 1 questions (bad)" in found.table()
    assert "bad" not in found.by_question()


def test_prompts_without_room_are_wrong_counted_and_named(pool):
    questions = [Question("short", "1+1=?", "2"), Question("long", "x" * 600, "2")]
    found = evaluate_questions(loaded(), questions, decoding=Decoding(max_tokens=8, samples=2), pool=pool)
    assert found.cell("pass@1").estimate.n == 2
    assert found.summary.too_long == {"": ("long",)}
    assert "counted wrong, prompt longer than the context: 1 (long)" in found.table()
    assert {(a.question_id, a.reason) for a in found.answers if a.question_id == "long"} == {
        ("long", "prompt_too_long")
    }


def test_the_same_seed_gives_the_same_responses_and_training_is_not_disturbed(pool):
    model, state = loaded(), torch.get_rng_state()
    model.model.train()
    how = Decoding(max_tokens=8, samples=2, temperature=1.0, seed=5)
    one, two = (evaluate_questions(model, tiny.questions(4), decoding=how, pool=pool) for _ in range(2))
    assert one.answers == two.answers
    fewer = evaluate_questions(model, tiny.questions(2), decoding=how, pool=pool)
    assert set(fewer.answers) <= set(one.answers)  # a question's samples don't depend on the others
    assert model.model.training and torch.equal(state, torch.get_rng_state())


def test_files_hold_what_was_found(tmp_path, folder, pool):
    found = evaluate_questions(
        LoadedModel.load(folder / "model"), tiny.questions(3), EXPERTS, decoding=Decoding(max_tokens=6, samples=2),
        pool=pool,
    )  # fmt: skip
    found.write(tmp_path / "out")
    saved = read_results(tmp_path / "out")
    assert saved["model"]["weights"] == folder_hash(folder / "model")
    assert saved["model"]["dtype"] == "float32"
    assert saved["decoding"]["end_token_ids"] == [2, 1]
    assert saved["experts"][0] == {"name": "brief", "system": "Be brief."}
    assert saved["data"]["questions"] == 3 and len(saved["data"]["content_hash"]) == 64
    assert saved["versions"]["transformers"] and len(saved["grader"]["sha256"]) == 64
    assert [c["measure"] for c in saved["cells"] if c["expert"] == "brief"] == [
        "pass@1",
        "avg@2",
        "pass@2",
        "maj@2",
    ]
    rows = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "out" / "responses.parquet"), cache_dir=str(tmp_path / "cache")
    )["train"]
    assert len(rows) == 3 * 2 * 3
    assert set(rows["phase"]) == {"greedy", "sampled"} and set(rows["expert"]) == {"brief", "long"}
    first = rows[0]
    assert (first["question_id"], first["problem"], first["answer"]) == ("q0", "0+0=?", "0")
    with pytest.raises(
        EvaluationError, match="holds results already: name another folder, or pass --overwrite"
    ):
        found.write(tmp_path / "out")
    found.write(tmp_path / "out", overwrite=True)


def test_a_kill_while_writing_leaves_no_results(tmp_path, pool, monkeypatch):
    """Neither half a file nor old numbers beside new responses."""
    found = evaluate_questions(loaded(), tiny.questions(2), decoding=Decoding(max_tokens=4), pool=pool)
    found.write(tmp_path)
    replace = os.replace

    def killed(source, target):
        if Path(target).name == "results.json":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(results_module.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        found.write(tmp_path, overwrite=True)
    with pytest.raises(EvaluationError, match="the evaluation did not finish"):
        read_results(tmp_path)


def test_a_killed_evaluation_leaves_no_results(folder, tmp_path):
    command = [sys.executable, "-m", "meml_mel.cli", "evaluate", str(folder / "model"), "--samples", "4000"]
    command += ["--data", str(folder / "questions.jsonl"), "--out", str(tmp_path / "out"), "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("stop strings"):  # printed just before the first response
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert not (tmp_path / "out" / "results.json").exists()


def test_hashes_tell_weights_apart(folder, tmp_path):
    other = tiny.model(seed=1)
    other.save_pretrained(tmp_path / "other")
    assert folder_hash(tmp_path / "other")["sha256"] != folder_hash(folder / "model")["sha256"]
    tiny.model().save_pretrained(tmp_path / "same")
    assert folder_hash(tmp_path / "same")["sha256"] == folder_hash(folder / "model")["sha256"]
    assert tensors_hash(tiny.model()) == tensors_hash(tiny.model()) != tensors_hash(other)


def test_plain_text_has_stop_strings_and_chat_has_none():
    chat, plain = loaded(), loaded(format="plain")
    assert Decoding().stops(chat.format) == () and Decoding().stops(plain.format) == PLAIN_STOPS
    assert Decoding(stop=()).stops(plain.format) == ()


# -- the command ---------------------------------------------------------------------------------------------


def test_the_command_takes_experts_prompts_and_data_from_a_config(folder, tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"model_name_or_path: x\noutput_dir: runs/x\nmax_completion_length: 5\nuse_cpu: true\nbf16: false\n"
        f"data: {{path: {folder / 'questions.jsonl'}, stop: 4}}\n"
        "experts: [{name: brief, system_prompt: Be brief.}, {name: long}]\n"
        "generation_kwargs: {stop_strings: ['@@']}\n"
    )
    model, out = str(folder / "model"), str(tmp_path / "out")
    assert cli.main(["evaluate", model, "--config", str(config), "--start", "4", "--out", out]) == 0
    said = capsys.readouterr().out
    assert "stop strings: '@@'" in said and "prompt format: chat template" in said
    saved = read_results(out)
    assert saved["counted_questions"] == 2  # rows 4 and 5: the config's stop is for its own range
    assert [e["system"] for e in saved["experts"]] == ["Be brief.", "You are long."]
    assert (saved["decoding"]["max_tokens"], saved["decoding"]["stop"]) == (5, ["@@"])
    assert cli.main(["evaluate", model, "--config", str(config), "--out", out]) == 2
    assert "holds results already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["{folder}/none", "--data", "{data}"],
            "no such folder ('{folder}' holds: model). Paths are relative",
        ),
        (
            ["{folder}", "--data", "{data}"],
            "holds no weights (*.safetensors, pytorch_model*.bin): it is a run's folder",
        ),
        (["{data}", "--data", "{data}"], "is a file: name the folder that holds it"),
        (["{model}"], "there are no questions: name them with --data"),
        (
            ["{model}", "--data", "{data}", "--mapping", "problem=problem,answer=result"],
            "no column for 'answer'",
        ),
        (
            ["{model}", "--data", "{data}", "--mapping", "problem=problem,answer"],
            "'answer' is not FIELD=COLUMN",
        ),
        (["{model}", "--data", "nowhere.jsonl"], "nowhere.jsonl"),
        (["{model}", "--data", "{data}", "--samples", "-1"], "samples -1"),
        (
            ["{model}", "--data", "{data}", "--temperature", "0"],
            "temperature 0.0: sampling needs one above 0",
        ),
        (["{model}", "--data", "{data}", "--config", "{folder}"], "is a folder without config.resolved.yaml"),
        (["{bare}", "--data", "{data}", "--format", "chat"], "has no chat template: use auto or plain"),
    ],
)
def test_mistakes_are_told_in_a_line(folder, tmp_path, capsys, arguments, message):
    bare = tmp_path / "bare"
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(bare)
    tiny.model().save_pretrained(bare)
    places = {"folder": folder, "model": folder / "model", "data": folder / "questions.jsonl", "bare": bare}
    words = [word.format(**places) for word in arguments]
    assert cli.main(["evaluate", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message.format(**places) in error and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_questions_must_be_there_and_told_apart():
    with pytest.raises(EvaluationError, match="no questions"):
        evaluate_questions(loaded(), [])
    with pytest.raises(EvaluationError, match="the same id"):
        evaluate_questions(loaded(), [QUESTIONS[0], QUESTIONS[0]])
