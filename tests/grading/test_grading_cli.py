"""`meml-mel grade`."""

from __future__ import annotations

import io
import json
import sys

import pytest

from meml_mel.grading.cli import main


def answers(capsys) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--gold", "1/2", "--answer", "0.5"], "right: 0.5"),
        (["--gold", "1/2", "--answer", r"so it is \boxed{0.6}"], "wrong (different): 0.6"),
        (["--gold", "1/2", "--answer", r"\boxed{"], "wrong (no_answer)"),
        (["--gold", "???", "--answer", "5"], "ungradable (unparsable_gold)"),
        (["--gold", "B", "--answer", "B) 16", "--kind", "choice"], "right: B"),
        (["--gold", "yes", "--answer", "true", "--kind", "boolean"], "right: yes"),
        (["--gold", "1", "--gold", "2", "--answer", "2, 1"], "right: 2, 1"),
        (["--gold", "yes", "--answer", "may\x01be", "--kind", "boolean"], r"wrong (different): may\x01be"),
    ],
)
def test_one_answer(capsys, arguments, expected):
    assert main(arguments) == 0
    assert capsys.readouterr().out == expected + "\n"


def test_one_answer_as_json(capsys):
    assert main(["--gold", "x^2-1", "--answer", "(x-1)^2", "--json"]) == 0
    assert capsys.readouterr().out == '{"verdict": "wrong", "extracted": "(x-1)^2", "reason": "different"}\n'


LINES = [
    (b'{"gold": "1/2", "answer": "so \\\\boxed{0.5}"}', ("right", "0.5", None)),
    (b'{"gold": "5", "answer": "the answer is 6"}', ("wrong", "6", "different")),
    (b"not json", ("ungradable", None, "unparsable_gold")),
    (b"", ("ungradable", None, "unparsable_gold")),
    (b"[1, 2]", ("ungradable", None, "unparsable_gold")),
    (b"[" * 100_000, ("ungradable", None, "unparsable_gold")),
    (b'{"answer": "5"}', ("ungradable", None, "unparsable_gold")),
    (b'{"gold": {"a": 1}, "answer": "5"}', ("ungradable", None, "unparsable_gold")),
    (b'{"gold": "5"}', ("wrong", None, "no_answer")),
    (b'{"gold": "5", "answer": ["5"]}', ("wrong", None, "no_answer")),
    (b'{"gold": 5, "answer": 5.0}', ("right", "5.0", None)),
    (b'{"gold": ["1", 2], "answer": "2, 1"}', ("right", "2, 1", None)),
    (b'{"gold": "5", "answer": "5", "truncated": true}', ("wrong", "5", "truncated")),
    (b'{"gold": "B", "answer": "(B)", "kind": "choice"}', ("right", "B", None)),
    (b'{"gold": true, "answer": "yes", "kind": "boolean"}', ("right", "yes", None)),
    (b'{"gold": "5", "answer": "5", "kind": "maths"}', ("ungradable", None, "unparsable_gold")),
    (b'{"gold": "5", "answer": "5", "kind": ["math"]}', ("ungradable", None, "unparsable_gold")),
    (b'{"gold": "5", "answer": "\\boxed{5}"}', ("wrong", "\x08oxed{5}", "different")),  # "\b" is a backspace
    (b'{"gold": "5", "answer": "\x00\\u0000"}', ("wrong", None, "no_answer")),
    (b'{"gold": "5", "answer": "\xff\xfe \\\\boxed{5}"}', ("right", "5", None)),
    (b'{"gold": "5", "answer": "\\ud800"}', ("wrong", "\ud800", "different")),
    (b'{"gold": "5", "answer": "' + b"9" * 500_000 + b'"}', None),
    (b"\x00\xff", ("ungradable", None, "unparsable_gold")),
]


@pytest.mark.parametrize("source", ["file", "standard input"])
def test_a_file_of_anything_is_answered_line_by_line(capsys, tmp_path, monkeypatch, source):
    lines = LINES if source == "file" else LINES[:3]
    content = b"\n".join(line for line, _ in lines)
    if source == "file":
        name = tmp_path / "answers.jsonl"
        name.write_bytes(content)
    else:
        name = "-"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert main(["--jsonl", str(name)]) == 0
    got = answers(capsys)
    assert len(got) == len(lines)
    for answer, (line, expected) in zip(got, lines, strict=True):
        assert list(answer) == ["verdict", "extracted", "reason"]
        if expected is not None:
            assert tuple(answer.values()) == expected, line[:60]
        else:
            assert answer["verdict"] == "wrong" and len(answer["extracted"] or "") < 3000


def test_complaints_name_their_line(capsys, tmp_path):
    name = tmp_path / "answers.jsonl"
    name.write_text('{"gold": "5", "answer": "5"}\nnot json\n{"gold": "5", "answer": "5", "kind": "maths"}\n')
    assert main(["--jsonl", str(name)]) == 0
    assert (
        capsys.readouterr().err
        == "line 2: not JSON\nline 3: unknown kind 'maths': use one of math, choice, boolean\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --gold and --answer, or --jsonl FILE"),
        (["--gold", "5"], "--gold and --answer belong together"),
        (["--gold", "5", "--answer", "5", "--jsonl", "x"], "give --gold and --answer, or --jsonl FILE"),
        (["--jsonl", "no/such/file"], "no/such/file: No such file or directory"),
        (["--gold", "5", "--answer", "5", "--workers", "0"], "workers=0"),
    ],
)
def test_wrong_use_is_explained(capsys, arguments, message):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
