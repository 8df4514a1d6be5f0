"""`meml-mel`: the commands around training. Training itself is `accelerate launch -m meml_mel.train.rl`.

Every command imports what it needs when it runs, so that `meml-mel --help` answers at once. A command is a
module with `add_arguments(parser)` and `run(args) -> exit code`; `add_arguments` must import nothing heavy.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from . import __version__

# Command -> (module, one line of help).
COMMANDS = {
    "demo": ("meml_mel.demo.run", "the whole loop on a tiny model, in minutes, without a GPU"),
    "evaluate": ("meml_mel.evaluation.cli", "answer questions with a saved model, grade, and count"),
    "grade": ("meml_mel.grading.cli", "grade answers against gold answers"),
    "doctor": ("meml_mel.doctor", "check versions, devices, the Hub login and a model's tokenizer"),
    "pin": ("meml_mel.data.pin", "write the commits of a config's Hub data and model into it"),
}
DESCRIPTION = "Reinforcement learning with verifiable rewards, MEML-GRPO and MEL."
EPILOG = """\
training:
  accelerate launch -m meml_mel.train.sft --config CONFIG   multi-expert SFT
  accelerate launch -m meml_mel.train.rl --config CONFIG    RL; --dry-run checks a config on any machine
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. 2: the user's input is wrong; 130: interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv[:1]
    if debug:
        argv = argv[1:]
    command = next((word for word in argv if not word.startswith("-")), None)
    try:
        args = _parser(command if command in COMMANDS else None).parse_args(argv)
        code = importlib.import_module(COMMANDS[args.command][0]).run(args)
        sys.stdout.flush()
        return int(code or 0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone; nothing is left to say, at the interpreter's exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        if debug or not is_users(error):
            raise
        print(f"meml-mel {command}: {error}", file=sys.stderr)
        return 2


def is_users(error: BaseException) -> bool:
    """Errors that the user can mend: our own ValueErrors, and files that are not there or not readable."""
    ours = type(error).__module__.split(".")[0] == "meml_mel"
    return ours or isinstance(
        error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError
    )


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The whole parser; only the named command's own arguments are loaded."""
    parser = _Parser(
        prog="meml-mel",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"meml-mel {__version__}")
    parser.add_argument("--debug", action="store_true", help="before the command: tracebacks of all errors")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (module, line) in COMMANDS.items():
        sub = commands.add_parser(
            name, help=line, description=line[0].upper() + line[1:] + ".", allow_abbrev=False
        )
        if name == command:
            importlib.import_module(module).add_arguments(sub)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):  # type: ignore[override]
        """One line and exit 2; an unknown command names the nearest."""
        if "argument COMMAND: invalid choice" in message:
            given = message.split("'")[1]
            close = difflib.get_close_matches(given, COMMANDS, n=1, cutoff=0.0)[0]
            message = f"unknown command {given!r}: did you mean {close!r}? (commands: {', '.join(COMMANDS)})"
        self.exit(2, f"{self.prog}: {message}\n{self.prog} --help tells more\n")


if __name__ == "__main__":
    sys.exit(main())
