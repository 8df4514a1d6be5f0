"""TRL's SFTTrainer with complete checkpoints and one metrics line per optimizer step; nothing else is changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers.trainer_utils import rotate_checkpoints
from trl import SFTConfig, SFTTrainer

from ..rlvr import checkpoint
from ..rlvr.monitor import ReporterPace, StepMetrics
from ..rlvr.records import MetricsLog
from .common import set_generation_defaults

logger = logging.getLogger(__name__)


class ExpertSFTTrainer(SFTTrainer):
    """Trains on rows of token ids (`sft_rows.tokenise`).

    Args:
        rows: `input_ids` and `labels`, -100 where a token does not count.
        config_digest: identifies the resolved config; a checkpoint made with another is refused on resume.
    """

    def __init__(
        self,
        model: Any,
        args: SFTConfig,
        rows: Sequence[Mapping[str, list[int]]],
        config_digest: str | None = None,
        **kwargs: Any,
    ):
        self.config_digest = config_digest
        pace, args.logging_steps = args.logging_steps, 1
        args.logging_nan_inf_filter = False  # a NaN loss must not look like the one before
        super().__init__(model=model, args=args, train_dataset=Dataset.from_list(list(rows)), **kwargs)
        self.metrics_log = MetricsLog(Path(str(args.output_dir)) / "metrics.jsonl")
        self.add_callback(StepMetrics(self.metrics_log))
        self.pace = ReporterPace(self, max(1, int(pace)))
        set_generation_defaults(self.accelerator.unwrap_model(self.model), self.processing_class)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The manifest is written when all else is, and only then old checkpoints go."""
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
            checkpoint.write_manifest(folder, self.state.global_step, self.config_digest)
            rotate_checkpoints(str(self.args.output_dir), save_total_limit=limit)

    def resume_point(self, asked: str | None, allow_changed_config: bool = False) -> Path | None:
        """The checkpoint to go on from: the newest complete one for `true`, the named folder, None for none.

        Raises ResumeError where it is not complete or was made with another config.
        """
        folder: Path | None
        if asked is None or asked.lower() in ("false", "no", "none", ""):
            return None
        if asked.lower() in ("true", "yes"):
            folder, passed_over = checkpoint.latest_complete(Path(str(self.args.output_dir)))
            for reason in passed_over:
                logger.warning("passed over: %s", reason)
            if folder is None:
                logger.warning(
                    "no complete checkpoint in %s: starting from the beginning", self.args.output_dir
                )
                return None
        else:
            folder = Path(asked)
        checkpoint.check_resumable(folder, None if allow_changed_config else self.config_digest)
        return folder

    def run(self, resume_from: Path | None) -> None:
        """Train to the end, from a checkpoint if one is given; metrics past it are cut and written again."""
        step = checkpoint.step_of(resume_from)
        if self.accelerator.is_main_process:
            self.metrics_log.cut_back(step)
        self.accelerator.wait_for_everyone()
        if step:  # TRL 1.16 counts `num_tokens` from the launch
            before = [row["num_tokens"] for row in self.metrics_log.read() if row["step"] == step]
            self._total_train_tokens = before[0] if before else 0
        self.train(resume_from_checkpoint=str(resume_from) if resume_from else None)

    def save_final(self, folder: Path) -> None:
        """Weights (or the adapter), tokenizer and generation config, without the pickled training arguments."""
        self.save_model(str(folder))
        if self.accelerator.is_main_process:
            self.accelerator.unwrap_model(self.model).generation_config.save_pretrained(str(folder))
            (folder / "training_args.bin").unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()
