"""The caller's end of the grading processes (worker.py): starting the template, forking and ending workers."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

from .grader import Claim
from .worker import FORK, REPLY, REQUEST, WAIT

# Wall time: it needs a few CPU seconds, which a crowded machine may take minutes to give.
START_SECONDS = 600.0
_START_ATTEMPTS = 3
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from meml_mel.grading.worker import template; template(int(sys.argv[2]), float(sys.argv[3]))"
)


class TemplateLost(Exception):
    """The template process has died; its workers live on, but a new one is needed for new workers."""


class Worker:
    """A worker, the pipe to it, and the claims it has not answered yet (the first is being graded)."""

    def __init__(self, pid: int, pipe, template: Template):
        self.pid, self.pipe = pid, pipe
        self.claims: deque[Claim] = deque()
        self.deadline = 0.0  # monotonic time by which its next answer is due
        self._template = template

    def stop(self) -> int | None:
        """End it now; its exit status (negative: the signal that ended it), None where nobody knows it."""
        self.pipe.close()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(TemplateLost):
            return self._template.ask(WAIT, self.pid)
        return None

    def status(self) -> int | None:
        """The exit status of a worker whose pipe has closed."""
        self.pipe.close()
        with suppress(TemplateLost):
            return self._template.ask(WAIT, self.pid)
        return None


class Template:
    """The process that workers are forked from. POSIX only."""

    def __init__(self, timeout: float):
        self._timeout = timeout
        self._launch()
        self._ready = False

    def _launch(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        paths = [os.path.abspath(path) for path in sys.path] + [str(Path(__file__).parents[2])]
        arguments = [json.dumps(paths), str(theirs.fileno()), str(self._timeout)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOTSTRAP, *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"},
        )
        theirs.close()

    def await_ready(self) -> None:
        """Wait until it can fork. Raises RuntimeError when it does not start, again and again."""
        for _ in range(_START_ATTEMPTS):
            if self._ready:
                return
            try:
                self._reply(START_SECONDS)
                self._ready = True
                return
            except TemplateLost:
                status = self.stop()
                self._launch()
        raise RuntimeError(
            f"the grading process does not start (exit status {status}): its error is on stderr; "
            f"try `{sys.executable} -c 'import meml_mel.grading.symbolic'`"
        )

    def fork(self) -> Worker:
        """A new worker. Raises TemplateLost when the template has died."""
        ours, theirs = Pipe()
        try:
            return Worker(self.ask(FORK, 0, theirs.fileno()), ours, self)
        finally:
            theirs.close()

    def ask(self, order: int, process: int, pipe: int | None = None) -> int:
        """Send an order and wait for its reply."""
        try:
            request = REQUEST.pack(order, process)
            if pipe is None:
                self._orders.sendall(request)
            else:
                socket.send_fds(self._orders, [request], [pipe])
        except OSError:
            raise TemplateLost from None
        return self._reply(30.0)

    def _reply(self, seconds: float) -> int:
        end = time.monotonic() + seconds
        received = b""
        while len(received) < REPLY.size:
            try:
                readable, _, _ = select.select([self._orders], [], [], max(0.0, end - time.monotonic()))
                piece = self._orders.recv(REPLY.size - len(received)) if readable else b""
            except (OSError, ValueError):  # gone, or closed below
                piece = b""
            if not piece:
                self._orders.close()  # a reply that comes late must not answer another question
                raise TemplateLost
            received += piece
        return REPLY.unpack(received)[0]

    def stop(self) -> int:
        """End it now; its exit status."""
        self._orders.close()
        self.process.kill()
        return self.process.wait()
