"""Where the package's own files are: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

import difflib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
KINDS = ("configs", "model_cards", "eval_tasks")


class ResourceError(ValueError):
    """A recipe or asset that is not there; the message names the nearest and lists what is."""


def root() -> Path:
    """The folder that holds `configs/` and the other kinds: `meml_mel/_assets` in a wheel, else the checkout."""
    packed = PACKAGE / "_assets"
    return packed if packed.is_dir() else PACKAGE.parent


def path(kind: str, name: str = "") -> Path:
    """The path of an asset, `name` relative to its kind's folder; ResourceError where it does not exist."""
    if kind not in KINDS:
        raise ResourceError(f"unknown kind of asset {kind!r}: one of {', '.join(KINDS)}")
    found = root() / kind / name
    if not found.exists():
        raise ResourceError(f"no {name or 'folder'!r} among the package's {kind} ({root() / kind})")
    return found


def recipes() -> list[str]:
    """Names of the shipped recipes, such as `smollm2-135m/meml_mel`; accelerate's files are none."""
    folder = root() / "configs"
    names = (file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.yaml"))
    return sorted(name for name in names if not name.startswith("accelerate/"))


def find_recipe(name: str) -> Path:
    """The YAML file that `--config` means: a path that exists, or a shipped recipe's name."""
    given = Path(name)
    if given.is_file():
        return given
    known = recipes()
    bare = name.removesuffix(".yaml").removeprefix("configs/")
    if bare in known:
        return root() / "configs" / f"{bare}.yaml"
    listed = "; ".join(known) if known else "none are shipped"
    close = difflib.get_close_matches(bare, known, n=1, cutoff=0.3)
    nearest = f" Nearest: {close[0]!r}." if close else ""
    kind = "a folder, no config file" if given.is_dir() else "neither a file nor a shipped recipe"
    raise ResourceError(f"--config {name}: {kind}.{nearest} Recipes: {listed}")
