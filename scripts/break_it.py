"""Break the code in one place at a time and show that the tests that guard it fail.

python scripts/break_it.py [NAME ...]      # all, or those whose name contains NAME

Each mutation is made in a temporary copy of the tracked files, in which the same tests pass beforehand. Exit
status 1 when a mutation survives.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GRADIENT = "tests/rlvr/test_gradient.py tests/rlvr/test_gradient_objectives.py"
EQUALITY = "tests/rlvr/test_trl_equality.py"
RESUME = "tests/rlvr/test_resume.py"
CASES = "tests/grading/test_grading_cases.py"
POOL = "tests/grading/test_grading_pool.py"
LIMIT_S = 3600  # a mutation under which the tests hang is caught as well

# name, file, what stands there, what is put instead, the tests that must fail
MUTATIONS = [
    (
        "gradient: supervised loss not scaled to cancel the mean over ranks",
        "meml_mel/rlvr/supervision.py",
        "return loss * trainer.accelerator.num_processes",
        "return loss",
        f"{GRADIENT} -k process",
    ),
    (
        "gradient: supervised loss divided by accumulation",
        "meml_mel/rlvr/supervision.py",
        "return loss * trainer.accelerator.num_processes",
        "return loss * trainer.accelerator.num_processes / trainer.args.gradient_accumulation_steps",
        GRADIENT,
    ),
    (
        "gradient: NLL summed over tokens, not averaged",
        "meml_mel/rlvr/losses.py",
        "return torch.where(mask, values, 0).sum(-1) / mask.sum(-1)",
        "return torch.where(mask, values, 0).sum(-1)",
        GRADIENT,
    ),
    (
        "gradient: target shifted by one token",
        "meml_mel/rlvr/losses.py",
        "target_mask[i, len(prompt) - 1 : len(prompt) + len(target) - 1] = True",
        "target_mask[i, len(prompt) : len(prompt) + len(target) - 1] = True",
        GRADIENT,
    ),
    (
        "gradient: supervised likelihood at the sampling temperature",
        "meml_mel/rlvr/trl_adapter.py",
        "return (unit if unit_temperature else sampling)(*args, **kwargs)",
        "return sampling(*args, **kwargs)",
        f"{GRADIENT} tests/rlvr/test_trl_adapter.py -k 'float32 or temperature'",
    ),
    (
        "gradient: text targets without their end token",
        "meml_mel/rlvr/supervision.py",
        "target = [*target, self.trainer.processing_class.eos_token_id]",
        "target = [*target]",
        GRADIENT,
    ),
    (
        "gradient: skipping rows forgets the denominator",
        "meml_mel/rlvr/trl_adapter.py",
        "return loss * (rows.sum() / len(rows)) if by_rows else loss",
        "return loss",
        f"{GRADIENT} -k skipping",
    ),
    (
        "gradient: supervised examples of every micro-step land in the first",
        "meml_mel/rlvr/trainer.py",
        "self.supervision.backward(model, self.micro_step)",
        "self.supervision.backward(model, 0)",
        GRADIENT,
    ),
    (
        "objectives: MEL weighed per rank's rows instead of questions",
        "meml_mel/mel/objective.py",
        "context.questions * n_q",
        "context.questions * n_q * 2",
        GRADIENT,
    ),
    (
        "objectives: mutual learning teaches the best expert, not the worst",
        "meml_mel/meml/mutual_learning.py",
        "lowest = max(means.values()), min(means.values())",
        "lowest = min(means.values()), max(means.values())",
        GRADIENT,
    ),
    (
        "equality: TRL's advantages recomputed in float64",
        "meml_mel/rlvr/trainer.py",
        'if algorithm.advantage != "grpo":',
        "if True:",
        EQUALITY,
    ),
    (
        "equality: the second epoch starts at the first epoch's order",
        "meml_mel/rlvr/sampler.py",
        "for _ in range(self.epoch):",
        "for _ in range(0):",
        f"{EQUALITY} tests/rlvr/test_sampler.py",
    ),
    (
        "equality: sampling touches the random state",
        "meml_mel/rlvr/trainer.py",
        '        with self.phases("rollout"):\n            return super()._generate(prompts)',
        '        torch.rand(1)\n        with self.phases("rollout"):\n            return super()._generate(prompts)',
        EQUALITY,
    ),
    (
        "resume: the buffer is not restored",
        "meml_mel/rlvr/trainer.py",
        'objective.load_state_dict(state["objectives"][objective.name])',
        "pass",
        RESUME,
    ),
    (
        "resume: the refill stream starts again",
        "meml_mel/rlvr/trainer.py",
        'self.refill_stream.position = state["refill_position"]',
        "pass",
        RESUME,
    ),
    (
        "resume: an incomplete checkpoint is taken",
        "meml_mel/rlvr/checkpoint.py",
        "        if reason is None:\n            return folder, passed_over",
        "        return folder, passed_over",
        RESUME,
    ),
    (
        "resume: metrics past the checkpoint stay",
        "meml_mel/rlvr/trainer.py",
        "self.metrics_log.cut_back(step)",
        "pass",
        RESUME,
    ),
    (
        "grading: an empty or unterminated last box falls back to an earlier one",
        "meml_mel/grading/extract.py",
        "    boxes = list(_BOX.finditer(text))",
        '    boxes = [b for b in _BOX.finditer(text) if (_box_content(text, b.end())[0] or "").strip()]',
        f"tests/grading/test_grading_extract.py {CASES} -k 'boxed or stands'",
    ),
    (
        "grading: what a base model runs on to write is read",
        "meml_mel/grading/extract.py",
        "return _cut_run_on(_after_thinking(response))",
        "return _after_thinking(response)",
        f"{CASES} -k thinking",
    ),
    (
        "grading: two different equations are equal",
        "meml_mel/grading/symbolic.py",
        "return not ratio.free_symbols and ratio != 0",
        "return True",
        f"{CASES} -k equations",
    ),
    (
        "grading: a percentage is a number like any other",
        "meml_mel/grading/numerals.py",
        "    if gold.percent == answer.percent:",
        "    if True:",
        f"{CASES} -k percent",
    ),
    (
        "grading: a gold that cannot be parsed makes the answer wrong",
        "meml_mel/grading/grader.py",
        "            return UNGRADABLE\n    except compare",
        '            return Grade("wrong", "different", shown)\n    except compare',
        f"{CASES} -k 'parsed or verdict'",
    ),
    (
        "grading: a truncated answer can be right",
        "meml_mel/grading/grader.py",
        '        return Grade("wrong", "truncated", shown)\n    if not claim.extracted or not tidy',
        "        pass\n    if not claim.extracted or not tidy",
        f"{CASES} -k verdict",
    ),
    (
        "grading: a claim that ran out of time is right",
        "meml_mel/grading/pool.py",
        'else Grade("wrong", "timeout", one.extracted)',
        'else Grade("right", None, one.extracted)',
        f"{POOL} -k 'poison or clock'",
    ),
    (
        "grading: a worker that overruns its time is not ended",
        "meml_mel/grading/worker.py",
        "signal.setitimer(signal.ITIMER_PROF, timeout)",
        "pass",
        f"{POOL} -k clock",
    ),
    (
        "grading: equal answers to different golds are taken for one claim",
        "meml_mel/grading/grader.py",
        "    gold: tuple[str, ...]\n    extracted",
        '    gold: tuple[str, ...] = __import__("dataclasses").field(compare=False)\n    extracted',
        f"{POOL} -k 'verdicts_of_grade'",
    ),
    (
        "grading: a gold that never ends makes the answer wrong",
        "meml_mel/grading/pool.py",
        "self._settle(culprit, ENDLESS_GOLD if overran else UNGRADABLE, batch)",
        'self._settle(culprit, Grade("wrong", "timeout"), batch)',
        f"{POOL} -k never_ends",
    ),
]


def tracked(target: Path) -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in names.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run(tests: str, folder: Path) -> tuple[int | None, str]:
    """Exit status (None: no end within LIMIT_S) and last line of pytest on `tests` in the copy."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *shlex.split(tests)]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status: int | None = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the session is its own: pytest and what it started
            process.wait()
            status = None
        output.seek(0)
        lines = [line.strip() for line in output if line.strip()]
    return status, lines[-1] if lines else ""


def survives(mutation: tuple[str, str, str, str, str], folder: Path) -> tuple[bool, str]:
    """Whether the tests still pass under a mutation, and pytest's last line.

    Only failing tests (1) and tests that hang catch it: no test selected, or a copy that cannot even be collected,
    proves nothing and stops the script.
    """
    name, file, before, after, tests = mutation
    path = folder / file
    original = path.read_text()
    if original.count(before) != 1:
        raise SystemExit(f"{file}: expected exactly once, found {original.count(before)} times:\n{before}")
    path.write_text(original.replace(before, after))
    try:
        status, line = run(tests, folder)
    finally:
        path.write_text(original)
    if status not in (None, 0, 1):
        raise SystemExit(f"{name}: pytest ended with {status} on {tests}: {line}")
    return status == 0, line if status is not None else f"no end within {LIMIT_S} s"


def main() -> int:
    wanted = [m for m in MUTATIONS if not sys.argv[1:] or any(word in m[0] for word in sys.argv[1:])]
    alive = 0
    with tempfile.TemporaryDirectory() as folder:
        tracked(Path(folder))
        for tests in dict.fromkeys(m[4] for m in wanted):
            status, line = run(tests, Path(folder))
            print(f"unbroken: {tests}: {line}", flush=True)
            if status != 0 or " passed" not in f" {line}":
                raise SystemExit("these tests must pass, not only skip, before they can catch anything")
        for mutation in wanted:
            started = time.perf_counter()
            lived, line = survives(mutation, Path(folder))
            alive += lived
            took = time.perf_counter() - started
            print(f"{'SURVIVED' if lived else 'caught  '} {mutation[0]} ({took:.0f} s): {line}", flush=True)
    print(f"{len(wanted) - alive} of {len(wanted)} caught")
    return 1 if alive else 0


if __name__ == "__main__":
    raise SystemExit(main())
