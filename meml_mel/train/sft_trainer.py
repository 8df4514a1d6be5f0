"""TRL's SFTTrainer with complete checkpoints and one metrics line per optimizer step; nothing else is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from ..rlvr.checkpoint import step_of
from ..rlvr.monitor import ReporterPace, StepMetrics
from ..rlvr.records import MetricsLog
from ..rlvr.saving import CompleteCheckpoints
from .common import set_generation_defaults


class ExpertSFTTrainer(CompleteCheckpoints, SFTTrainer):
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

    def run(self, resume_from: Path | None) -> None:
        """Train to the end, from a checkpoint if one is given; metrics past it are cut and written again."""
        step = step_of(resume_from)
        if self.accelerator.is_main_process:
            self.metrics_log.cut_back(step)
        self.accelerator.wait_for_everyone()
        if step:  # TRL 1.16 counts `num_tokens` from the launch
            before = [row["num_tokens"] for row in self.metrics_log.read() if row["step"] == step]
            self._total_train_tokens = before[0] if before else 0
        self.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
