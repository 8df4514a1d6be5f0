"""The wheel works outside the checkout, with its assets; recipes are found by name or path."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from meml_mel import resources
from meml_mel.resources import ResourceError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from this checkout, by hatchling itself: no network."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel: pip install -e '.[dev]'")
    folder = tmp_path_factory.mktemp("wheel")
    script = f"import hatchling.build as b; print(b.build_wheel({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, timeout=120)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(code: str, unpacked: Path, cwd: Path) -> str:
    """Run code that sees the unpacked wheel and not the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def files_of(folder: Path) -> set[str]:
    return {
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }


def test_the_wheel_carries_every_asset_and_no_more_than_the_package(unpacked):
    for kind in resources.KINDS:
        if (ROOT / kind).is_dir():
            assert files_of(unpacked / "meml_mel" / "_assets" / kind) == files_of(ROOT / kind)
    templates = {p.name for p in (ROOT / "meml_mel" / "prompts").glob("*.jinja")}
    assert templates and templates <= {p.name for p in (unpacked / "meml_mel" / "prompts").iterdir()}
    tops = {p.name for p in unpacked.iterdir()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"meml_mel"}


def test_a_recipe_resolves_from_the_wheel_outside_the_checkout(unpacked, tmp_path):
    code = (
        "import meml_mel; from meml_mel import resources as r; names = r.recipes();"
        "print(meml_mel.__file__); print(r.find_recipe(names[0])) if names else print(r.path('configs'))"
    )
    module, recipe = python(code, unpacked, tmp_path).splitlines()
    assert Path(module).is_relative_to(unpacked)
    assert Path(recipe).is_relative_to(unpacked / "meml_mel" / "_assets" / "configs")


def test_the_command_of_the_wheel_runs_outside_the_checkout(unpacked, tmp_path):
    code = "import sys; from meml_mel.cli import main; sys.exit(main(['doctor', '--help']))"
    assert "meml-mel doctor" in python(code, unpacked, tmp_path)


def test_the_wheels_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
        [points] = [n for n in archive.namelist() if n.endswith("entry_points.txt")]
        assert "meml-mel = meml_mel.cli:main" in archive.read(points).decode()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"eval", "vllm", "peft", "plots", "dev"} <= set(metadata.get_all("Provides-Extra"))


def test_the_licence_is_apache_2_and_both_papers_are_cited():
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License\n" in licence and "END OF TERMS AND CONDITIONS" in licence
    citation = (ROOT / "CITATION.cff").read_text()
    assert "2602.10224" in citation and "2508.09670" in citation


def test_versions_agree():
    import yaml

    import meml_mel

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["version"] == citation["version"] == meml_mel.__version__
    assert f"## {meml_mel.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


# -- names of recipes ----------------------------------------------------------------------------------------


@pytest.fixture
def assets(tmp_path, monkeypatch) -> Path:
    """A package folder with two recipes and an accelerate file."""
    for name in ("smollm2-135m/meml_mel", "smollm2-135m/sft", "accelerate/cpu"):
        file = tmp_path / "configs" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("seed: 1\n")
    monkeypatch.setattr(resources, "root", lambda: tmp_path)
    return tmp_path


def test_a_recipe_is_named_or_a_path(assets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    assert resources.recipes() == ["smollm2-135m/meml_mel", "smollm2-135m/sft"]
    recipe = assets / "configs" / "smollm2-135m" / "sft.yaml"
    for name in ("smollm2-135m/sft", "smollm2-135m/sft.yaml", "configs/smollm2-135m/sft.yaml", str(recipe)):
        assert resources.find_recipe(name) == recipe


def test_a_file_here_comes_before_a_recipe_of_the_same_name(assets, tmp_path, monkeypatch):
    here = tmp_path / "work"
    (here / "smollm2-135m").mkdir(parents=True)
    (here / "smollm2-135m" / "sft").write_text("seed: 2\n")
    monkeypatch.chdir(here)
    assert resources.find_recipe("smollm2-135m/sft").read_text() == "seed: 2\n"


def test_an_unknown_recipe_names_the_nearest_and_lists_them(assets):
    with pytest.raises(ResourceError) as error:
        resources.find_recipe("smollm2-135m/meml")
    assert "Nearest: 'smollm2-135m/meml_mel'" in str(error.value)
    assert "smollm2-135m/sft" in str(error.value) and "accelerate" not in str(error.value)


def test_unknown_assets_are_named(assets):
    with pytest.raises(ResourceError, match="unknown kind of asset 'cards'"):
        resources.path("cards")
    with pytest.raises(ResourceError, match="nothing"):
        resources.path("configs", "nothing.yaml")


def test_every_shipped_recipe_is_a_config_that_loads():
    """Names and types alone: the data and the model are not looked at."""
    from meml_mel.config import load_config
    from meml_mel.config.yaml_io import read_mapping

    for name in resources.recipes():
        raw = read_mapping(resources.find_recipe(name))
        stage = "sft" if "sft" in raw or "max_length" in raw else "rl"
        assert load_config(name, stage=stage).model["model_name_or_path"]
