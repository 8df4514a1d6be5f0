"""`meml-mel doctor`: findings from versions, a token that is never shown, tokenizers as they are."""

from __future__ import annotations

import argparse
import http.server
import json
import threading
import tomllib
from pathlib import Path
from typing import ClassVar

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from meml_mel import doctor
from meml_mel.doctor import Check

TOKEN = "hf_" + "abcdefghij" * 3


def statuses(checks, name):
    return [check.status for check in checks if check.name == name]


def test_trl_outside_its_tested_range_is_a_failure_and_others_warn():
    versions = {name: "1.16.2" if name == "trl" else "999" for name in doctor.TESTED}
    checks = list(doctor.python_and_packages(versions.get))
    assert statuses(checks, "trl") == ["ok"]
    assert statuses(checks, "torch") == ["warn"]
    for other in ("1.15.9", "1.17.0"):
        checks = list(doctor.python_and_packages({**versions, "trl": other}.get))
        assert statuses(checks, "trl") == ["fail"]


def test_a_missing_package_fails_only_where_it_is_needed():
    checks = list(doctor.python_and_packages(lambda name: None))
    assert statuses(checks, "torch") == ["fail"]
    assert statuses(checks, "vllm") == ["note"]
    assert "pip install" in next(c.detail for c in checks if c.name == "trl")


def test_the_ranges_are_those_of_the_package_itself():
    """The doctor must not know other bounds than pyproject.toml."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    asked = {}
    for text in [*project["dependencies"], *extras]:
        requirement = Requirement(text)
        asked.setdefault(canonicalize_name(requirement.name), requirement.specifier)
    for name, tested in doctor.TESTED.items():
        if name == "latex2sympy2_extended":  # math-verify's own, not asked for
            continue
        assert SpecifierSet(tested.versions) == asked[canonicalize_name(name)], name


def test_unmet_pins_between_installed_packages_are_found():
    versions = {
        "lighteval": "0.13.0",
        "latex2sympy2-extended": "1.11.0",
        "vllm": "0.31.0",
        "transformers": "5.24.0",
    }
    requires = {
        "lighteval": ["latex2sympy2-extended==1.0.6", "absent>=1", "transformers>=4.54"],
        "vllm": ["transformers<5.18", 'torch==1; extra == "gpu"'],
    }
    checks = list(doctor.pins(versions.get, lambda name: requires.get(name, [])))
    [vllm] = [c for c in checks if c.name == "vllm with transformers"]
    assert vllm.status == "warn" and "<5.18" in vllm.detail and "5.24.0" in vllm.detail
    [lighteval] = [c for c in checks if c.name.startswith("lighteval")]
    assert "==1.0.6" in lighteval.detail
    assert len(checks) == 2


def test_the_graders_self_test_passes_and_finds_a_lying_grader(monkeypatch):
    assert [c.status for c in doctor.grader()] == ["ok"]
    from meml_mel.grading import Grade

    monkeypatch.setattr(
        "meml_mel.grading.pool.GradingPool.grade", lambda _, items: [Grade("right")] * len(items)
    )
    [check] = doctor.grader()
    assert check.status == "fail" and "'3'" in check.detail


def test_a_grader_that_cannot_start_is_a_failure(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    [check] = doctor.grader()
    assert check.status == "fail" and "does not start" in check.detail


# -- the Hub -------------------------------------------------------------------------------------------------


class Hub(http.server.BaseHTTPRequestHandler):
    answer: tuple[int, bytes, dict[str, str]] = (200, b'{"name": "someone"}', {})
    seen: list[str | None]

    def do_GET(self):
        type(self).seen.append(self.headers.get("Authorization"))
        status, body, headers = self.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(monkeypatch):
    from huggingface_hub import constants

    class Handler(Hub):
        seen: ClassVar = []

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield Handler
    server.shutdown()
    server.server_close()


def test_a_login_is_checked_with_the_hub_and_the_token_not_shown(hub):
    check = doctor.hub_login()
    assert (check.status, check.detail) == ("ok", "logged in as someone")
    assert hub.seen == [f"Bearer {TOKEN}"]
    hub.answer = (401, b"", {})
    check = doctor.hub_login()
    assert check.status == "warn" and "hf auth login" in check.detail and TOKEN not in check.detail


def test_a_redirect_does_not_carry_the_token_away(hub):
    hub.answer = (302, b"", {"Location": "/elsewhere"})
    assert doctor.hub_login().status == "note"
    assert len(hub.seen) == 1


def test_without_a_network_or_a_token_nothing_is_claimed(monkeypatch, hub):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    assert "not checked" in doctor.hub_login(timeout=2).detail
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "not checked" in doctor.hub_login().detail
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert "no token" in doctor.hub_login().detail
    assert hub.seen == []


# -- a model -------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path):
    """A folder with a tokenizer of five words, its config naming another end token."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["a", "b", "<unk>", "<|im_end|>", "<|endoftext|>"])}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<unk>")),
        eos_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=["<|endoftext|>"],
    )
    tokenizer.chat_template = "{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}"
    folder = tmp_path / "tiny"
    tokenizer.save_pretrained(folder)
    LlamaConfig(eos_token_id=4).save_pretrained(folder)
    return folder


def test_a_models_end_tokens_template_and_opened_thought_are_told(tiny):
    checks = list(doctor.tokenizer(str(tiny)))
    ends = [c.detail for c in checks if c.name == "end tokens"]
    assert "<|im_end|> (3)" in ends[0] and "<|endoftext|> (4)" in ends[0]
    assert "different ones" in ends[1]
    assert any("chat template" in c.detail for c in checks if c.name == "prompt format")
    assert any("<think>" in c.detail for c in checks if c.name == "template")
    assert all(c.status != "fail" for c in checks)


def test_the_real_qwen3_tokenizer(shared):
    checks = list(doctor.tokenizer(str(shared / "tokenizers" / "qwen3")))
    ends = next(c.detail for c in checks if c.name == "end tokens")
    assert "<|im_end|> (151645)" in ends and "<|endoftext|> (151643)" in ends


def test_a_named_model_that_is_not_here_fails(monkeypatch, tmp_path):
    [check] = doctor.tokenizer(str(tmp_path / "nothing"))
    assert check.status == "fail" and "nothing" in check.detail


# -- the command ---------------------------------------------------------------------------------------------


def test_the_command_exits_1_on_a_failure_and_writes_json(monkeypatch, capsys):
    checks = [Check("one", "ok", "fine"), Check("two", "warn", "hm")]
    monkeypatch.setattr(doctor, "examine", lambda model: iter(checks))
    args = argparse.Namespace(model=None, json=True)
    assert doctor.run(args) == 0
    assert json.loads(capsys.readouterr().out) == {
        "ok": True,
        "checks": [
            {"name": "one", "status": "ok", "detail": "fine"},
            {"name": "two", "status": "warn", "detail": "hm"},
        ],
    }
    checks.append(Check("three", "fail", "no"))
    assert doctor.run(args) == 1
    assert doctor.run(argparse.Namespace(model=None, json=False)) == 1
    assert capsys.readouterr().out.rstrip().endswith("1 problems, 1 warnings")


def test_this_environment_is_sound(monkeypatch):
    monkeypatch.setattr(doctor, "hub_login", lambda: Check("hub login", "note", "not asked in tests"))
    failures = [check for check in doctor.examine() if check.status == "fail"]
    assert failures == []
