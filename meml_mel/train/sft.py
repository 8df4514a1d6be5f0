"""Stage 1, multi-expert SFT: one model learns every expert's solutions under that expert's prompt (docs/meml-grpo.md).

    accelerate launch -m meml_mel.train.sft --config smollm2-135m/sft [--KEY VALUE ...] [--dry-run]

Leaves in `output_dir`: config.resolved.yaml, run.json, metrics.jsonl, checkpoints, and the trained model in
`final/`. `--resume_from_checkpoint true` goes on from the newest complete checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import entry


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; answers the exit status. What the user got wrong is told in a line or two, status 2."""
    return entry.main("sft", argv, train, _rows_at_hand)


def train(config: Any, argv: Sequence[str] = (), allow_changed_config: bool = False) -> Path:
    """Gather and tokenise the rows, train, save; answers the folder of the final model.

    All that can be wrong with the input is found before the model's weights are loaded.
    """
    from . import common
    from .arithmetic import refuse_silent_data_parallel
    from .sft_rows import gather, tokenise_all

    folder = Path(config.trl["output_dir"])
    common.refuse_occupied(folder, config.trl["resume_from_checkpoint"])
    refuse_silent_data_parallel(_visible_gpus(config), os.environ, "sft", argv)
    with _grader(config) as grade:
        gathered = gather(config, grade)
    tokenizer = common.load_tokenizer(config)
    format = common.prompt_format(config, tokenizer)
    tokenised = tokenise_all(
        gathered.rows, format, config.trl["max_length"], config.sft.over_long == "refuse"
    )
    main_process = os.environ.get("RANK", "0") == "0"
    if main_process:
        print(gathered.description(), tokenised.description(config.trl["max_length"]), sep="\n")
        print(format.describe(), flush=True)
    adapters = common.adapters(config)

    from trl import SFTConfig

    from ..rlvr.checkpoint import step_of
    from .sft_trainer import ExpertSFTTrainer

    arguments = {**config.trl, "model_init_kwargs": common.model_init_kwargs(config)}
    trainer = ExpertSFTTrainer(
        config.model["model_name_or_path"],
        SFTConfig(**arguments),
        tokenised.rows,
        config_digest=config.digest(),
        processing_class=tokenizer,
        **adapters,
    )
    resume_from = trainer.resume_point(config.trl["resume_from_checkpoint"], allow_changed_config)
    if main_process:
        config.dump(folder / common.RESOLVED)
        facts = common.run_facts(
            config, argv, gathered.data, format, rows={"kept": tokenised.kept, "too_long": tokenised.too_long}
        )
        common.write_run(folder, facts, step_of(resume_from) if resume_from else None)
    trainer.run(resume_from)
    trainer.save_final(folder / common.FINAL)
    if main_process:
        print(f"done: {folder / common.FINAL} (metrics.jsonl and run.json beside it)", flush=True)
    trainer.accelerator.end_training()
    return folder / common.FINAL


@contextlib.contextmanager
def _grader(config: Any) -> Iterator[Any]:
    """A grading function where a solution's source does not say whether it is right; else None."""
    if not _needs_grading(config):
        yield None
        return
    from ..grading.pool import GradeItem, GradingPool

    with GradingPool(workers=config.grading.workers, timeout=config.grading.timeout) as pool:
        yield lambda gold, answer, kind: pool.grade([GradeItem(gold, answer, kind)])[0]


def _needs_grading(config: Any) -> bool:
    solutions = [e.solutions for e in config.experts if e.solutions]
    return config.sft.keep_only_correct and not all(s.ground_truth or s.correct_column for s in solutions)


def _visible_gpus(config: Any) -> int:
    if config.trl["use_cpu"]:
        return 0
    import torch

    return torch.cuda.device_count()


def _rows_at_hand(config: Any) -> int | None:
    """The number of rows, where all sources are local files and nothing has to be graded; None elsewhere."""
    from .sft_rows import gather

    sources = [config.data, *(e.solutions for e in config.experts), *config.sft.extra_rows]
    paths = [s.path for s in sources if s is not None and s.path is not None]
    if _needs_grading(config) or not all(Path(p).exists() for p in paths):
        return None
    return len(gather(config).rows)


if __name__ == "__main__":
    sys.exit(main())
