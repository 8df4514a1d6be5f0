"""What one key can't tell: contradictions between keys, and keys of TRL that are ours to decide.

Every check answers with messages, so that one run of the program tells all that is wrong. Divisions by the
number of processes are `train/arithmetic.py`'s, which knows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ..meml.experts import check_experts, require_solutions
from .coerce import ConfigError

if TYPE_CHECKING:
    from .run import RunConfig


# Keys of TRL that are refused or bound here, for the reference (docs/configuration.md).
RESERVED = {
    "hub_token": "refused: log in with `hf auth login`, or set `HF_TOKEN`",
    "push_to_hub": "refused: upload a finished checkpoint, for one with `hf upload`",
    "eval_strategy, do_eval, eval_on_start, load_best_model_at_end": "refused: no evaluation during training yet",
    "auto_find_batch_size": "refused: it would break up a question's rollouts",
    "remove_unused_columns": "`true` is refused: it drops the answers",
    "reward_weights": "refused: there is one reward, the grader's verdict",
    "parallelism_config": "refused: it belongs into the accelerate config file",
    "scale_rewards": "must agree with `algorithm.advantage`, and follows it where it is left out",
    "steps_per_generation": "with objectives, equals `gradient_accumulation_steps` (its default)",
    "save_steps": "must fall on the end of a generation",
    "model_revision": "`null` is `main` until `meml-mel pin` writes the commit",
}


def check_run(config: RunConfig) -> None:
    """Raise one ConfigError with all problems, a line each."""
    problems = list(_common(config))
    if config.stage == "rl":
        problems += [*_rl_keys(config), *_algorithm(config), *_generations(config)]
    else:
        problems += _sft(config)
    if problems:
        raise ConfigError("\n".join(problems))


def _common(config: RunConfig) -> Iterator[str]:
    trl = config.trl
    if not config.model["model_name_or_path"]:
        yield "model_name_or_path must be given: a Hub id or a local folder"
    if trl["push_to_hub"]:
        yield (
            "push_to_hub: the Trainer's push uploads training_args.bin and every unfinished save; set it to "
            "false and upload a finished checkpoint, for one with `hf upload REPO FOLDER`"
        )
    if trl["auto_find_batch_size"]:
        yield (
            "auto_find_batch_size: a smaller batch would break up a question's rollouts; set it to false and "
            "lower per_device_train_batch_size"
        )
    if trl["eval_strategy"] != "no" or trl["do_eval"] or trl["eval_on_start"]:
        yield (
            "eval_strategy, do_eval, eval_on_start: there is no evaluation during training yet; set "
            "eval_strategy to 'no' and evaluate saved checkpoints"
        )
    if trl["load_best_model_at_end"] or trl["save_strategy"] == "best":
        yield "load_best_model_at_end, save_strategy 'best': need an evaluation during training, not there yet"
    if trl["parallelism_config"] is not None:
        yield "parallelism_config: set it in the file of `accelerate launch --config_file`, not here"
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps"):
        if trl[name] < 1:
            yield f"{name}: {trl[name]} must be at least 1"
    if trl["max_steps"] <= 0 and trl["num_train_epochs"] <= 0:
        yield f"num_train_epochs: {trl['num_train_epochs']} must be above 0, or give max_steps"
    if not trl["output_dir"]:
        yield "output_dir must be given: the run's folder, one for each run"
    if trl["logging_steps"] < 1 or trl["logging_steps"] != int(trl["logging_steps"]):
        yield f"logging_steps: {trl['logging_steps']} must be a whole number of steps"
    try:
        check_experts(config.experts)
    except ValueError as error:
        yield f"experts: {error}"
    yield from _prompts(config)


def _prompts(config: RunConfig) -> Iterator[str]:
    from ..prompts.library import PromptError, Prompts

    try:
        Prompts.load(config.prompts.templates()).check()
    except PromptError as error:
        yield f"prompts: {error}"


def _rl_keys(config: RunConfig) -> Iterator[str]:
    trl = config.trl
    if config.data is None:
        yield "data: missing; name the questions to train on, for one `data: {path: questions.jsonl}`"
    if trl["max_completion_length"] is None:
        yield "max_completion_length: null has no bound for a response; set a number of tokens"
    if trl["num_generations"] is None or trl["num_generations"] < 2:
        yield f"num_generations: {trl['num_generations']} must be at least 2, for a group has a spread"
    if trl["num_iterations"] < 1:
        yield f"num_iterations: {trl['num_iterations']} must be at least 1"
    if trl["remove_unused_columns"]:
        yield "remove_unused_columns: true would drop the question's answer from the rows; set it to false"
    if trl["reward_weights"] not in (None, [1.0]):
        yield "reward_weights: there is one reward, the grader's verdict; leave the key out"
    if trl["generation_batch_size"] is not None and trl["steps_per_generation"] is not None:
        yield "generation_batch_size and steps_per_generation say the same thing: leave one out"


def _algorithm(config: RunConfig) -> Iterator[str]:
    from ..rlvr.advantages import validate

    trl, algorithm = config.trl, config.algorithm
    updates = trl["num_iterations"] * (trl["steps_per_generation"] or 1)
    if trl["steps_per_generation"]:
        updates = -(-updates // trl["gradient_accumulation_steps"])
    try:
        validate(
            algorithm.advantage,
            trl["scale_rewards"],
            trl["loss_type"],
            negative_advantages=algorithm.negative_advantages,
            rft_divisor=algorithm.rft_divisor,
            updates_per_generation=updates,
        )
    except ValueError as error:
        yield f"algorithm: {error}"
    if algorithm.skip_zero_advantage_rows:
        from ..rlvr.trl_adapter import check_skip

        try:
            check_skip(SimpleNamespace(**trl))  # type: ignore[arg-type]
        except ValueError as error:
            yield str(error)


def _generations(config: RunConfig) -> Iterator[str]:
    """Saves fall on generation boundaries; objectives need whole ones."""
    trl = config.trl
    accumulation = trl["gradient_accumulation_steps"]
    per_generation = trl["steps_per_generation"] or accumulation
    if per_generation < 1 or accumulation < 1:
        if per_generation < 1:
            yield f"steps_per_generation: {per_generation} must be at least 1"
        return
    if config.objectives and per_generation != accumulation:
        yield (
            f"steps_per_generation: {per_generation} differs from gradient_accumulation_steps {accumulation}: "
            "an objective's examples belong to the one optimizer step that consumes their rollouts; leave "
            "steps_per_generation out, or turn the objectives off"
        )
    for name, objective in config.objectives.items():
        try:
            if hasattr(objective, "check_group_size"):
                objective.check_group_size(trl["num_generations"])
        except ValueError as error:
            yield f"objectives.{name}: {error}"
    if trl["generation_batch_size"] is None:
        yield from save_alignment(trl, per_generation)


def save_alignment(trl: dict, per_generation: int) -> Iterator[str]:
    """Why `save_steps` does not fall on generation boundaries, if it does not.

    A generation lasts `per_generation * num_iterations` micro-steps; resuming inside one would generate anew.
    """
    period, accumulation = per_generation * trl["num_iterations"], trl["gradient_accumulation_steps"]
    if trl["save_strategy"] != "steps" or accumulation % period == 0:
        return
    steps = trl["save_steps"]
    if steps < 1 or steps != int(steps):
        yield (
            f"save_steps: {steps} is a fraction of the run, which need not end where a generation ends "
            f"(every {_period(period, accumulation)}); set a whole number"
        )
        return
    if int(steps) * accumulation % period:
        unit = math.lcm(period, accumulation) // accumulation
        below = int(steps) // unit * unit
        near = f"{below} or {below + unit}" if below else str(unit)
        yield (
            f"save_steps: {int(steps)} does not fall on the end of a generation (every "
            f"{_period(period, accumulation)}); a save inside one can't be resumed exactly. Nearest: {near}"
        )


def _period(period: int, accumulation: int) -> str:
    return f"{period / accumulation:g} optimizer steps"


def _sft(config: RunConfig) -> Iterator[str]:
    if config.data is None and not config.sft.extra_rows:
        yield "data: missing; name the questions and solutions, or ready rows under sft.extra_rows"
    if config.data is not None:
        try:
            require_solutions(config.experts)
        except ValueError as error:
            yield f"experts: {error}"
