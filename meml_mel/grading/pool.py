r"""`GradingPool`: the same verdicts as `grade`, from processes that can be killed.

    with GradingPool(workers=2, timeout=5.0) as pool:
        grades = pool.grade([GradeItem(gold="1/2", answer="... \\boxed{0.5}")])

Answers are extracted, and what text and exact numbers decide is decided, in the calling process; the rest goes
to the workers, equal claims once. Workers are fresh interpreters (never forks, so CUDA and threads are no
matter) that import neither the caller's main module nor torch. A worker that overruns its CPU time on a claim
is ended by the kernel, and only that claim is lost: its answer is wrong ("timeout"), or ungradable where the
gold alone already overruns. Works from any thread.

Why not pebble: its pool stops for good when an idle worker is killed (by the memory killer, say), it counts a
timeout per task so that a chunk's culprit is unknown, and its spawned workers import the caller's main module,
torch and all. POSIX only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from .grader import NO_ALGEBRA, UNGRADABLE, Claim, Gold, NeedsAlgebra, claim, decide
from .verdict import Grade, Kind
from .worker import READY

_CHUNK = 16
_SHORT = 400  # characters: longer texts are not even read in the calling process
_START_SECONDS = 120.0
_START_ATTEMPTS = 3
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from meml_mel.grading.worker import main; main(int(sys.argv[2]), float(sys.argv[3]))"
)


@dataclass(frozen=True, slots=True)
class GradeItem:
    """One response to grade; the fields are `grade`'s arguments."""

    gold: Gold
    answer: str
    kind: Kind = "math"
    truncated: bool = False


class _Worker:
    """A worker process, the pipe to it, and the claims it has not answered yet (the first is being graded)."""

    def __init__(self, timeout: float):
        self.pipe, theirs = Pipe()
        paths = [os.path.abspath(path) for path in sys.path] + [str(Path(__file__).parents[2])]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOTSTRAP, json.dumps(paths), str(theirs.fileno()), str(timeout)],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"},
        )
        theirs.close()
        self.ready = False
        self.claims: deque[Claim] = deque()
        self.deadline = time.monotonic() + _START_SECONDS

    def stop(self) -> int:
        """End it now; the exit status (negative: the signal that ended it)."""
        self.pipe.close()
        self.process.kill()
        return self.process.wait()


class GradingPool:
    """Killable grading workers; starting them (1-3 s) is paid on entering, or on first use.

    `timeout`: CPU seconds per claim. `deduplicate=False` grades equal claims each for itself (for measuring).
    """

    def __init__(self, workers: int = 2, timeout: float = 5.0, deduplicate: bool = True):
        if workers < 1 or timeout <= 0:
            raise ValueError(
                f"workers={workers}, timeout={timeout}: at least one worker and a positive time are needed"
            )
        self.workers, self.timeout, self.deduplicate = workers, timeout, deduplicate
        self._reset()

    def _reset(self) -> None:
        self._pool: list[_Worker] = []
        self._sound_golds: dict[tuple[tuple[str, ...], Kind], bool] = {}
        self._failed_starts = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _stop_all, self._pool, self._pid)

    def __getstate__(self) -> tuple[int, float, bool]:  # TRL may send a reward function to another process
        return self.workers, self.timeout, self.deduplicate

    def __setstate__(self, state: tuple[int, float, bool]) -> None:
        self.workers, self.timeout, self.deduplicate = state
        self._reset()

    def __enter__(self) -> GradingPool:
        self._mind_fork()
        with self._lock:
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; a later `grade` starts new ones."""
        with self._lock:
            _stop_all(self._pool, self._pid)

    def grade(self, items: Sequence[GradeItem]) -> list[Grade]:
        """One grade per item, in order. Raises as `grade` does (a gold that is not text, an unknown kind)."""
        claims = [claim(item.gold, item.answer, item.kind, item.truncated) for item in items]
        if not self.deduplicate:
            claims = [replace(one, serial=i) for i, one in enumerate(claims)]
        grades: dict[Claim, Grade] = {}
        open_claims = []
        for one in dict.fromkeys(claims):
            grade = _decide_here(one)
            if grade is None:
                open_claims.append(one)
            else:
                grades[one] = grade
        if open_claims:
            self._mind_fork()
            with self._lock:
                grades |= self._work(open_claims)
        return [grades[one] for one in claims]

    # ------------------------------------------------------------ the workers

    def _mind_fork(self) -> None:
        """In a forked process the workers, and a lock that a thread held, belong to the parent."""
        if self._pid != os.getpid():
            self._finalizer.detach()
            self._reset()

    def _start(self) -> None:
        while len(self._pool) < self.workers:
            self._pool.append(_Worker(self.timeout))

    def _work(self, claims: Iterable[Claim]) -> dict[Claim, Grade]:
        queue = deque(claims)
        todo = set(queue)
        done: dict[Claim, Grade] = {}
        waiting: dict[Claim, list[Claim]] = {}  # probe -> claims whose grade hangs on it
        crashed: set[Claim] = set()
        while todo:
            self._start()
            for worker in self._pool:
                if queue and worker.ready and not worker.claims:
                    self._send(worker, queue)
            pipes = {worker.pipe: worker for worker in self._pool}
            soonest = min(worker.deadline for worker in self._pool if worker.claims or not worker.ready)
            readable = wait(list(pipes), timeout=max(0.0, soonest - time.monotonic()))
            for worker in [pipes[pipe] for pipe in readable if isinstance(pipe, Connection)]:
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    self._lost(worker, queue, todo, done, waiting, crashed)
                    continue
                if message == READY:
                    worker.ready, self._failed_starts = True, 0
                else:
                    self._settle(worker.claims.popleft(), message, todo, done, waiting)
                worker.deadline = time.monotonic() + self._patience
            now = time.monotonic()
            for worker in [w for w in self._pool if (w.claims or not w.ready) and w.deadline < now]:
                self._lost(worker, queue, todo, done, waiting, crashed, overran=True)
        return done

    @property
    def _patience(self) -> float:
        """Wall seconds without an answer after which a worker is killed, should its own clock not have done it."""
        return 2 * self.timeout + 2

    def _send(self, worker: _Worker, queue: deque[Claim]) -> None:
        share = -(-len(queue) // (2 * self.workers))
        chunk = [queue.popleft() for _ in range(min(_CHUNK, share))]
        worker.claims.extend(chunk)
        worker.deadline = time.monotonic() + self._patience
        with contextlib.suppress(OSError):  # it is gone; reading from its pipe will say so
            worker.pipe.send(chunk)

    def _settle(
        self,
        one: Claim,
        grade: Grade,
        todo: set[Claim],
        done: dict[Claim, Grade],
        waiting: dict[Claim, list[Claim]],
    ) -> None:
        """Book a grade; a probe's settles the claims that wait for it."""
        todo.discard(one)
        done[one] = grade
        if one in waiting:
            sound = grade.verdict != "ungradable"
            self._sound_golds[one.gold, one.kind] = sound
            for other in waiting.pop(one):
                self._settle(other, _overrun(other) if sound else UNGRADABLE, todo, done, waiting)

    def _lost(
        self,
        worker: _Worker,
        queue: deque[Claim],
        todo: set[Claim],
        done: dict[Claim, Grade],
        waiting: dict[Claim, list[Claim]],
        crashed: set[Claim],
        overran: bool = False,
    ) -> None:
        """A worker has died or overrun: its other claims go back, and the one it was at is judged."""
        self._pool.remove(worker)
        status = _status(worker)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= _START_ATTEMPTS * self.workers:
                raise RuntimeError(
                    f"grading workers do not start (exit status {status}): their error is on stderr; "
                    f"try `{sys.executable} -c 'import meml_mel.grading.symbolic'`"
                )
        if not worker.claims:
            return
        culprit = worker.claims.popleft()
        queue.extendleft(reversed(worker.claims))
        if not overran and status != -signal.SIGPROF and culprit not in crashed:
            crashed.add(culprit)  # killed from outside, perhaps: it may try once more
            queue.appendleft(culprit)
            return
        probe = _probe(culprit)
        if culprit == probe:
            self._settle(culprit, UNGRADABLE, todo, done, waiting)
        elif (culprit.gold, culprit.kind) in self._sound_golds:
            sound = self._sound_golds[culprit.gold, culprit.kind]
            self._settle(culprit, _overrun(culprit) if sound else UNGRADABLE, todo, done, waiting)
        elif probe in waiting:
            waiting[probe].append(culprit)
        else:
            waiting[probe] = [culprit]
            todo.add(probe)
            queue.appendleft(probe)


def _decide_here(one: Claim) -> Grade | None:
    """The grade where short texts and exact numbers decide it; None leaves it to a worker and its clock."""
    if sum(len(gold) for gold in one.gold) > _SHORT or len(one.extracted or "") > _SHORT:
        return None
    try:
        return decide(one, NO_ALGEBRA)
    except NeedsAlgebra:
        return None


def _probe(one: Claim) -> Claim:
    """Is the gold alone too much? A claim with an answer that is easy to compare."""
    return Claim(one.gold, "12345.678", one.kind)


def _overrun(one: Claim) -> Grade:
    return Grade("wrong", "timeout", one.extracted)


def _status(worker: _Worker) -> int:
    """The exit status of a worker whose pipe has closed; one that is still running is killed."""
    try:
        status = worker.process.wait(timeout=1.0)
        worker.pipe.close()
        return status
    except subprocess.TimeoutExpired:
        return worker.stop()


def _stop_all(pool: list[_Worker], pid: int) -> None:
    if pid == os.getpid():
        while pool:
            pool.pop().stop()
