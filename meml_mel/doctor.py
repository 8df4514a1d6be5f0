"""`meml-mel doctor [MODEL] [--json]`: is this machine ready, and what is a model's tokenizer like?

Exit 1 when something would stop a run: a missing package, an untested TRL, a grader that answers wrongly, a
model that was named and is not here. The rest are warnings and facts. The Hub token is never shown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

Status = Literal["ok", "note", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding: `fail` stops a run, `warn` may spoil one, `note` is worth knowing."""

    name: str
    status: Status
    detail: str


@dataclass(frozen=True)
class Tested:
    """The range of a package's versions that is tested, and what being outside it (or absent) means."""

    versions: str
    outside: Status = "warn"
    needed: bool = True


# docs/dependencies.md says why the bounds are what they are.
TESTED = {
    "trl": Tested(">=1.16,<1.17", outside="fail"),
    "torch": Tested(">=2.6,<2.14"),
    "transformers": Tested(">=5.17,<6"),
    "accelerate": Tested(">=1.11"),
    "datasets": Tested(">=4.7"),
    "huggingface_hub": Tested(">=1.31,<3"),
    "math-verify": Tested(">=0.5.2,<0.10"),
    "latex2sympy2_extended": Tested(">=1.0.6"),
    "peft": Tested(">=0.17", needed=False),
    "lighteval": Tested(">=0.13,<0.14", needed=False),
    "vllm": Tested(">=0.22,<0.33", needed=False),
}
# Packages whose pins on each other are worth a look, as installed.
PINS = ("trl", "transformers", "math-verify", "lighteval", "vllm")
NOTES = {
    ("lighteval", "latex2sympy2_extended"): "lighteval 0.13 checks this at run time; docs/dependencies.md",
    ("lighteval", "xxhash"): "with xxhash 4 lighteval's cache fails; install 'xxhash<4'",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", help="a local folder, or a Hub id in the cache: its tokenizer is read"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    checks = list(examine(args.model))
    failed = any(check.status == "fail" for check in checks)
    if args.json:
        print(json.dumps({"ok": not failed, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        print(render(checks))
    return int(failed)


def examine(model: str | None = None) -> Iterator[Check]:
    """All findings, in the order they are printed."""
    yield from python_and_packages(installed_version)
    yield from pins(installed_version, requirements)
    yield from devices()
    yield hub_login()
    yield from grader()
    yield from disk()
    if model is not None:
        yield from tokenizer(model)


def render(checks: list[Check]) -> str:
    width = max(len(check.name) for check in checks)
    lines = [f"{check.status:<5} {check.name:<{width}}  {check.detail}" for check in checks]
    failed = sum(check.status == "fail" for check in checks)
    warned = sum(check.status == "warn" for check in checks)
    lines.append(f"\n{failed} problems, {warned} warnings")
    return "\n".join(lines)


def installed_version(name: str) -> str | None:
    found = _distribution(name)
    return None if found is None else found.version


def requirements(name: str) -> list[str]:
    """A distribution's requirements as it states them; [] where it is not installed."""
    found = _distribution(name)
    return [] if found is None else found.requires or []


def _distribution(name: str) -> metadata.Distribution | None:
    """The installed distribution of a package; vLLM's CPU build has a name of its own."""
    for candidate in (name, f"{name}-cpu") if name == "vllm" else (name,):
        try:
            return metadata.distribution(candidate)
        except metadata.PackageNotFoundError:
            continue
    return None


def python_and_packages(version: Callable[[str], str | None]) -> Iterator[Check]:
    """`version(name)` -> installed version or None."""
    python = platform.python_version()
    fits = SpecifierSet(">=3.11").contains(python)
    yield Check("python", "ok" if fits else "fail", python if fits else f"{python}; 3.11 or newer is needed")
    for name, tested in TESTED.items():
        found = version(name)
        if found is None and tested.needed:
            yield Check(name, "fail", f"not installed; pip install '{name}{tested.versions}'")
        elif found is None:
            yield Check(name, "note", f"not installed (optional; tested {tested.versions})")
        elif SpecifierSet(tested.versions).contains(found, prereleases=True):
            yield Check(name, "ok", found)
        else:
            yield Check(name, tested.outside, f"{found}, outside the tested {tested.versions}")
    if (found := version("math-verify")) and SpecifierSet("<0.9").contains(found):
        yield Check(
            "math-verify",
            "note",
            f"{found}: 0.9.0 grades better; with lighteval beside it only uv can install it",
        )
    if (found := version("vllm")) and SpecifierSet(">0.31,<0.33").contains(found):
        yield Check("vllm", "note", f"{found}: TRL 1.16 warns above 0.31")


def pins(version: Callable[[str], str | None], requires: Callable[[str], list[str]]) -> Iterator[Check]:
    """Requirements of installed packages that other installed packages do not meet."""
    for name in PINS:
        if version(name) is None:
            continue
        for text in requires(name):
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            found = version(requirement.name)
            if found is None or requirement.specifier.contains(found, prereleases=True):
                continue
            note = NOTES.get((name, requirement.name), "")
            known = (name, requirement.name) == ("lighteval", "latex2sympy2_extended")
            yield Check(
                f"{name} with {requirement.name}",
                "note" if known else "warn",
                f"{name} {version(name)} asks for {requirement.specifier}, {found} is installed"
                + (f"; {note}" if note else ""),
            )


def devices() -> Iterator[Check]:
    try:
        import torch
    except ImportError as error:
        yield Check("device", "fail", f"torch can't be imported: {error}")
        return
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16: set bf16: false"
        for index in range(count):
            properties = torch.cuda.get_device_properties(index)
            free, total = torch.cuda.mem_get_info(index)
            yield Check(f"cuda:{index}", "ok", f"{properties.name}, {_gib(total)}, {_gib(free)} free, {bf16}")
        if count > 1:
            yield Check("launcher", "note", f"start training with accelerate launch --num_processes {count}")
        return
    if torch.backends.mps.is_available():
        yield Check("device", "ok", "Apple GPU (mps), memory shared with the system")
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = torch.get_num_threads()
    yield Check(
        "device",
        "ok",
        f"CPU only, {cores} cores, {threads} torch threads; set use_cpu: true; bf16 only pays on CPUs with AMX",
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would carry the token along to whatever host a redirect names."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def hub_login(timeout: float = 5.0) -> Check:
    """Is there a token, and does the Hub know it? One request with a short timeout; the token is never shown."""
    try:
        from huggingface_hub import constants, get_token
    except ImportError:
        return Check("hub login", "note", "not checked: huggingface_hub is missing")
    token = get_token()
    if not token:
        return Check("hub login", "note", "no token; needed for gated models and for uploads: hf auth login")
    if constants.HF_HUB_OFFLINE:
        return Check("hub login", "note", "a token is set; not checked, HF_HUB_OFFLINE is on")
    request = urllib.request.Request(
        f"{constants.ENDPOINT}/api/whoami-v2", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout) as answer:
            name = json.load(answer).get("name")
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return Check("hub login", "warn", "a token is set, and the Hub refuses it: hf auth login")
        return Check("hub login", "note", f"a token is set; not checked, the Hub answers {error.code}")
    except (OSError, ValueError):
        return Check("hub login", "note", "a token is set; not checked, the Hub is not reached from here")
    return Check("hub login", "ok", f"logged in as {name}")


# (kind, gold, answer, verdict): what the mathematics says.
SELF_TEST = (
    ("math", "4", r"2 + 2 gives \boxed{4}.", "right"),
    ("math", "3", r"\boxed{4}", "wrong"),
    ("math", r"\frac{1}{2}", r"\boxed{0.5}", "right"),
    ("math", "1200", r"\boxed{1,200}", "right"),
    ("math", "72", "48 + 24 = 72\n#### 72", "right"),
    ("math", r"(x+1)^2", r"\boxed{x^2+2x+1}", "right"),
    ("math", "x=1", r"\boxed{x=2}", "wrong"),
    ("math", "7", "I cannot solve this.", "wrong"),
    ("math", "", r"\boxed{1}", "ungradable"),
    ("math", "x+1", r"\boxed{\sum_{k=1}^{10^{9}} \frac{1}{k^2+x}}", "wrong"),  # never ends: must be cut off
    ("choice", "B", r"\boxed{B}", "right"),
    ("choice", "B", r"\boxed{C}", "wrong"),
    ("boolean", "yes", r"\boxed{yes}", "right"),
    ("boolean", "no", r"\boxed{yes}", "wrong"),
)


def grader() -> Iterator[Check]:
    """The self-test, in processes as in a run: a grader that lies, or hangs, makes a run worthless."""
    from .grading.pool import GradeItem, GradingPool

    try:
        with GradingPool(workers=1, timeout=2.0) as pool:
            items = [GradeItem(gold, answer, kind) for kind, gold, answer, _ in SELF_TEST]  # type: ignore[arg-type]
            found = [grade.verdict for grade in pool.grade(items)]
    except (RuntimeError, OSError) as error:
        yield Check("grader", "fail", str(error))
        return
    wrong = [
        f"{kind} {gold!r} / {answer!r} is {verdict}, graded {got}"
        for (kind, gold, answer, verdict), got in zip(SELF_TEST, found, strict=True)
        if got != verdict
    ]
    if wrong:
        yield Check("grader", "fail", f"{len(wrong)} of {len(SELF_TEST)} cases: {'; '.join(wrong)}")
    else:
        yield Check("grader", "ok", f"{len(SELF_TEST)} of {len(SELF_TEST)} cases")


def disk() -> Iterator[Check]:
    """Room where runs and the Hub's cache are written; a checkpoint is about 16 bytes a parameter."""
    places: dict[str, str] = {"here": os.getcwd()}
    try:
        from huggingface_hub import constants

        places["Hub cache"] = constants.HF_HUB_CACHE
    except ImportError:
        pass
    for name, place in places.items():
        folder = Path(place)
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        yield Check(f"disk, {name}", "ok" if free > 10 * 2**30 else "warn", f"{_gib(free)} free")


def tokenizer(model: str) -> Iterator[Check]:
    """End tokens and template of a model on this disk (a folder, or the Hub's cache)."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    from .prompts.format import decide_format, end_token_ids

    try:
        loaded: Any = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        yield Check("model", "fail", f"no tokenizer of {model} on this disk ({reason})")
        return
    yield Check("model", "ok", f"{model}: {type(loaded).__name__}, {len(loaded)} tokens")
    configs: list[Any] = []
    for kind in (AutoConfig, GenerationConfig):
        try:
            configs.append(kind.from_pretrained(model, local_files_only=True))
        except (OSError, ValueError):
            yield Check("model", "note", f"no {kind.__name__.removeprefix('Auto')} beside the tokenizer")
    yield from end_tokens(loaded, configs, end_token_ids)
    yield Check("prompt format", "ok", decide_format(loaded, "auto", model).describe())
    if loaded.chat_template and opens_thinking(loaded):
        yield Check(
            "template",
            "note",
            "it opens <think> itself: a response starts inside the thought, and has no opening tag",
        )


def end_tokens(
    loaded: Any, configs: list[Any], end_token_ids: Callable[..., tuple[int, ...]]
) -> Iterator[Check]:
    try:
        ids = end_token_ids(loaded, *configs)
    except ValueError as error:
        yield Check("end tokens", "fail", str(error))
        return
    names = ", ".join(f"{loaded.convert_ids_to_tokens(i)} ({i})" for i in ids)
    yield Check("end tokens", "ok", names)
    asked = {i for config in configs for i in _ids(config)}
    if asked and loaded.eos_token_id not in asked:
        yield Check(
            "end tokens",
            "note",
            "config and tokenizer name different ones; training stops at all of the above",
        )
    if loaded.pad_token_id is None:
        yield Check("padding", "note", "no padding token; an end token is used")


def _ids(config: Any) -> list[int]:
    value = getattr(config, "eos_token_id", None)
    return [] if value is None else [value] if isinstance(value, int) else list(value)


def opens_thinking(loaded: Any) -> bool:
    """Does the chat template end a prompt with an opened `<think>`? (open-r1 #235)"""
    messages: list[Mapping[str, str]] = [{"role": "user", "content": "1 + 1?"}]
    text = loaded.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return text.rstrip().endswith("<think>")


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
