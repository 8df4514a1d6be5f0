"""Write docs/configuration.md: the hand-written part below, and a table per section from its dataclass.

    python docs/generate_configuration.py [--check]

Meanings come from the dataclass: its docstring's `Args:`, else the comment at the field. `--check` only tells
whether the file is up to date (a test runs it).
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import typing
from pathlib import Path
from typing import Any

from meml_mel.config.checks import RESERVED
from meml_mel.config.fields import ELSEWHERE
from meml_mel.config.sections import OBJECTIVES, SECTIONS, objective_types, section_types
from meml_mel.data.solutions import SolutionSource

HERE = Path(__file__).resolve().parent
PAGE, HEAD = HERE / "configuration.md", HERE / "configuration.head.md"

# Fields that need no comment in the code and one line here.
PLAIN = {
    ("DataSource", "split"): "the split's name",
    ("DataSource", "max_questions"): "keep the first so many",
    (
        "Expert",
        "name",
    ): "as it stands in metrics, records and, by the shipped template, in the expert's prompt",
    ("Expert", "system_prompt"): "the expert's own text; empty: the template's identity by name",
    ("SolutionSource", "name"): "as in `data`",
    ("SolutionSource", "split"): "as in `data`",
    ("SolutionSource", "data_files"): "as in `data`",
    ("SolutionSource", "revision"): "as in `data`",
}


def page() -> str:
    parts = [HEAD.read_text(encoding="utf-8").rstrip()]
    parts.append(
        "### TRL's keys that are ours to decide\n\n" + rows(("key", "what happens"), RESERVED.items())
    )
    parts.append(
        "### Keys of TRL's scripts that are elsewhere\n\n" + rows(("key", "where"), ELSEWHERE.items())
    )
    types = section_types()
    for name, stages in SECTIONS.items():
        title = f"## `{name}` ({' and '.join(stages)})"
        if name == "objectives":
            parts.append(
                f"{title}\n\nObjective name to its keys. Absent, or `null`: off. `{{}}`: on with the defaults."
            )
            for objective, cls in objective_types().items():
                parts.append(f"### `objectives.{objective}`\n\n" + table(cls))
            continue
        lead = "A list; `experts.0` is the first. Without experts there is one nameless one: plain GRPO.\n\n"
        parts.append(f"{title}\n\n" + (lead if name == "experts" else "") + table(types[name]))
        if name == "experts":
            parts.append("### `experts.N.solutions`\n\n" + table(SolutionSource))
        if name == "sampling":
            [phase] = {f.default_factory for f in dataclasses.fields(types[name])}
            parts.append("### `sampling.analysis`, `sampling.replay`\n\n" + table(phase))
    assert set(OBJECTIVES) == set(objective_types())
    return "\n\n".join(parts) + "\n"


def table(cls: Any) -> str:
    """First line of the docstring, then key, type, default and meaning of each field."""
    hints, meanings = typing.get_type_hints(cls), meanings_of(cls)
    entries = []
    for f in dataclasses.fields(cls):
        if f.init:
            entries.append(
                (
                    f"`{f.name}`",
                    words(hints[f.name]),
                    default(f),
                    meanings.get(f.name) or PLAIN[cls.__name__, f.name],
                )
            )
    intro = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    return f"{intro}\n\n" + rows(("key", "type", "default", "meaning"), entries)


def rows(head: tuple[str, ...], entries: Any) -> str:
    lines = [head, ("---",) * len(head), *entries]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def meanings_of(cls: Any) -> dict[str, str]:
    found = comments_of(cls)
    document = inspect.getdoc(cls) or ""
    if "Args:" in document:
        block = re.split(r"\n\s*\n", document.split("Args:\n", 1)[1])[0]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", block, re.MULTILINE):
            found[name] = re.sub(r"\s+", " ", text).strip()
    return found


def comments_of(cls: Any) -> dict[str, str]:
    """The comment behind a field, after those on the lines above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(cls).splitlines():
        text = line.strip()
        if text.startswith("#"):
            above.append(text.lstrip("# "))
            continue
        if match := re.match(r"(\w+): .*?(?:  # (.*))?$", text):
            found[match[1]] = " ".join([*above, *([match[2]] if match[2] else [])])
        above = []
    return found


def words(hint: Any) -> str:
    """A type as a config's reader knows it."""
    names = {bool: "true/false", int: "integer", float: "number", str: "text", type(None): "null", Any: "any"}
    if hint in names:
        return names[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{option}`" for option in args)
    if origin in (list, tuple):
        return f"list of {words(args[0])}"
    if origin is dict:
        return "mapping"
    if args:
        return " or ".join(words(arg) for arg in args)
    known = {"DataSource": "like `data`", "SolutionSource": "see below", "PhaseSampling": "see below"}
    return known.get(hint.__name__, hint.__name__)


def default(f: dataclasses.Field) -> str:
    if f.default is not dataclasses.MISSING:
        value = list(f.default) if isinstance(f.default, tuple) else f.default
        return f"`{json.dumps(value)}`"
    return "" if f.default_factory is not dataclasses.MISSING else "must be given"


def main() -> int:
    if "--check" in sys.argv:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        print("docs/configuration.md is out of date: python docs/generate_configuration.py", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
