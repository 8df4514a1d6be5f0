"""`meml-mel demo`: the whole loop on the embedded world, in minutes on two cores, without the Hub and a GPU.

Stages run as the same commands that a user types (`python -m meml_mel.train.rl --config demo/...`), one after the
other on one device; each is printed, and its output goes to `logs/`. What it shows is in docs/demo.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

BASE = Path(__file__).resolve().parent / "tiny"
ARMS = {
    "grpo": "plain GRPO",
    "meml": "MEML-GRPO",
    "mel": "MEL",
    "meml_mel": "MEML-GRPO + MEL",
}
SUMMARY = "demo.json"


class DemoError(ValueError):
    """The demo can't go on; the message says where to look."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="folder for everything (runs/demo)"
    )
    parser.add_argument(
        "--arms", default="grpo,meml_mel", help=f"RL runs to compare, of {','.join(ARMS)} (grpo,meml_mel)"
    )
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--test-questions", type=int, default=200, help="held-out questions (200)")
    parser.add_argument("--sft-steps", type=int, default=None, help="instead of the recipe's")
    parser.add_argument("--rl-steps", type=int, default=None, help="instead of the recipes'")


def run(args: argparse.Namespace) -> int:
    """Run every stage; answers 0. Raises DemoError where a stage fails."""
    arms = [arm.strip() for arm in args.arms.split(",") if arm.strip()]
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown or not arms:
        raise DemoError(f"--arms {args.arms!r}: a comma-separated list of {', '.join(ARMS)}")
    out = args.out
    if args.test_questions < 1:
        raise DemoError(f"--test-questions {args.test_questions}: it takes one or more")
    if (out / SUMMARY).exists() or (out / "sft").exists():
        raise DemoError(f"--out {str(out)!r} holds a demo already: remove it, or name another folder")
    started = time.perf_counter()
    data = out / "data"

    from .data import write_data

    print(_INTRODUCTION.format(arms=", ".join(ARMS[arm] for arm in arms)), flush=True)
    write_data(data, args.seed, args.test_questions)
    stages = Stages(out, len(arms) + 1)
    inputs = ["--data.path", data / "demonstrations.jsonl"]
    inputs += [
        "--sft.extra_rows.0.path",
        data / "analyses.jsonl",
        "--sft.extra_rows.1.path",
        data / "replays.jsonl",
    ]
    stages.train("multi-expert SFT", "sft", "sft", BASE, args.seed, inputs, args.sft_steps)
    for arm in arms:
        inputs = ["--data.path", data / "questions.jsonl"]
        stages.train(f"RL: {ARMS[arm]}", "rl", arm, out / "sft/final", args.seed, inputs, args.rl_steps)

    from transformers.utils import logging

    from .report import report

    logging.disable_progress_bar()
    print("\nevaluation on the held-out questions", flush=True)
    summary = report(out, {"sft": "after SFT", **{arm: ARMS[arm] for arm in arms}})
    summary["seed"], summary["seconds"] = args.seed, stages.seconds
    seconds = time.perf_counter() - started
    summary["seconds"]["total"] = seconds
    (out / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(_ending(out, arms[-1], seconds), flush=True)
    return 0


class Stages:
    """Training commands in processes of their own, with their progress told in one place."""

    def __init__(self, out: Path, count: int):
        self.out, self.count, self.number = out, count, 0
        self.seconds: dict[str, float] = {}
        (out / "logs").mkdir(parents=True, exist_ok=True)

    def train(
        self,
        title: str,
        stage: str,
        name: str,
        model: Path,
        seed: int,
        inputs: Sequence[object],
        steps: int | None,
    ) -> None:
        """Run one recipe to its end; `name` is the recipe's and its folder's."""
        self.number += 1
        folder, log = self.out / name, self.out / "logs" / f"{name}.log"
        words = ["-m", f"meml_mel.train.{stage}", "--config", f"demo/{name}", "--model_name_or_path", model]
        words += [
            "--output_dir",
            folder,
            "--seed",
            seed,
            "--use_cpu",
            "true" if _on_cpu() else "false",
            *inputs,
        ]
        words += [] if steps is None else ["--max_steps", steps]
        command = [str(word) for word in words]
        print(f"\n{self.number}/{self.count} {title}\n{shown_command(command)}", flush=True)
        started = time.perf_counter()
        with log.open("w", encoding="utf-8") as file:
            # One device, whatever the machine has: the demo is too small to share out.
            device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device}
            process = subprocess.Popen(
                [sys.executable, *command], stdout=file, stderr=subprocess.STDOUT, env=environment
            )
            try:
                _follow(process, folder / "metrics.jsonl", stage, started)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        self.seconds[name] = time.perf_counter() - started
        if process.returncode:
            tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
            raise DemoError(f"{title} ended with status {process.returncode}; the end of {log}:\n{tail}")


def shown_command(words: Sequence[str]) -> str:
    """The command as it can be pasted into a shell, an option a line, so that no terminal breaks it."""
    line: list[str] = ["$ python"]
    options: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            options.append([word])
        else:
            (options[-1] if options else line).append(shlex.quote(word))
    return " \\\n".join([" ".join(line), *("    " + " ".join(option) for option in options)])


def _on_cpu() -> bool:
    import torch

    return not torch.cuda.is_available()


def _follow(process: subprocess.Popen, metrics: Path, stage: str, started: float) -> None:
    """Tell each step: one line that is written over on a terminal, every fifth step in a log file."""
    line = Line(sys.stdout)
    seen, sums = 0, dict.fromkeys(_COUNTS, 0.0)
    while True:
        ended = process.poll() is not None
        lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
        for text in lines[seen:]:
            seen += 1
            step = json.loads(text)
            sums = {key: total + step.get(key, 0) for key, total in sums.items()}
            shown = {key: total for key, total in sums.items() if key in step}
            line.show(_progress(step, shown, stage, time.perf_counter() - started), keep=seen % 5 == 0)
        if ended:
            break
        time.sleep(0.5)
    line.end()


# Told as sums over the steps so far.
_COUNTS = {
    "objective/mutual_learning/fired": "mutual",
    "objective/hard_examples/flushed": "hard",
    "objective/meta_experience/retained": "kept",
}


def _progress(step: Mapping[str, Any], sums: Mapping[str, float], stage: str, seconds: float) -> str:
    text = f"  step {step['step']:>3}  {seconds:>4.0f} s"
    if stage == "sft":
        return f"{text}  loss {step['loss']:.3f}"
    return f"{text}  right {step['grade/right']:>4.0%}" + "".join(
        f"  {_COUNTS[key]} {total:.0f}" for key, total in sums.items()
    )


class Line:
    """One line that is written over where the output is a terminal; else the lines marked `keep`."""

    def __init__(self, stream: TextIO):
        self.stream, self.terminal, self.width = stream, stream.isatty(), 0

    def show(self, text: str, keep: bool) -> None:
        if self.terminal:
            self.stream.write("\r" + text.ljust(self.width))
            self.width = len(text)
        elif keep:
            self.stream.write(text + "\n")
        self.stream.flush()

    def end(self) -> None:
        if self.terminal and self.width:
            self.stream.write("\n")
            self.stream.flush()


_INTRODUCTION = """\
The demo: a model of 0.6 million parameters and three experts that answer the
same sums, each with a habit that is wrong: Ada forgets the carry, Ben turns the
digits of a difference around, Cleo goes back to the first number. SFT teaches
the model to be all three; RL has to mend them: {arms}.
Told at each step: right, the share of right responses; and summed over the
steps: mutual, questions on which the worst expert learnt from the best; hard,
ground-truth solutions learnt; kept, meta-experiences whose replay was right."""


def _ending(out: Path, last: str, seconds: float) -> str:
    files = {
        SUMMARY: "the numbers above",
        "curves.png": "reward and yields over the steps",
        f"{last}/records/": "every rollout and meta-experience, as Parquet",
        f"{last}/final/": "the trained model",
        "evaluations/": "every answer to the held-out questions",
    }
    listed = "\n".join(f"  {name:<20} {what}" for name, what in files.items())
    return f"""
Everything is in {out} ({seconds:.0f} s):
{listed}

Next: your own questions and experts in ten minutes, docs/quickstart.md; a real
model, docs/real-run.md; what every number means, docs/metrics.md."""
