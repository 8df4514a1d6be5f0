"""What a person sees of a run: `metrics.jsonl`, a progress bar that names the phase, reporters at their pace."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ProgressCallback

from .records import MetricsLog


class StepMetrics(TrainerCallback):
    """Writes one line per optimizer step to `metrics.jsonl` (main process only)."""

    def __init__(self, log: MetricsLog):
        self.metrics = log

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        if state.is_world_process_zero and logs and "loss" in logs:
            self.metrics.append({"step": state.global_step, **logs})


class ReporterPace:
    """Runs `on_log` callbacks other than `StepMetrics` every `every` steps, with means over the window.

    The trainer itself logs every step (that is what `metrics.jsonl` needs), so `logging_steps` is the
    reporters' pace. Wraps `trainer.callback_handler.on_log`.
    """

    def __init__(self, trainer: Any, every: int):
        self.every = max(1, every)
        self.window: dict[str, list[float]] = defaultdict(list)
        self.handler = trainer.callback_handler
        self.pass_on = self.handler.on_log
        self.handler.on_log = self

    def __call__(self, args, state, control, logs):
        if "loss" not in logs:
            return self.pass_on(args, state, control, logs)
        for callback in self.handler.callbacks:
            if isinstance(callback, StepMetrics):
                callback.on_log(args, state, control, logs)
        for key, value in logs.items():
            if isinstance(value, (int, float)):
                self.window[key].append(value)
        if state.global_step % self.every and state.global_step < state.max_steps:
            control.should_log = False
            return control
        means = {key: sum(values) / len(values) for key, values in self.window.items()}
        means |= {key: logs[key] for key in ("epoch", "learning_rate", "num_tokens") if key in logs}
        self.window.clear()
        others = [c for c in self.handler.callbacks if not isinstance(c, StepMetrics)]
        kept, self.handler.callbacks = self.handler.callbacks, others
        try:
            return self.pass_on(args, state, control, means)
        finally:
            self.handler.callbacks = kept


class Phases:
    """Seconds per phase of the step, and the phase's name on the progress bar."""

    def __init__(self, trainer: Any):
        self.trainer = trainer
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.show(name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started

    def show(self, name: str) -> None:
        for callback in self.trainer.callback_handler.callbacks:
            bar = getattr(callback, "training_bar", None)
            if isinstance(callback, ProgressCallback) and bar is not None:
                bar.set_postfix_str(name)

    def take(self) -> dict[str, float]:
        """The seconds since the last call, as `time/<phase>` metrics."""
        taken = {f"time/{name}": seconds for name, seconds in self.seconds.items()}
        self.seconds.clear()
        return taken
