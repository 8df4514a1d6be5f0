"""The benchmarks: `evaluate --tasks`, what it keeps and refuses, and the same numbers from lighteval's own command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meml_mel import cli, resources
from meml_mel.data.load import load_questions
from meml_mel.evaluation import run as run_module
from meml_mel.evaluation.benchmarks import BENCHMARKS, DATA_VARIABLE, Sampling, find_benchmarks
from meml_mel.evaluation.decoding import EvaluationError
from meml_mel.evaluation.responses import Response, read_response
from meml_mel.evaluation.results import read_results
from tests import tiny

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "meml_mel" / "demo" / "tiny"


def write_questions(folder: Path, golds: list[str]) -> None:
    rows = [{"question": f"What is {i} + {i + 1}?", "answer": f"#### {gold}"} for i, gold in enumerate(golds)]
    folder.mkdir(exist_ok=True)
    (folder / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def world(tmp_path, monkeypatch) -> Path:
    """A saved model and a MEML_MEL_DATA folder with a gsm8k.jsonl of six questions."""
    tiny.model().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    write_questions(tmp_path / "data", [str(2 * i + 1) for i in range(6)])
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    return tmp_path


def evaluate(world: Path, *more: str) -> int:
    words = ["evaluate", str(world / "model"), "--tasks", "gsm8k", "--out", str(world / "out")]
    return cli.main([*words, "--max-tokens", "6", "--workers", "1", "--device", "cpu", *more])


def test_a_finished_task_is_not_run_again_and_other_weights_are_refused(world, capsys, monkeypatch):
    assert evaluate(world, "--samples", "2") == 0
    said = capsys.readouterr().out
    assert "not comparable" in said and "has 1319" in said  # six rows are not GSM8K
    saved = read_results(world / "out" / "gsm8k")
    assert [cell["measure"] for cell in saved["cells"]] == ["pass@1", "avg@2", "pass@2", "maj@2"]
    assert (saved["data"]["benchmark"], saved["data"]["rows_on_the_hub"]) == ("gsm8k", 1319)

    class Never:
        def __init__(self, *_):
            raise AssertionError("the task was run again")

    before = (world / "out" / "gsm8k" / "results.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "Sampler", Never)
        assert evaluate(world, "--samples", "2") == 0
        assert "finished before, kept" in capsys.readouterr().out
        assert evaluate(world, "--samples", "3") == 2
        assert "holds results of other decoding" in capsys.readouterr().err
        tiny.model(seed=1).save_pretrained(world / "model")  # another checkpoint at the same path
        assert evaluate(world, "--samples", "2") == 2
        assert "holds results of other weights" in capsys.readouterr().err
    assert (world / "out" / "gsm8k" / "results.json").read_bytes() == before
    assert evaluate(world, "--samples", "2", "--overwrite") == 0
    again = read_results(world / "out" / "gsm8k")
    assert again["model"]["weights"] != saved["model"]["weights"]


@pytest.mark.parametrize(
    "more, message",
    [
        (["--tasks", "gsm8"], "unknown task 'gsm8'; did you mean 'gsm8k'?"),
        (["--tasks", "aime24"], "holds none of aime24.jsonl, aime2024.jsonl (it holds: gsm8k.jsonl)"),
        (["--data", "x.jsonl"], "--data and --tasks do not go together"),
        (["--tasks", ","], "no task is named"),
    ],
)
def test_mistakes_are_told_before_the_model_loads(world, capsys, more, message):
    assert evaluate(world, *more) == 2
    assert message in capsys.readouterr().err
    assert not (world / "out").exists()


def test_no_network_is_told_with_the_way_out(world, capsys, monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE)
    monkeypatch.setattr(
        "meml_mel.data.hub._resolve", lambda source: (_ for _ in ()).throw(ConnectionError("no route"))
    )
    assert evaluate(world, "--tasks", "strategyqa") == 2
    assert "ChilleD/StrategyQA" in capsys.readouterr().err


def test_settings_come_from_the_environment_and_bad_ones_are_refused():
    assert Sampling.from_environment({}) == Sampling(8, (8,), 0.6)
    given = {
        "MEML_MEL_N": "16",
        "MEML_MEL_K": "1,4",
        "MEML_MEL_TEMPERATURE": "1.0",
        "MEML_MEL_MAX_TOKENS": "9",
    }
    assert Sampling.from_environment(given) == Sampling(16, (1, 4), 1.0, 9)
    for bad, message in (
        ({"MEML_MEL_N": "4", "MEML_MEL_K": "8"}, "between 1 and n"),
        ({"MEML_MEL_N": "1"}, "at least 2"),
        ({"MEML_MEL_N": "x"}, "is not a number"),
        ({"MEML_MEL_TEMPERATURE": "0"}, "above 0"),
    ):
        with pytest.raises(EvaluationError, match=message):
            Sampling.from_environment(bad)
    assert [b.name for b in find_benchmarks("math500, aime24,math500")] == ["math500", "aime24"]


def test_a_response_ends_at_its_first_end_token_or_stop_string():
    def decode(ids):
        return "".join("ab\nX?"[i] for i in ids if i < 5)

    assert read_response([0, 1, 9, 9, 9], {9}, (), decode) == Response("ab", 3, "stop")  # padded
    assert read_response([0, 1, 9, 0, 0], {9}, (), decode) == Response("ab", 3, "stop")  # ran on
    assert read_response([0, 1, 1], {9}, (), decode) == Response("abb", 3, "length")
    assert read_response([0, 2, 3, 1, 1], {9}, ("\nX",), decode) == Response("a", 3, "stop")


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_rows_make_the_questions_that_the_loader_makes(shared, name):
    """lighteval's rows pass `Benchmark.question`, the runner's `load_questions`: the same ids, problems and golds."""
    benchmark = BENCHMARKS[name]
    source = benchmark.source(shared / "data", max_questions=40)
    with open(source.path, encoding="utf-8") as file:
        rows = [json.loads(line) for _, line in zip(range(40), file, strict=False)]
    found = [benchmark.question(row) for row in rows]
    expected = load_questions(source, gradable=lambda *_: True).questions
    assert [(q.id, q.problem, q.answer, q.kind) for q in found] == [
        (q.id, q.problem, q.answer, q.kind) for q in expected
    ]


def test_the_tasks_ship_with_the_package():
    """tests/test_packaging.py checks that the wheel carries every file of eval_tasks."""
    assert "eval_tasks" in resources.KINDS
    assert resources.path("eval_tasks", "benchmarks.py").is_file()


def test_what_the_lighteval_tasks_need_of_the_package_imports_neither_torch_nor_trl():
    """A stock lighteval comes with other versions of both."""
    source = resources.path("eval_tasks", "benchmarks.py").read_text(encoding="utf-8")
    imports = "\n".join(line for line in source.splitlines() if line.startswith("from meml_mel"))
    assert imports
    heavy = "{'torch', 'trl', 'transformers', 'accelerate', 'lighteval'} & set(sys.modules)"
    code = f"import sys\n{imports}\nprint(sorted({heavy}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


SCRIPT = """
import json, sys
from meml_mel.evaluation.lighteval_adapter import main

model, swap = sys.argv[1], sys.argv[2]
base = f"model_name={model},dtype=float32,device=cpu,batch_size=4,add_special_tokens=False"
warm = base + ",generation_parameters={temperature:0.8}"
found = []
def run(args, task):
    results, details = main(["accelerate", args, task, "--output-dir", "out"])
    found.append({"numbers": results["results"][task.replace("|", ":")],
                  "texts": [d.model_response.text for d in details[task]]})
run(base, "mel_gsm8k|0")
run(warm, "mel_gsm8k_sampled|0")
try:
    run(warm, "mel_gsm8k|0")
except ValueError as error:
    found.append(str(error))
import shutil
shutil.copy(swap, model + "/model.safetensors")
run(base, "mel_gsm8k|0")
json.dump(found, open("found.json", "w"))
"""


def test_lighteval_gives_the_same_numbers_greedily_and_never_old_answers(tmp_path, monkeypatch):
    pytest.importorskip("lighteval", reason="lighteval is not installed: pip install 'meml-mel[eval]'")
    model = tmp_path / "model"
    shutil.copytree(DEMO, model)
    generation = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**generation, "do_sample": True}))
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    words = ["evaluate", str(model), "--tasks", "gsm8k", "--samples", "0", "--max-tokens", "60"]
    words += ["--workers", "1", "--device", "cpu"]
    write_questions(tmp_path / "data", ["1"] * 6)
    assert cli.main([*words, "--out", str(tmp_path / "first")]) == 0
    import pyarrow.parquet as pq

    rows = pq.read_table(tmp_path / "first" / "gsm8k" / "responses.parquet").to_pylist()
    # golds that the model's own answers meet in every second question, so that right and wrong both occur
    golds = [row["extracted"] if i % 2 and row["extracted"] else "987654" for i, row in enumerate(rows)]
    write_questions(tmp_path / "data", golds)
    assert cli.main([*words, "--out", str(tmp_path / "ours")]) == 0
    ours = read_results(tmp_path / "ours" / "gsm8k")
    rows = pq.read_table(tmp_path / "ours" / "gsm8k" / "responses.parquet").to_pylist()

    from safetensors.torch import load_file, save_file

    swapped = {name: tensor + 0.05 for name, tensor in load_file(model / "model.safetensors").items()}
    save_file(swapped, tmp_path / "other.safetensors", metadata={"format": "pt"})
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "1",
        "MEML_MEL_N": "4",
        "MEML_MEL_TEMPERATURE": "0.8",
        "MEML_MEL_K": "1,2,4",
        "MEML_MEL_MAX_TOKENS": "60",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(model), str(tmp_path / "other.safetensors")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    greedy, sampled, refused, other = json.loads((tmp_path / "found.json").read_text())
    cell = ours["cells"][0]
    numbers = greedy["numbers"]
    assert (numbers["pass@1:k"], numbers["pass@1:n"]) == (cell["k"], cell["n"]) and cell["n"] == 6
    assert [numbers["pass@1:low"], numbers["pass@1:high"]] == pytest.approx(cell["interval"])
    rates = ours["rates"][0]
    assert numbers["truncated"] == pytest.approx(rates["truncated_rate"])
    assert numbers["mean_tokens"] == pytest.approx(rates["mean_tokens"])
    assert sorted(text for [text] in greedy["texts"]) == sorted(row["text"] for row in rows)
    assert 0 < cell["k"] < 6
    drawn = sampled["numbers"]
    assert (drawn["avg@4:n"], drawn["pass@2:n"], drawn["maj@4:n"]) == (24, 6, 6)
    assert drawn["avg@4"] <= drawn["pass@2"] <= drawn["pass@4"]
    assert "is for temperature 0, and the model arguments say 0.8" in refused
    assert other["texts"] != greedy["texts"]  # other weights at the same path
