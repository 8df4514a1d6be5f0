"""`meml-mel demo` through its command line, shortened: every stage, every output, and what a rerun says."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from meml_mel.demo.run import ARMS, Line, shown_command
from meml_mel.resources import recipes


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    words = [
        "--out",
        str(out),
        "--arms",
        "meml_mel",
        "--sft-steps",
        "1",
        "--rl-steps",
        "2",
        "--test-questions",
        "4",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "meml_mel.cli", "demo", *words], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done


def test_the_whole_loop_leaves_models_records_evaluations_and_a_summary(demo):
    out, done = demo
    summary = json.loads((out / "demo.json").read_text())
    assert summary["accuracy"]["meml_mel"]["pass@1"]["all"]["n"] == 12
    assert summary["analyses"]["sft"]["of"] > 0
    assert (out / "meml_mel/final/model.safetensors").is_file()
    assert len((out / "meml_mel/metrics.jsonl").read_text().splitlines()) == 2
    assert (out / "evaluations/meml_mel/results.json").is_file() and (out / "curves.png").is_file()
    assert "after SFT" in done.stdout and "summed over all steps" in done.stdout


def test_its_records_are_a_data_set(demo):
    import datasets

    out, _ = demo
    files = str(out / "meml_mel/records/meta_experience/*.parquet")
    records = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(out / "cache"))
    assert {"problem", "analysis_text", "retained"} <= set(records.column_names) and len(records) > 0


def test_its_own_output_fits_80_columns_and_a_log_file(demo):
    out, done = demo
    lines = [line for line in done.stdout.splitlines() if str(out) not in line]
    assert max(map(len, lines)) <= 80 and "\r" not in done.stdout


def test_a_second_demo_does_not_write_over_the_first(demo):
    out, _ = demo
    again = subprocess.run(
        [sys.executable, "-m", "meml_mel.cli", "demo", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.returncode == 2 and "holds a demo already" in again.stderr


def test_every_arm_has_its_recipe():
    assert {f"demo/{name}" for name in (*ARMS, "sft")} <= set(recipes())


def test_a_command_is_shown_as_a_shell_takes_it():
    text = shown_command(["-m", "x", "--a", "it's", "--b"])
    assert text == "$ python -m x \\\n    --a 'it'\"'\"'s' \\\n    --b"


def test_a_terminal_line_is_written_over_and_a_log_gets_whole_lines():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen, log = Terminal(), io.StringIO()
    for stream in (screen, log):
        line = Line(stream)
        line.show("step 1 long", keep=False)
        line.show("step 2", keep=True)
        line.end()
    assert screen.getvalue() == "\rstep 1 long\rstep 2     \n"
    assert log.getvalue() == "step 2\n"


def test_the_pages_tables_are_those_of_the_runs():
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs/demo.md").read_text()
    runs = sorted(str(path) for path in (root / "docs/demo").glob("seed*.json"))
    printed = subprocess.run(
        [sys.executable, str(root / "scripts/demo_table.py"), *runs],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(runs) == 3 and printed.stdout.strip() in page
