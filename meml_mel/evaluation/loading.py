"""A model to evaluate: from a folder, from the Hub, or one that is in memory already; its prompt format; its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..prompts.format import PromptFormat, Setting, decide_format, end_token_ids
from .decoding import EvaluationError

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
ADAPTER = "adapter_config.json"


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer and prompt format. `weights` says which weights: `kind` and `sha256`."""

    model: Any
    tokenizer: Any
    format: PromptFormat
    name: str
    ends: tuple[int, ...]
    context: int | None
    weights: Mapping[str, Any]
    revision: str | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizer: Any,
        name: str = "in memory",
        format: Setting = "auto",
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> LoadedModel:
        """A model that is in memory; `weights` is hashed over its tensors."""
        return _assemble(
            model,
            tokenizer,
            name,
            format,
            template_kwargs,
            {"kind": "tensors", "sha256": tensors_hash(model)},
        )

    @classmethod
    def load(
        cls,
        source: str | Path,
        revision: str | None = None,
        format: Setting = "auto",
        template_kwargs: Mapping[str, Any] | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> LoadedModel:
        """Load a folder or a Hub id: float32 on a CPU, bfloat16 on a GPU, unless `dtype` says otherwise.

        Raises EvaluationError: no such folder, a folder without weights, no tokenizer, an adapter whose base cannot
        be had, `chat` without a chat template.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        name = str(source)
        folder = check_folder(name)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
        except (OSError, ValueError) as error:
            raise EvaluationError(_cannot("tokenizer", name, revision, error)) from error
        # Before the weights, which take longest to load.
        _decide(tokenizer, format, name, template_kwargs)
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                name, revision=revision, dtype=getattr(torch, dtype)
            )
        except (OSError, ValueError, ImportError) as error:
            raise EvaluationError(_cannot("model", name, revision, error)) from error
        commit = getattr(model.config, "_commit_hash", None)
        weights = folder_hash(folder or _snapshot(name, commit or revision))
        return _assemble(
            model.to(device), tokenizer, name, format, template_kwargs, weights, commit or revision
        )

    def describe(self) -> str:
        """One line: name, weights, device and dtype."""
        at = f" at {self.revision}" if self.revision else ""
        dtype = str(self.model.dtype).removeprefix("torch.")
        return f"model: {self.name}{at}, weights sha256 {self.weights['sha256'][:12]}, {dtype} on {self.model.device}"


def _decide(
    tokenizer: Any, format: Setting, name: str, template_kwargs: Mapping[str, Any] | None
) -> PromptFormat:
    try:
        return decide_format(tokenizer, format, name, template_kwargs)
    except ValueError as error:
        raise EvaluationError(str(error)) from error


def _assemble(
    model: Any,
    tokenizer: Any,
    name: str,
    format: Setting,
    template_kwargs: Mapping[str, Any] | None,
    weights: Mapping[str, Any],
    revision: str | None = None,
) -> LoadedModel:
    decided = _decide(tokenizer, format, name, template_kwargs)
    try:
        ends = end_token_ids(tokenizer, model.config, model.generation_config)
    except ValueError as error:
        raise EvaluationError(f"{name}: {error}") from error
    return LoadedModel(model, tokenizer, decided, name, ends, context_of(model), weights, revision)


def context_of(model: Any) -> int | None:
    """The longest sequence in tokens; None where the config names none."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return int(limit) if limit and limit > 0 else None


def check_folder(name: str) -> Path | None:
    """The folder that `name` means, or None for a Hub id. EvaluationError for a folder that holds no model."""
    folder = Path(name).expanduser()
    if not folder.exists():
        if name.startswith((".", "/", "~")) or name.count("/") != 1 or folder.parent.is_dir():
            raise EvaluationError(
                f"model {name!r}: no such folder{_beside(folder)}. Paths are relative to where you run; a Hub id is "
                "owner/name"
            )
        return None
    if not folder.is_dir():
        raise EvaluationError(f"model {name!r} is a file: name the folder that holds it, or a Hub id")
    if not _weight_files(folder):
        inside = sorted(p.parent.name for p in folder.glob("*/config.json")) + sorted(
            p.parent.name for p in folder.glob(f"*/{ADAPTER}")
        )
        way_out = (
            f"it is a run's folder: evaluate {str(Path(name) / _preferred(inside))!r}"
            if inside
            else "name the folder that a run saved (OUTPUT_DIR/final), or a Hub id"
        )
        raise EvaluationError(f"model {name!r} holds no weights ({', '.join(WEIGHTS)}): {way_out}")
    return folder


def _beside(folder: Path) -> str:
    """What there is instead, in the nearest folder that exists."""
    parent = next((p for p in folder.parents if p.is_dir()), Path("."))
    held = sorted(p.name for p in parent.iterdir() if p.is_dir())[:5]
    return f" ({str(parent)!r} holds: {', '.join(held) or 'no folder'})"


def _preferred(names: list[str]) -> str:
    return "final" if "final" in names else names[-1]


def _weight_files(folder: Path) -> list[Path]:
    return sorted(path for pattern in WEIGHTS for path in folder.glob(pattern))


def _cannot(what: str, name: str, revision: str | None, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    at = f" at revision {revision!r}" if revision else ""
    if isinstance(error, ImportError) and "peft" in str(error).lower():
        return f"model {name!r} is an adapter, which needs the peft package: pip install 'meml-mel[peft]'"
    return (
        f"model {name!r}{at}: its {what} cannot be loaded ({first}). Name a local folder, log in with `hf auth login` "
        "for a private model, or check the network"
    )


def _snapshot(name: str, commit: str | None) -> Path | None:
    """The cached snapshot's folder of a model from the Hub."""
    from transformers.utils import cached_file

    for file in ("config.json", ADAPTER):
        found = cached_file(
            name, file, revision=commit, _raise_exceptions_for_missing_entries=False, local_files_only=True
        )
        if found:
            return Path(found).parent
    return None


def folder_hash(folder: Path | None) -> dict[str, Any]:
    """One sha256 over the weight files' names and contents, and for an adapter also its base.

    With one file it is that file's own sha256, as `sha256sum model.safetensors` prints it.
    """
    if folder is None:
        return {"kind": "unknown", "sha256": "unknown"}
    files = {path.name: _file_hash(path) for path in _weight_files(folder)}
    facts: dict[str, Any] = {"kind": "files", "sha256": _joined(files), "files": sorted(files)}
    adapter = folder / ADAPTER
    if adapter.is_file():
        base = json.loads(adapter.read_text(encoding="utf-8")).get("base_model_name_or_path")
        facts["base"] = base
        if base and Path(base).is_dir():
            facts["base_sha256"] = folder_hash(Path(base))["sha256"]
    return facts


def _joined(files: Mapping[str, str]) -> str:
    if len(files) == 1:
        return next(iter(files.values()))
    return hashlib.sha256("".join(f"{n} {h}\n" for n, h in sorted(files.items())).encode()).hexdigest()


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensors_hash(model: Any) -> str:
    """sha256 over a model's tensors: names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    tensors: Iterable[tuple[str, torch.Tensor]] = sorted(model.state_dict().items())
    for name, tensor in tensors:
        held = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {held.dtype} {tuple(held.shape)}\n".encode())
        digest.update(held.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
