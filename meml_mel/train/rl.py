"""Stage 2, RL with verifiable rewards and the objectives that the config turns on.

    accelerate launch -m meml_mel.train.rl --config smollm2-135m/meml_mel [--KEY VALUE ...] [--dry-run]

Leaves in `output_dir`: config.resolved.yaml, run.json, metrics.jsonl (one line per optimizer step), records/
(rollouts, and each objective's records, as Parquet), checkpoints, and the trained model in `final/`.
`--resume_from_checkpoint true` goes on from the newest complete checkpoint.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config.coerce import ConfigError
from . import entry


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; answers the exit status. What the user got wrong is told in a line or two, status 2."""
    return entry.main("rl", argv, train, _questions_at_hand)


def train(config: Any, argv: Sequence[str] = (), allow_changed_config: bool = False) -> Path:
    """Gather questions, build model, objectives and trainer, train, save; answers the final model's folder.

    All that can be wrong with config, data and prompts is found before the model's weights are loaded.
    """
    from . import common, objectives, rl_rows
    from .arithmetic import Launch, make_report, refuse_silent_data_parallel, render
    from .footprint import model_facts

    folder = Path(config.trl["output_dir"])
    _refuse_an_occupied_folder(folder, config.trl["resume_from_checkpoint"])
    gpus = 0 if config.trl["use_cpu"] else _visible_gpus()
    refuse_silent_data_parallel(gpus, os.environ, "rl", argv)
    main_process = os.environ.get("RANK", "0") == "0"

    from ..prompts.library import Prompts

    prompts = Prompts.load(config.prompts.templates())
    gathered = rl_rows.gather(config)
    tokenizer = common.load_tokenizer(config)
    format = common.prompt_format(config, tokenizer)
    format = dataclasses.replace(format, template_kwargs=config.trl["chat_template_kwargs"] or {})
    facts = model_facts(config.model["model_name_or_path"], config.model["model_revision"])
    context = config.trl["vllm_max_model_length"] if config.trl["use_vllm"] else None
    context = context or facts.context
    limit = None if context is None else context - config.trl["max_completion_length"]
    rows, over_long = rl_rows.drop_over_long(
        rl_rows.make_rows(config, gathered.questions, prompts), format, limit
    )
    questions = len({row.question.id for row in rows})
    launch = Launch(int(os.environ.get("WORLD_SIZE", "1")))
    report = make_report(config, launch, facts, questions, rl_rows.longest_problem(rows, format))
    if main_process:
        print(*gathered.lines, format.describe(), sep="\n")
        if over_long:
            print(
                f"left out, prompt over {limit} tokens: {len(over_long)} questions, e.g. {', '.join(over_long[:5])}"
            )
        print(render(report), flush=True)
    report.check()

    from trl import GRPOConfig

    from ..grading.pool import GradeItem, GradingPool
    from ..rlvr.checkpoint import step_of
    from ..rlvr.trainer import RLVRTrainer

    adapters = common.adapters(config)
    model = common.load_model(config, tokenizer)
    args = GRPOConfig(**{**config.trl, "resume_from_checkpoint": None})
    with GradingPool(workers=config.grading.workers, timeout=config.grading.timeout) as pool:
        trainer = RLVRTrainer(
            model,
            args,
            rows,
            lambda items: pool.grade([GradeItem(q.answer, text, q.kind, cut) for q, text, cut in items]),
            objectives=objectives.build(config, prompts, lambda items: trainer.supervision.score(items)),
            algorithm=config.algorithm,
            sampling={"analysis": config.sampling.analysis, "replay": config.sampling.replay},
            supervised=config.supervised,
            render=list if format.chat else format.text,
            max_length=context,
            config_digest=config.digest(),
            model_revision=common.revision_of(config, model),
            processing_class=tokenizer,
            **adapters,
        )
        resume_from = trainer.resume_point(config.trl["resume_from_checkpoint"], allow_changed_config)
        if main_process:
            config.dump(folder / common.RESOLVED)
            more = {
                "context": context,
                "questions": {"trained": questions, "over_long": over_long},
                "model_revision": common.revision_of(config, model),
            }
            launched = common.run_facts(config, argv, gathered.facts, format, **more)
            common.write_run(folder, launched, step_of(resume_from) if resume_from else None)
        trainer.train(resume_from)
        trainer.save_final(folder / common.FINAL)
    if main_process:
        print(f"done: {folder / common.FINAL} (metrics.jsonl, records/ and run.json beside it)", flush=True)
    trainer.accelerator.end_training()
    return folder / common.FINAL


def _refuse_an_occupied_folder(folder: Path, resume: Any) -> None:
    """A second run must not mix with or overwrite what a first one left."""
    if not resume and (folder / "metrics.jsonl").exists():
        raise ConfigError(
            f"output_dir {str(folder)!r} holds a run already: go on with --resume_from_checkpoint true, name "
            "another folder, or remove it"
        )


def _visible_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _questions_at_hand(config: Any) -> int | None:
    """The number of questions, where the data are local files; None elsewhere (a dry run needs no network)."""
    if config.data is None or not Path(config.data.path).exists():
        return None
    from ..data.load import load_questions

    return len(load_questions(config.data).questions)


if __name__ == "__main__":
    sys.exit(main())
