"""Complete checkpoints: a manifest written last, and the newest folder that has one.

The Hugging Face Trainer writes straight into `checkpoint-N` and resumes from the highest number, complete or
not (transformers/trainer_utils.py, get_last_checkpoint). A kill while saving must not cost the run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

MANIFEST = "complete.json"
STATE = "rlvr_state.json"


class ResumeError(ValueError):
    """A checkpoint that cannot be resumed as asked."""


def write_json(path: Path, value: Any) -> None:
    """Write whole or not at all."""
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(value, indent=1))
    with partial.open() as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def write_manifest(folder: Path, step: int, config_digest: str | None) -> None:
    """List every file with its size. Call it last, when all ranks have written theirs."""
    files = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    write_json(folder / MANIFEST, {"step": step, "config_digest": config_digest, "files": files})


def problem(folder: Path) -> str | None:
    """Why the checkpoint is not complete, or None: no manifest, a file missing or of another size."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        return f"{folder.name} has no {MANIFEST}: it was not saved to the end"
    except json.JSONDecodeError:
        return f"{folder.name}/{MANIFEST} cannot be read"
    for name, size in manifest["files"].items():
        path = folder / name
        if not path.exists():
            return f"{folder.name} lacks {name}"
        if path.stat().st_size != size:
            return f"{folder.name}/{name} has {path.stat().st_size} bytes, {size} were written"
    return None


def checkpoints(run: Path) -> list[Path]:
    """All checkpoint folders of a run, newest step first."""
    found = [
        p for p in run.glob("checkpoint-*") if p.is_dir() and p.name.removeprefix("checkpoint-").isdigit()
    ]
    return sorted(found, key=lambda p: -step_of(p))


def step_of(folder: str | Path | None) -> int:
    """The optimizer step a checkpoint folder is of; 0 for None."""
    return int(Path(folder).name.removeprefix("checkpoint-")) if folder else 0


def latest_complete(run: Path) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and what was wrong with the newer ones that were passed over."""
    passed_over = []
    for folder in checkpoints(run):
        reason = problem(folder)
        if reason is None:
            return folder, passed_over
        passed_over.append(reason)
    return None, passed_over


def check_resumable(folder: Path, config_digest: str | None) -> None:
    """Raise ResumeError unless the checkpoint is complete and was made with this resolved config."""
    reason = problem(folder)
    if reason is not None:
        raise ResumeError(f"cannot resume: {reason}. Name an older checkpoint, or start anew")
    saved = json.loads((folder / MANIFEST).read_text())["config_digest"]
    if config_digest is not None and saved is not None and saved != config_digest:
        raise ResumeError(
            f"cannot resume from {folder.name}: its resolved config has digest {saved[:12]}, this one "
            f"{config_digest[:12]}. Compare config.resolved.yaml, or pass --allow-changed-config"
        )
