"""The real run's scripts: which questions are easy, how they are split, and the tables made from a run's files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from meml_mel.data.question import Question

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "smollm2"))

import easy_questions as easy  # noqa: E402
import evaluate  # noqa: E402
import summary  # noqa: E402

KEPT = ROOT / "docs" / "real-run"


def question(id: str, solution: str, answer: str, problem: str = "How many?") -> Question:
    return Question(id, problem, answer, solution=solution)


@pytest.mark.parametrize(
    "solution, answer, key",
    [
        ("5 + 3 = 8\n#### 8", "8", (1, 8, 9)),
        ("5 * 8 = 40 dolls.\n8 + 40 = 48 dolls.\n#### 48", "48", (2, 48, 9)),
        ("5 + 3 = 9\n#### 9", "9", None),  # a wrong calculation
        ("5 / 2 = 2.5\n#### 2.5", "2.5", None),  # not whole
        ("50 * 3 = 150\n#### 150", "150", None),  # above 100
        ("2 + 2 = 4\n4 + 2 = 6\n6 + 1 = 7\n#### 7", "7", None),  # three calculations
        ("2 + 2 = 4\n#### 5", "5", None),  # ends elsewhere
        ("There are four.\n#### 4", "4", None),  # none
    ],
)
def test_easy_is_one_or_two_right_calculations_of_small_whole_numbers(solution, answer, key):
    assert easy.easiness(question("q", solution, answer), largest=100, max_characters=180) == key


def test_a_long_problem_is_not_easy():
    long = question("q", "5 + 3 = 8\n#### 8", "8", "x" * 181)
    assert easy.easiness(long, largest=100, max_characters=180) is None


def test_candidates_and_demonstrations_share_no_question():
    found = easy.easiest_first(
        [question(f"q{i:02d}", f"{i} + 1 = {i + 1}\n#### {i + 1}", str(i + 1)) for i in reversed(range(20))],
        largest=100,
        max_characters=180,
    )
    candidates, demonstrations = easy.split(found, candidates=4, demonstrations=100)
    assert [q.id for q in candidates] == ["q00", "q02", "q04", "q06"]
    assert [q.id for q in demonstrations] == ["q01", "q03", "q05", *(f"q{i:02d}" for i in range(7, 20))]


def test_the_sets_of_the_real_run_read_test_rows_from_400_on(tmp_path):
    sets = evaluate.read_sets(ROOT / "examples" / "smollm2" / "evaluation.yaml")
    starts = {s.name: s.data.start for s in sets if s.name.startswith("test")}
    assert starts == {"test-easy-greedy": 400, "test-easy-avg8": 400, "test-greedy": 400}
    assert [(s.samples, s.temperature) for s in sets if s.name == "test-easy-avg8"] == [(8, 0.7)]


def test_a_set_takes_the_first_easy_questions_in_the_order_of_the_file(tmp_path):
    file = tmp_path / "q.jsonl"
    rows = [(i, "easy" if i % 2 else "x" * 300) for i in range(8)]
    file.write_text(
        "".join(
            json.dumps({"id": f"q{i}", "problem": f"{p} {i}?", "answer": "8", "solution": "5 + 3 = 8"}) + "\n"
            for i, p in rows
        )
    )
    sets = tmp_path / "sets.yaml"
    sets.write_text(
        f"sets:\n- name: a\n  data: {{path: {json.dumps(str(file))}, mapping: gsm8k, start: 2}}\n"
        "  easy: {largest: 100, max_characters: 180}\n  questions: 2\n"
    )
    assert [q.id for q in evaluate.read_sets(sets)[0].load()] == ["q3", "q5"]


def test_each_expert_has_its_layout_and_the_answer_is_boxed_once():
    q = question("q", "Ann has 5 * 8 = 40\nSo 8 + 40 = 48 dolls.\n#### 48", "48")
    end = "\nThe answer is \\boxed{48}."
    assert easy.completion(q, "E0") == "Ann has 5 * 8 = 40\nSo 8 + 40 = 48 dolls." + end
    assert easy.completion(q, "E1") == "Ann has 5 * 8 = 40. So 8 + 40 = 48 dolls." + end
    assert easy.completion(q, "E2") == "1. Ann has 5 * 8 = 40\n2. So 8 + 40 = 48 dolls." + end


def test_wilsons_interval_is_the_published_one():
    # Newcombe 1998, Statistics in Medicine 17:857, Table I: 81/263, 15/148, 0/20, 1/29; score method
    for right, asked, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert summary.wilson(right, asked) == pytest.approx((low, high), abs=5e-5)


def test_samples_of_a_question_count_as_one_unit():
    # two questions, 8 samples: all right and all wrong is a spread of shares 1 and 0, standard error 0.5
    assert summary.clustered([8, 0], 8) == (0.0, 1.0)
    assert summary.clustered([4, 4, 4], 8) == pytest.approx((0.5, 0.5))


def rows() -> list[dict[str, float]]:
    me, hard = summary.ME, summary.HARD
    return [
        {
            "step": i,
            "reward": 0.1 * i,
            "questions/mixed": 2.0,
            me + "pairs": 3.0,
            me + "retained": float(i == 2),
        }
        | {hard + "flushed": 6.0 * (i == 3), hard + "flush_count": float(i >= 3), "step_time": 30.0}
        for i in (1, 2, 3)
    ]


def test_yields_are_sums_over_the_steps():
    found = summary.yields(rows())
    assert found == {
        "mixed questions": 6,
        "pairs": 9,
        "replays right = retained": 1,
        "examples flushed": 6,
        "buffer flushes": 1,
    }
    table = summary.yields_table({"both": rows(), "grpo": [{"step": 1, "questions/mixed": 1.0}]})
    assert "| pairs | 9 | - |" in table and "| steps | 3 | 1 |" in table


def test_windows_have_means_of_rewards_and_sums_of_counts():
    table = summary.steps_table(rows(), every=2)
    assert table.splitlines()[0].startswith("| steps | reward | mixed | pairs | retained | flushed |")
    assert table.splitlines()[2].startswith("| 1-2 | 0.15 | 4 | 6 | 1 | 0 |")
    assert table.splitlines()[3].startswith("| 3-3 | 0.3 | 2 | 3 | 0 | 6 |")


def test_lines_come_back_as_they_were_written(tmp_path):
    lines = [{"text": "a\u2028b\n¼"}, {"n": 1}]
    for name in ("a.jsonl", "a.jsonl.gz"):
        summary._write_lines(tmp_path / name, lines)
        assert summary.read_jsonl(tmp_path / name) == lines


def evaluation(e0: list[int], e1: list[int]) -> dict:
    experts = {
        name: {"right": sum(right), "asked": len(right), "right_per_question": right}
        for name, right in (("E0", e0), ("E1", e1))
    }
    return {"easy": {"samples": 1, "questions": [f"q{i}" for i in range(len(e0))], "experts": experts}}


def test_accuracies_are_counts_and_differences_are_paired():
    models = {
        "before": evaluation([1, 0, 0, 0], [0, 0, 0, 0]),
        "after": evaluation([1, 1, 0, 0], [1, 0, 0, 0]),
    }
    table = summary.evaluation_table(models)
    assert "| easy, E0 | 1/4 = 25.0 % [4.6, 69.9] | 2/4 = 50.0 % [15.0, 85.0] |" in table
    assert "| easy, all | 1/8 = 12.5 %" in table
    # per question, over both experts: .5 -> 1, 0 -> .5, then nothing: mean +25 points, sd .2887, error .1443
    assert "| easy | +25.0 [-3.3, +53.3] |" in summary.difference_table(models, "before")


def test_collect_keeps_what_the_tables_need(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps(r | {"clip_ratio/low_min": 0.0}) + "\n" for r in rows())
    )
    (run / "config.resolved.yaml").write_text("seed: 42\n")
    evaluations = tmp_path / "eval"
    evaluations.mkdir()
    (evaluations / "before.json").write_text(json.dumps({"sets": evaluation([1], [0])}))
    summary.collect({"both": run}, evaluations, tmp_path / "kept")
    printed = summary.tables(tmp_path / "kept", every=3, base=None)
    assert "| replays right = retained | 1 |" in printed and "| easy, E0 | 1/1 = 100.0 %" in printed
    assert "clip_ratio" not in (tmp_path / "kept" / "both.metrics.jsonl").read_text()


@pytest.mark.skipif(not KEPT.exists(), reason="docs/real-run is not in this checkout")
def test_the_tables_of_the_docs_are_those_of_the_kept_figures():
    text = (ROOT / "docs" / "real-run.md").read_text(encoding="utf-8")
    for block in summary.tables(KEPT, every=5, base="before").split("\n\n"):
        if block.startswith("|"):
            assert block in text, block
