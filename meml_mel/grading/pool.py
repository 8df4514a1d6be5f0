r"""`GradingPool`: the same verdicts as `grade`, from processes that can be killed.

    with GradingPool(workers=2, timeout=5.0) as pool:
        grades = pool.grade([GradeItem(gold="1/2", answer="... \\boxed{0.5}")])

Answers are extracted, and what text and exact numbers decide is decided, in the calling process; the rest goes
to the workers (worker.py), equal claims once. A worker that overruns its CPU time on a claim is ended by the
kernel, and only that claim is lost: its answer is wrong ("timeout"), or ungradable ("timeout") where the gold
alone already overruns. Works from any thread, and beside CUDA: the caller's process is never forked.

Why not pebble: its pool stops for good when an idle worker is killed (by the memory killer, say), it counts time
per task, so that a chunk's culprit is unknown, and its spawned workers import the caller's main module, torch
and all. POSIX only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait

from .grader import ENDLESS_GOLD, NO_ALGEBRA, UNGRADABLE, Claim, Gold, NeedsAlgebra, claim, decide
from .processes import Template, TemplateLost, Worker
from .verdict import Grade, Kind

_CHUNK = 16
_ATTEMPTS = 3  # on fresh workers, for a claim whose workers die of something other than their clock
PROBE = "12345.678"  # an answer that is easy to compare: what overruns against it is the gold's fault
_SHORT = 400  # characters: longer texts are not even read in the calling process


@dataclass(frozen=True, slots=True)
class GradeItem:
    """One response to grade; the fields are `grade`'s arguments."""

    gold: Gold
    answer: str
    kind: Kind = "math"
    truncated: bool = False


@dataclass(slots=True)
class _Processes:
    """What has to be ended when the pool is: the template and its workers."""

    pid: int = field(default_factory=os.getpid)
    template: Template | None = None
    workers: list[Worker] = field(default_factory=list)

    def stop(self) -> None:
        if self.pid != os.getpid():  # a forked copy: they belong to the parent
            return
        while self.workers:
            self.workers.pop().stop()
        if self.template is not None:
            self.template.stop()
            self.template = None


@dataclass(slots=True)
class _Batch:
    """One call's claims: still to grade, graded, and waiting for a probe of their gold."""

    queue: deque[Claim]
    todo: set[Claim]
    done: dict[Claim, Grade] = field(default_factory=dict)
    waiting: dict[Claim, list[Claim]] = field(default_factory=dict)
    crashes: Counter[Claim] = field(default_factory=Counter)


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
        self._processes = _Processes()
        self._probed: dict[tuple[tuple[str, ...], Kind], Grade] = {}  # golds that an overrun cast doubt on
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, self._processes.stop)

    def __getstate__(self) -> tuple[int, float, bool]:  # TRL may send a reward function to another process
        return self.workers, self.timeout, self.deduplicate

    def __setstate__(self, state: tuple[int, float, bool]) -> None:
        self.workers, self.timeout, self.deduplicate = state
        self._reset()

    def __enter__(self) -> GradingPool:
        self._mind_fork()
        with self._lock:
            self._launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; a later `grade` starts new ones."""
        self._mind_fork()
        with self._lock:
            self._processes.stop()

    @property
    def pids(self) -> list[int]:
        """The ids of the worker processes that are alive now."""
        return [worker.pid for worker in self._processes.workers]

    def grade(self, items: Sequence[GradeItem]) -> list[Grade]:
        """One grade per item, in order. Raises as `grade` does (a gold that is not text, an unknown kind)."""
        return self.judge([claim(item.gold, item.answer, item.kind, item.truncated) for item in items])

    def judge(self, claims: Sequence[Claim]) -> list[Grade]:
        """One grade per claim, in order: for answers that were extracted before (voting compares them)."""
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
        if self._processes.pid != os.getpid():
            self._finalizer.detach()
            self._reset()

    def _launch(self) -> Template:
        if self._processes.template is None:
            self._processes.template = Template(self.timeout)
        return self._processes.template

    def _fill(self) -> list[Worker]:
        """Fork workers up to the number wanted; a template that has died is replaced."""
        workers = self._processes.workers
        while len(workers) < self.workers:
            template = self._launch()
            template.await_ready()
            try:
                workers.append(template.fork())
            except TemplateLost:
                template.stop()
                self._processes.template = None
        return workers

    def _work(self, claims: Iterable[Claim]) -> dict[Claim, Grade]:
        queue = deque(claims)
        batch = _Batch(queue, set(queue))
        try:
            while batch.todo:
                self._turn(batch)
        except BaseException:  # an interrupt: answers that are still to come must not meet the next batch
            self._processes.stop()
            raise
        return batch.done

    def _turn(self, batch: _Batch) -> None:
        """Hand out work, then wait for one answer, death or overrun."""
        workers = self._fill()
        for worker in workers:
            if batch.queue and not worker.claims:
                self._send(worker, batch.queue)
        pipes = {worker.pipe: worker for worker in workers}
        soonest = min(worker.deadline for worker in workers if worker.claims)
        readable = wait(list(pipes), timeout=max(0.0, soonest - time.monotonic()))
        for worker in [pipes[pipe] for pipe in readable if isinstance(pipe, Connection)]:
            if worker not in workers:  # stopped meanwhile, beside one that had died
                continue
            try:
                grade = worker.pipe.recv()
            except (EOFError, OSError):
                self._lost(worker, batch, worker.status() == -signal.SIGPROF)
                continue
            worker.deadline = time.monotonic() + self._patience
            self._settle(worker.claims.popleft(), grade, batch)
        now = time.monotonic()
        for worker in [w for w in workers if w.claims and w.deadline < now]:
            worker.stop()
            self._lost(worker, batch, overran=False)

    @property
    def _patience(self) -> float:
        """Wall seconds without an answer after which a worker is given up: its own clock counts CPU time, so it
        must have been stopped or starved, and its claim is tried again."""
        return 10 * self.timeout + 10

    def _send(self, worker: Worker, queue: deque[Claim]) -> None:
        share = -(-len(queue) // (2 * self.workers))
        chunk = [queue.popleft() for _ in range(min(_CHUNK, share))]
        worker.claims.extend(chunk)
        worker.deadline = time.monotonic() + self._patience
        with contextlib.suppress(OSError):  # it is gone; reading from its pipe will say so
            worker.pipe.send(chunk)

    def _settle(self, one: Claim, grade: Grade, batch: _Batch) -> None:
        """Book a grade; a probe's settles the claims that wait for it."""
        batch.todo.discard(one)
        batch.done[one] = grade
        if one in batch.waiting:
            self._probed[one.gold, one.kind] = grade
            for other in batch.waiting.pop(one):
                self._settle(other, _overrun(other, grade), batch)

    def _lost(self, worker: Worker, batch: _Batch, overran: bool) -> None:
        """A worker has died or overrun: its other claims go back, and the one it was at is judged."""
        self._processes.workers.remove(worker)
        if not worker.claims:
            return
        culprit = worker.claims.popleft()
        batch.queue.extendleft(reversed(worker.claims))
        batch.crashes[culprit] += not overran
        if not overran and batch.crashes[culprit] < _ATTEMPTS:  # killed from outside, perhaps, and not alone
            batch.queue.appendleft(culprit)
            for idle in [w for w in self._processes.workers if not w.claims]:
                self._processes.workers.remove(idle)
                idle.stop()
            return
        probe = _probe(culprit)
        known = self._probed.get((culprit.gold, culprit.kind))
        if culprit == probe:
            self._settle(culprit, ENDLESS_GOLD if overran else UNGRADABLE, batch)
        elif known is not None:
            self._settle(culprit, _overrun(culprit, known), batch)
        elif probe in batch.waiting:
            batch.waiting[probe].append(culprit)
        else:
            batch.waiting[probe] = [culprit]
            batch.todo.add(probe)
            batch.queue.appendleft(probe)


def _decide_here(one: Claim) -> Grade | None:
    """The grade where short texts and exact numbers decide it; None leaves it to a worker and its clock."""
    if sum(len(gold) for gold in one.gold) > _SHORT or len(one.extracted or "") > _SHORT:
        return None
    try:
        return decide(one, NO_ALGEBRA)
    except NeedsAlgebra:
        return None


def _probe(one: Claim) -> Claim:
    """Is the gold alone too much?"""
    return Claim(one.gold, PROBE, one.kind)


def _overrun(one: Claim, probe: Grade) -> Grade:
    """The grade of a claim that overran: the gold's fault or the answer's, as its probe's grade says."""
    return probe if probe.verdict == "ungradable" else Grade("wrong", "timeout", one.extracted)
