"""What both entry points share: the model and its tokenizer, and the facts of a run (`run.json`)."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.coerce import ConfigError
from ..config.run import RunConfig
from ..data.source import DataError
from ..prompts.format import PromptFormat, decide_format, end_token_ids
from ..prompts.library import PromptError
from ..resources import ResourceError
from ..rlvr.checkpoint import ResumeError, write_json
from ..versions import installed

if TYPE_CHECKING:
    from ..data.load import DataReport

# Whose versions decide what a run does.
PACKAGES = (
    "meml-mel",
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "datasets",
    "huggingface_hub",
    "tokenizers",
    "peft",
    "math-verify",
    "latex2sympy2_extended",
    "vllm",
)
# What the user can mend: told in a line or two, without a traceback.
INPUT_ERRORS = (ConfigError, DataError, PromptError, ResourceError, ResumeError)
RESOLVED = "config.resolved.yaml"
RUN = "run.json"
FINAL = "final"


def refuse_occupied(folder: Path, resume: str | None) -> None:
    """ConfigError where a first run's files lie there and this one is not to go on from them."""
    if not resume and (folder / "metrics.jsonl").exists():
        raise ConfigError(
            f"output_dir {str(folder)!r} holds a run already: go on with --resume_from_checkpoint true, name "
            "another folder, or remove it"
        )


def load_tokenizer(config: RunConfig) -> Any:
    """The model's tokenizer, with a padding token (its end token where it has none of its own).

    Raises ConfigError where the model is neither a folder here nor to be had from the Hub.
    """
    from transformers import AutoTokenizer

    name = config.model["model_name_or_path"]
    if _looks_local(name) and not Path(name).is_dir():
        raise ConfigError(f"model_name_or_path {name!r} is no folder here; make it, or name a Hub id")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            name, revision=config.model["model_revision"], trust_remote_code=config.trl["trust_remote_code"]
        )
    except OSError as error:
        raise ConfigError(
            f"model_name_or_path {name!r}: no tokenizer to be had ({str(error).splitlines()[0]}). Name a local "
            "folder, log in with `hf auth login` for a private model, or check the network"
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _looks_local(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or Path(name).exists()


def prompt_format(config: RunConfig, tokenizer: Any) -> PromptFormat:
    """Chat template or plain text, as `prompts.format` says or by the model's name."""
    try:
        return decide_format(tokenizer, config.prompts.format, config.model["model_name_or_path"])
    except ValueError as error:
        raise ConfigError(f"prompts.format: {error}") from error


def model_init_kwargs(config: RunConfig) -> dict[str, Any]:
    """ModelConfig's keys as TRL's trainers take them beside a model's name; `model_init_kwargs` wins."""
    given = config.trl.get("model_init_kwargs") or {}
    return {
        "revision": config.model["model_revision"],
        "dtype": config.model["dtype"],
        "attn_implementation": config.model["attn_implementation"],
        "trust_remote_code": config.trl["trust_remote_code"],
        **given,
    }


def load_model(config: RunConfig, tokenizer: Any) -> Any:
    """The policy, with its generation config set (`set_generation_defaults`); ConfigError where it can't be had."""
    from transformers import AutoModelForCausalLM

    name, kwargs = config.model["model_name_or_path"], model_init_kwargs(config)
    try:
        model = AutoModelForCausalLM.from_pretrained(name, **kwargs)
    except OSError as error:
        raise ConfigError(f"model_name_or_path {name!r}: {str(error).splitlines()[0]}") from error
    set_generation_defaults(model, tokenizer)
    return model


def revision_of(config: RunConfig, model: Any) -> str:
    """What records call the weights: the name with its commit where it came from the Hub."""
    commit = getattr(model.config, "_commit_hash", None) or config.model["model_revision"]
    name = config.model["model_name_or_path"]
    return f"{name}@{commit}" if commit else name


def adapters(config: RunConfig) -> dict[str, Any]:
    """`peft_config` and `quantization_config` for TRL's trainers, from ModelConfig's keys; None where off."""
    from trl import ModelConfig, get_peft_config, get_quantization_config

    if config.model["use_peft"]:
        try:
            metadata.version("peft")
        except metadata.PackageNotFoundError:
            raise ConfigError("use_peft: true needs the peft package: pip install 'meml-mel[peft]'") from None
    model = ModelConfig(**config.model)
    return {"peft_config": get_peft_config(model), "quantization_config": get_quantization_config(model)}


def set_generation_defaults(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Give the model's generation config every end token, the padding token and `do_sample`; answers the ends.

    Base models of the Qwen family end with either of two tokens (Qwen3 #927), and lighteval 0.13 refuses or
    ignores a temperature where `do_sample` is not in the file.
    """
    ends = end_token_ids(tokenizer, model.config, model.generation_config)
    generation = model.generation_config
    generation.eos_token_id = list(ends)
    generation.pad_token_id = tokenizer.pad_token_id
    generation.do_sample = True
    return ends


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Commit, and whether files differ from it, of the checkout the package runs from; None outside one."""
    folder = folder or Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != folder:
            return None  # installed inside somebody else's repository
        return {"sha": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.CalledProcessError):
        return None


def launch_command(stage: str, argv: Sequence[str]) -> str:
    """The command as it can be typed again; machine paths of the interpreter are left out."""
    return shlex.join(["python", "-m", f"meml_mel.train.{stage}", *argv])


def data_facts(report: DataReport) -> dict[str, Any]:
    """A data report as JSON: counts, revision and hash; the lists of rows as their lengths."""
    facts = asdict(report) if is_dataclass(report) else dict(report)
    return {name: len(value) if isinstance(value, list | tuple) else value for name, value in facts.items()}


def run_facts(
    config: RunConfig, argv: Sequence[str], data: Mapping[str, Any], format: PromptFormat, **more: Any
) -> dict[str, Any]:
    """Everything `run.json` holds about a launch, JSON-serialisable.

    Args:
        data: name of a source to its facts (`data_facts`).
        more: what the stage adds.
    """
    from ..prompts.library import Prompts

    return {
        "stage": config.stage,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": launch_command(config.stage, argv),
        "config_digest": config.digest(),
        "seed": config.trl["seed"],
        "data_seed": config.trl["data_seed"],
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "git": git_state(),
        "versions": installed(PACKAGES),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device_name(config),
        "model": {
            "name": config.model["model_name_or_path"],
            "revision": config.model["model_revision"],
        },
        "prompts": Prompts.load(config.prompts.templates()).versions,
        "prompt_format": format.describe(),
        "data": dict(data),
        **more,
    }


def device_name(config: RunConfig) -> str:
    """What the run computes on, in words."""
    import torch

    if config.trl["use_cpu"] or not torch.cuda.is_available():
        return f"CPU, {torch.get_num_threads()} threads"
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"


def write_run(folder: Path, facts: Mapping[str, Any], resumed_from: int | None = None) -> None:
    """Write `run.json`. A resumed run keeps the first launch's facts and adds its own under `resumed`."""
    path = folder / RUN
    if resumed_from is not None and path.exists():
        first = json.loads(path.read_text(encoding="utf-8"))
        first.setdefault("resumed", []).append({"from_step": resumed_from, **facts})
        facts = first
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, facts)


def fail(error: Exception, debug: bool) -> int:
    """Print a configuration error as what it is; its traceback with `--debug` alone. Answers the exit status."""
    if debug:
        raise error
    print(f"error: {error}", file=sys.stderr)
    return 2
