"""Complete checkpoints for any Hugging Face trainer: state, then manifest, then rotation; and where to resume."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from transformers.trainer_utils import rotate_checkpoints

from . import checkpoint

logger = logging.getLogger(__name__)


class CompleteCheckpoints:
    """Mixed in before a Trainer. `config_digest` identifies the resolved config a checkpoint was made with."""

    config_digest: str | None = None
    args: Any
    accelerator: Any
    state: Any
    model: Any

    def state_to_save(self) -> dict[str, Any]:
        """JSON-serialisable state beside the Trainer's own; {} where there is none."""
        return {}

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The Trainer rotates inside its save, when ours is not written yet: rotate last instead."""
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
        finally:
            self.args.save_total_limit = limit
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        if self.accelerator.is_main_process:
            checkpoint.write_json(folder / checkpoint.STATE, self.state_to_save())
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            checkpoint.write_manifest(folder, self.state.global_step, self.config_digest)
            rotate_checkpoints(str(self.args.output_dir), save_total_limit=limit)

    def resume_point(self, asked: str | bool | None, allow_changed_config: bool = False) -> Path | None:
        """The checkpoint to go on from: the newest complete one for `true`, the named folder, None for none.

        Raises ResumeError where it is not complete or was made with another config.
        """
        run = Path(str(self.args.output_dir))
        word = str(asked).lower()
        if word in ("none", "false", "no", ""):
            return None
        if word in ("true", "yes"):
            folder, passed_over = checkpoint.latest_complete(run)
            for reason in passed_over:
                logger.warning("passed over: %s", reason)
            if folder is None:
                logger.warning("no complete checkpoint in %s: starting from the beginning", run)
                return None
        else:
            folder = Path(str(asked))
        checkpoint.check_resumable(folder, None if allow_changed_config else self.config_digest)
        return folder

    def save_final(self, folder: Path) -> None:
        """Weights (or the adapter), tokenizer and generation config, without the pickled training arguments."""
        self.save_model(str(folder))  # type: ignore[attr-defined]
        if self.accelerator.is_main_process:
            self.accelerator.unwrap_model(self.model).generation_config.save_pretrained(str(folder))
            (folder / "training_args.bin").unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()
