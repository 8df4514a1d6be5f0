"""The process that grades: reads claims from a pipe, answers one by one, and is killed by its own CPU clock.

The kernel ends the process (SIGPROF) when a claim has used its CPU seconds, whatever it is doing: a signal
handler would wait for a long integer power to return. CPU time, not wall time, so that a busy machine does not
turn a right answer into a timed-out one. It ends by itself when the other end of the pipe is gone.
"""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection

MEMORY_BYTES = 4 << 30
READY = "ready"


def main(descriptor: int, timeout: float) -> None:
    """Serve the pipe `descriptor`: lists of claims in, one grade per claim out, in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    _limit_memory()

    from . import symbolic
    from .grader import decide

    symbolic.same(
        "\\frac{x+1}{2}", "\\frac{x}{2}+\\sqrt{\\frac14}"
    )  # the parser's tables are built on first use
    pipe = Connection(descriptor)
    try:
        pipe.send(READY)
        while True:
            for claim in pipe.recv():
                signal.setitimer(signal.ITIMER_PROF, timeout)
                grade = decide(claim, symbolic)
                signal.setitimer(signal.ITIMER_PROF, 0)
                pipe.send(grade)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _limit_memory() -> None:
    """A number of ten billion digits must fail here, not take the machine's memory."""
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    except (ImportError, ValueError, OSError):
        pass
