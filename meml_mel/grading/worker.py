"""The processes that grade.

A *template* is a fresh interpreter that imports the computer algebra once (seconds) and then forks workers on
request (milliseconds): it has no threads and no CUDA, so that forking it is safe, and a killed worker costs
next to nothing. It neither imports the caller's main module nor torch. A *worker* reads claims from a pipe and
answers one by one. The kernel ends it (SIGPROF) when a claim has used its CPU seconds, whatever it is doing: a
signal handler would wait for a long integer power to return. CPU time, not wall time, so that a busy machine
does not turn a right answer into a timed-out one. Both end by themselves when the other end is gone.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
from multiprocessing.connection import Connection

MEMORY_BYTES = 4 << 30
FORK, WAIT = 1, 2
# The parser builds its tables as it meets each construction, slowly: the template meets the usual ones once.
_WARM_UP = (
    "\\begin{pmatrix}1&x\\\\-\\frac12&y\\end{pmatrix}", "\\sum_{k=1}^{n} k", "n!", "|x-1|<2", "\\lfloor x \\rfloor",
    "\\binom{n}{2}", "\\sin^2(x)-2\\cos x", "\\sqrt[3]{x}", "(-\\infty,1)\\cup[2,\\infty)", "-2\\le x\\le 7", "1+2i",
    "\\pi r^2", "3\\sqrt{2}-\\frac{\\sqrt{5}}{2}", "12\\cdot 10^{-3}", "x^2+y^2=1", "(x+1)(x-2)", "e^{2x}", "1.5x+4",
    "90^{\\circ}", "(1,2,3)",
)  # fmt: skip
REQUEST = struct.Struct("!bq")  # what is asked, of which process
REPLY = struct.Struct("!q")  # FORK: the worker's process id (0 on start: ready); WAIT: its exit status


def template(descriptor: int, timeout: float) -> None:
    """Serve the socket `descriptor`: fork a worker for a pipe that is passed, or wait for one to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    _limit_memory()

    from . import symbolic

    for formula in _WARM_UP:
        symbolic.parse(formula)
    symbolic.same("\\frac{x+1}{2}", "\\frac{x}{2}+\\sqrt{\\frac14}")
    gc.freeze()
    with socket.socket(fileno=descriptor) as orders:
        try:
            orders.sendall(REPLY.pack(0))
        except BrokenPipeError:
            return  # the caller has gone meanwhile
        while True:
            try:
                request, pipes, _, _ = socket.recv_fds(orders, REQUEST.size, 1)
            except ConnectionResetError:
                return
            if len(request) < REQUEST.size:
                return
            order, process = REQUEST.unpack(request)
            if order == WAIT:
                reply = _exit_status(process)
            else:
                reply = os.fork()
                if reply == 0:
                    orders.close()
                    _serve(pipes[0], timeout)
                    os._exit(0)
                os.close(pipes[0])
            orders.sendall(REPLY.pack(reply))


def _exit_status(process: int) -> int:
    """Wait for a worker to end; negative: the signal that ended it. 1 for one that is no worker of ours."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except ChildProcessError:
        return 1


def _serve(descriptor: int, timeout: float) -> None:
    """Lists of claims in, one grade per claim out, in order."""
    from . import symbolic
    from .grader import decide

    pipe = Connection(descriptor)
    try:
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
