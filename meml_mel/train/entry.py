"""The command line that both stages share: parse, help, dry run, and errors told in a line or two."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ..config.coerce import ConfigError
from ..config.command_line import USAGE, parse_command_line


def main(
    stage: Literal["rl", "sft"],
    argv: Sequence[str] | None,
    train: Callable[[Any, Sequence[str], bool], Any],
    at_hand: Callable[[Any], int | None],
) -> int:
    """Answer the exit status; what the user got wrong is told without a traceback (`--debug` shows it), status 2.

    Args:
        train: called with the config, the arguments, and whether a changed config may be resumed.
        at_hand: the number of questions (SFT: rows) where they lie on the disk, for a dry run; else None.
    """
    from .common import INPUT_ERRORS, fail

    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        command = parse_command_line(argv)
        if command.help:
            print(USAGE.format(stage=stage))
            return 0
        if command.config is None:
            raise ConfigError("--config is missing: a YAML file, or the name of a shipped recipe")

        from ..config.run import load_config
        from .arithmetic import dry_run, render

        config = load_config(command.config, command.overrides, stage=stage)
        if command.dry_run:
            report = dry_run(
                config,
                num_processes=command.num_processes,
                accelerate_config=command.accelerate_config,
                questions=at_hand(config),
            )
            print(render(report))
            report.check()
        else:
            train(config, argv, command.allow_changed_config)
    except INPUT_ERRORS as error:
        return fail(error, "--debug" in argv)
    return 0
