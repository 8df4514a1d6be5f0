"""The pool must never hang, lose an answer or leave a process behind."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from grading_cases import BOOLEAN, CHOICE, MATH

from meml_mel.grading import Grade, grade
from meml_mel.grading.pool import GradeItem, GradingPool

ROOT = Path(__file__).parents[2]
# Each of these keeps the computer algebra busy for minutes or for ever, in Python or inside one C call.
POISON = [
    r"\boxed{\sum_{k=1}^{10^{9}} \frac{1}{k^2+x}}",
    r"\boxed{\binom{10^9}{5\cdot 10^8}}",
    r"\boxed{\sum_{n=1}^{10^8} n x^n}",
    r"\boxed{\prod_{k=1}^{10^8} k}",
]
HOSTILE = [
    r"\boxed{5^{5^{5^{5^{5}}}}}", "x" * 200_000, r"\boxed{" + "9" * 200_000 + "}", "\\boxed{\x00}", "\ud800",
    r"\boxed{x+1", "}" * 9999, r"\boxed{" + "{" * 5000 + "}" * 5000 + "}", r"\boxed{" + "(" * 5000 + "}",
    r"\boxed{" + "(" * 200 + "x" + ")" * 200 + "}", r"\boxed{" + r"\frac{" * 300 + "}",
    r"\boxed{" + r"\sqrt{" * 40 + "x" + "}" * 40 + "}",
]  # fmt: skip


def item(k: int, right: bool = True) -> GradeItem:
    """A healthy item that only the workers can decide."""
    return GradeItem(rf"\frac{{x+{k}}}{{2}}", rf"\boxed{{\frac12 (x+{k if right else k + 1})}}")


def gone(pid: int, within: float = 15.0) -> bool:
    """Has the process ended (a zombie has)?"""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            if " Z " in Path(f"/proc/{pid}/stat").read_text() or os.waitpid(pid, os.WNOHANG)[0]:
                return True
        except FileNotFoundError:
            return True
        except ChildProcessError:
            pass
        time.sleep(0.05)
    return False


def test_the_pool_gives_the_verdicts_of_grade_in_order(pool):
    rows = [(g, a, "math") for rows in MATH.values() for g, a, _ in rows[::3]]
    rows += [(g, a, "choice") for g, a, _ in CHOICE] + [(g, a, "boolean") for g, a, _ in BOOLEAN]
    assert pool.grade([GradeItem(*row) for row in rows]) == [grade(*row) for row in rows]
    assert pool.grade([GradeItem("x", "x", truncated=True)])[0].reason == "truncated"
    assert pool.grade([]) == []


def test_poison_is_wrong_and_the_healthy_are_graded_beside_it(pool, monkeypatch):
    items = [item(k, right=k % 2 == 0) for k in range(200)]
    for where, poison in zip((0, 50, 51, 199), POISON, strict=True):
        items.insert(where, GradeItem("x+1", poison))
    clock = ended(monkeypatch)
    grades = pool.grade(items)
    assert clock == [True] * 4  # each costs its own CPU limit, once
    poisoned = [g for i, g in zip(items, grades, strict=True) if i.gold == "x+1"]
    assert [(g.verdict, g.reason) for g in poisoned] == [("wrong", "timeout")] * 4
    healthy = [g.right for i, g in zip(items, grades, strict=True) if i.gold != "x+1"]
    assert healthy == [k % 2 == 0 for k in range(200)]


def test_hostile_text_is_wrong_without_running_out_of_time(pool, monkeypatch):
    clock = ended(monkeypatch)
    grades = pool.grade([GradeItem("x+1", answer) for answer in HOSTILE])
    assert [g.verdict for g in grades] == ["wrong"] * len(HOSTILE)
    assert clock == []
    assert all(len(g.extracted or "") <= 2001 for g in grades)


def test_a_gold_that_never_ends_is_ungradable_and_remembered(pool):
    gold = r"\sum_{k=1}^{10^{9}} \frac{1}{k^2+x}"
    first = pool.grade([GradeItem(gold, rf"\boxed{{{k}x}}") for k in range(2, 5)])
    assert first == [Grade("ungradable", "timeout")] * 3
    sound = pool.grade([GradeItem("x+1", POISON[0]), item(1)])
    assert [g.verdict for g in sound] == ["wrong", "right"]


def test_it_works_from_threads(pool):
    results: dict[int, list[Grade]] = {}

    def work(k: int) -> None:
        results[k] = pool.grade([item(k), item(k, right=False), GradeItem("1/2", "0.5")])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert {k: [g.right for g in grades] for k, grades in results.items()} == {
        k: [True, False, True] for k in range(6)
    }


def test_killed_workers_lose_nothing(pool):
    assert pool.grade([item(0)])[0].right
    for pid in pool.pids:  # idle ones
        os.kill(pid, signal.SIGKILL)
    assert pool.grade([item(1)])[0].right
    for pid in (pool._processes.template.process.pid, *pool.pids):  # and what they are forked from
        os.kill(pid, signal.SIGKILL)
    assert pool.grade([item(2)])[0].right
    done: list[list[Grade]] = []
    thread = threading.Thread(target=lambda: done.append(pool.grade([item(k) for k in range(300)])))
    thread.start()
    for _ in range(3):  # busy ones
        time.sleep(0.2)
        for pid in pool.pids[:1]:
            os.kill(pid, signal.SIGKILL)
    thread.join(timeout=120)
    assert done and all(g.right for g in done[0])


def ended(monkeypatch) -> list[bool]:
    """Of each worker that is lost from now on: did its own clock end it?"""
    found: list[bool] = []
    lost = GradingPool._lost

    def spy(self, worker, batch, overran):
        found.append(overran)
        lost(self, worker, batch, overran)

    monkeypatch.setattr(GradingPool, "_lost", spy)
    return found


def test_the_clock_is_the_workers_own_and_counts_cpu_time(pool, monkeypatch):
    """The pool's patience is wall time, for workers that stand still; an overrun must not wait for it."""
    clock = ended(monkeypatch)
    assert pool.grade([GradeItem("x+2", POISON[1])])[0].reason == "timeout"
    assert clock == [True]


def test_a_worker_that_stands_still_is_replaced_and_its_claim_is_tried_again(pool, monkeypatch):
    assert pool.grade([item(0)])[0].right
    monkeypatch.setattr(GradingPool, "_patience", 2.0)
    for pid in pool.pids:
        os.kill(pid, signal.SIGSTOP)
    assert pool.grade([item(1)])[0].right


@pytest.mark.parametrize("how", ["close", "forget"])
def test_no_process_is_left(how):
    pool = GradingPool(workers=2)
    pool.grade([item(1)])
    pids = [pool._processes.template.process.pid, *pool.pids]
    assert len(pids) == 3
    if how == "close":
        pool.close()
        assert pool.pids == []
    else:
        del pool
    assert all(gone(pid) for pid in pids)


SCRIPT = """
import sys, time
print("main", flush=True)
from meml_mel.grading.pool import GradeItem, GradingPool
pool = GradingPool(workers=1)
print(pool.grade([GradeItem("x^2-1", "(x-1)(x+1)")])[0].verdict, flush=True)
print(pool.pids[0], flush=True)
time.sleep(60)
"""


def test_a_script_needs_no_main_guard_and_its_workers_die_with_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(3)]
        process.kill()
    assert lines[:2] == ["main", "right"]  # once: the worker did not import the script
    assert gone(int(lines[2]))


def test_equal_claims_are_graded_once(pool, monkeypatch):
    sent: list[int] = []
    work = pool._work
    monkeypatch.setattr(pool, "_work", lambda claims: (sent.append(len(claims)), work(claims))[1])
    items = [GradeItem("x+1", text + r" \boxed{1+x}") for text in ("so", "hence", "thus")] * 10 + [item(1)]
    assert all(g.right for g in pool.grade(items))
    monkeypatch.setattr(pool, "deduplicate", False)
    assert all(g.right for g in pool.grade(items))
    assert sent == [2, 31]


def test_text_and_numbers_need_no_worker():
    pool = GradingPool()
    rows = [
        ("18", r"\boxed{18.0}"),
        ("1/2", "0.5"),
        ("(1,2)", "(1, 2)"),
        ("1,2", "2,1"),
        ("Evelyn", "Carla"),
        ("5", ""),
    ]
    assert [g.right for g in pool.grade([GradeItem(*row) for row in rows])] == [True] * 4 + [False] * 2
    assert not pool.pids


def test_a_pool_survives_pickling_and_forking(pool):
    assert pool.grade([item(1)])[0].right
    copy = pickle.loads(pickle.dumps(pool))
    assert (copy.workers, copy.timeout, copy.pids) == (2, 1.0, [])
    assert copy.grade([GradeItem("5", "5")])[0].right
    if sys.platform == "linux":
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(target=lambda: theirs.send(pool.grade([item(3)])[0].verdict))
        child.start()
        assert ours.poll(60) and ours.recv() == "right"
        child.join(10)
    assert pool.grade([item(4)])[0].right


def test_workers_that_cannot_start_are_an_error_not_a_wait(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="the grading process does not start"):
        GradingPool(workers=1).grade([item(1)])


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="workers=0"):
        GradingPool(workers=0)
    with pytest.raises(ValueError, match="timeout=0"):
        GradingPool(timeout=0)
