"""Curves are drawn from metrics.jsonl alone, and what can't be drawn is said."""

from __future__ import annotations

import json

import pytest

from meml_mel.report.plots import PlotError, plot_runs, read_metrics


def write(folder, lines):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_runs_with_different_metrics_share_a_picture(tmp_path):
    plain = write(tmp_path / "plain", [{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.3}])
    kept = {"objective/meta_experience/retained": 2}
    mel = write(tmp_path / "mel", [{"step": 1, "reward": 0.2, **kept}])
    picture = plot_runs({"plain": plain, "mel": mel}, tmp_path / "deep/curves.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_without_a_step_is_named(tmp_path):
    with pytest.raises(PlotError, match="holds no metrics"):
        read_metrics(tmp_path)


def test_metrics_without_any_panel_are_refused(tmp_path):
    run = write(tmp_path / "run", [{"step": 1, "loss": 0.5}])
    with pytest.raises(PlotError, match="have none of reward"):
        plot_runs({"run": run}, tmp_path / "curves.png")
