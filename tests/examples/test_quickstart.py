"""docs/quickstart.md: every command in it runs, in order, and every message it quotes is the program's own.

A tiny model stands in for the real one, with fewer steps and shorter responses. The dry run goes through
`accelerate launch` as it is written; the others run their module in this process, since starting an interpreter
takes longer than they do.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meml_mel import cli
from meml_mel.train import rl, sft
from tests import tiny

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
LAUNCH = "accelerate launch --cpu --num_processes 1 -m meml_mel.train."
# Appended to a command: what makes it quick here. The page says that a local model is named like this.
REDUCED = {
    "sft": ["--model_name_or_path", "tiny", "--max_steps", "2"],
    "rl": ["--max_steps", "1"],
    "evaluate": ["--max-tokens", "8", "--workers", "1"],
}


def blocks() -> list[tuple[str, str | None]]:
    """(command, the message quoted below it) of the page, in order."""
    pattern = r"```sh\n(.*?)\n```(?:\n```text\n(.*?)\n```)?"
    return [(m[1], m[2]) for m in re.finditer(pattern, PAGE.read_text(encoding="utf-8"), re.DOTALL)]


def run(command: str) -> int:
    if command.endswith("--dry-run"):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            shlex.split(command), env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert "Plan of the run (rl) for 1 process" in done.stdout, done.stderr
        return done.returncode
    if command.startswith(LAUNCH):
        stage, *words = shlex.split(command.removeprefix(LAUNCH))
        more = list(REDUCED[stage])
        if stage == "rl" and "--max_completion_length" not in words:
            more += ["--max_completion_length", "16"]
        return {"sft": sft, "rl": rl}[stage].main([*words, *more])
    program, name, *words = shlex.split(command)
    assert program == "meml-mel", command
    return cli.main([name, *words, *REDUCED[name]])


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A folder with the example and a tiny model that has the real one's context of 8192 tokens."""
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "examples" / "quickstart")
    model = tiny.model()
    model.config.max_position_embeddings = 8192
    model.save_pretrained(tmp_path / "tiny")
    tiny.tokenizer().save_pretrained(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return tmp_path


def test_every_command_runs_and_every_quoted_message_is_the_programs(workspace, capsys):
    page = blocks()
    assert len(page) >= 12 and sum(message is not None for _, message in page) >= 8
    for command, message in page:
        code = run(command)
        said = capsys.readouterr()
        if message is None:
            assert code == 0, f"{command}\n{said.err}"
            continue
        assert code == 2, command
        lines = [line for line in said.err.splitlines() if line.startswith(message.splitlines()[0][:12])]
        assert lines, f"{command}\n{said.err}"
        found = said.err[said.err.index(lines[0]) :].rstrip("\n")
        assert found == message, f"{command}: the page quotes another message; the program says\n{found}"
    for stage in ("evaluation-sft", "evaluation"):
        results = json.loads((workspace / "runs" / "quickstart" / stage / "results.json").read_text())
        assert results["counted_questions"] == 10
        assert [e["name"] for e in results["experts"]] == ["brief", "careful"]
        (cell,) = [c for c in results["cells"] if (c["expert"], c["measure"]) == ("brief", "pass@1")]
        assert cell["n"] == 10


def test_the_questions_are_what_their_script_writes(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "quickstart"))
    import make_questions

    shutil.copy(ROOT / "examples" / "quickstart" / "make_questions.py", tmp_path)
    monkeypatch.setattr(make_questions, "__file__", str(tmp_path / "make_questions.py"))
    make_questions.main()
    committed = (ROOT / "examples" / "quickstart" / "questions.jsonl").read_text()
    assert (tmp_path / "questions.jsonl").read_text() == committed
    sys.modules.pop("make_questions")


def test_both_experts_solutions_are_right():
    from meml_mel.grading import grade

    lines = (ROOT / "examples" / "quickstart" / "questions.jsonl").read_text().splitlines()
    assert len(lines) == 50
    for line in map(json.loads, lines):
        for column in ("short", "prose"):
            assert grade(line["answer"], line[column]).right, line
        for left, right in re.findall(r"([\d +*-]+) = (\d+)", line["prose"]):
            assert eval(left) == int(right)


def test_the_page_shows_a_row_of_the_file():
    rows = (ROOT / "examples" / "quickstart" / "questions.jsonl").read_text().splitlines()
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert rows[1] in page


def test_the_page_names_the_commands_as_they_are():
    for command, _ in blocks():
        assert command.startswith((LAUNCH, "meml-mel evaluate ")), command
