"""Processes for tests that kill one, or need several: forked from a server that has the heavy imports done."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.rlvr.recorded", "tests.rlvr.resumable"])


def _run(target: Callable, arguments: tuple, environment: dict[str, str], output: str) -> None:
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    import torch

    torch.set_num_threads(1)
    target(*arguments)


def run_together(
    target: Callable, arguments: tuple[Any, ...], folder, processes: int, timeout: float
) -> list[int]:
    """Run `target(*arguments)` in a group of gloo processes; their exit codes (negative: killed by that signal).

    What they print is in `folder/output-<rank>.txt`.
    """
    environment = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if processes > 1:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment |= {
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
    running = []
    for rank in range(processes):
        own = environment | ({"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {})
        process = _CONTEXT.Process(
            target=_run, args=(target, arguments, own, str(folder / f"output-{rank}.txt"))
        )
        process.start()
        running.append(process)
    for process in running:
        process.join(timeout)
        if process.is_alive():
            for other in running:
                other.kill()
            raise AssertionError(f"not done after {timeout} s: {output(folder)}")
    return [process.exitcode for process in running]


def output(folder) -> str:
    """The end of what the processes printed."""
    return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(folder.glob("output-*.txt")))
