"""The four prompts: solve, analyse, replay and expert, as templates rendered to chat messages.

    prompts = Prompts.load(PromptsConfig(analyse="my/analyse.jinja"))
    prompts.check()                      # before any model loads
    prompts.solve(question, expert_name="careful")

A template is a packaged name (`solve.v1`) or a path to a `.jinja` file of the user's. It sees its variables
and nothing else; text that comes from data or models is never read as a template, and inserted as it is but for
special tokens (`defused`). A packaged template never changes: better wording gets a new version.

| template | variables | becomes |
|---|---|---|
| expert | expert_name, system_prompt | the system message of an expert |
| solve | problem, kind | the user message of a rollout |
| analyse | problem, kind, right, wrong, order | the user message of an analysis (MEL Eq. 2-4) |
| replay | problem, kind, knowledge, task (the solve message) | the user message of a replay (MEL Eq. 6) |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..data.question import Question

if TYPE_CHECKING:  # at run time it would load torch, which no prompt needs
    from ..rlvr.rollouts import Message

Messages = tuple["Message", ...]
Order = Literal["wrong_first", "right_first"]
Context = Literal["full", "heuristics_only"]

_VARIABLES = {
    "expert": ("expert_name", "system_prompt"),
    "solve": ("problem", "kind"),
    "analyse": ("problem", "kind", "right", "wrong", "order"),
    "replay": ("problem", "kind", "knowledge", "task"),
}
# What must show up in the rendered text, else the prompt asks for nothing.
_REQUIRED = {
    "expert": (),
    "solve": ("problem",),
    "analyse": ("problem", "right", "wrong"),
    "replay": ("problem", "knowledge"),
}
# Variables that hold text of data and models; the rest is the user's own.
_FOREIGN = ("problem", "right", "wrong", "knowledge")
# The spellings of special tokens: <|im_end|> and its like, with the full-width bars of DeepSeek; </s>, <eos>, <pad>;
# Gemma's turns; Mistral's [INST].
_SPECIAL = re.compile(
    r"[<\[](?=[|｜][^\s<>|｜]{1,40}[|｜]>|/?s>|(?:bos|eos|pad|unk|mask|start_of_turn|end_of_turn)>|/?INST\])"
)
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
)


class PromptError(ValueError):
    """A template that can't be found, read or rendered, or that leaves out what its prompt is about."""


class Experience(Protocol):
    """What a replay can be given beside plain text: `mel.parse.MetaExperience` is one."""

    def knowledge(self, context: Context) -> str: ...


@dataclass(frozen=True, slots=True)
class PromptsConfig:
    """Which template each prompt uses: a packaged name or a path to a `.jinja` file. Our wording [O]."""

    solve: str = "solve.v1"
    analyse: str = "analyse.v1"
    replay: str = "replay.v1"
    expert: str = "expert.v1"


@dataclass(frozen=True, slots=True)
class Template:
    """One template: its role, the version that records name, and its source text."""

    role: str
    version: str
    source: str

    def render(self, variables: Mapping[str, str]) -> str:
        """The template with its variables filled in. Raises PromptError where that fails."""
        try:
            return _compiled(self.source).render(
                {name: defused(value) if name in _FOREIGN else value for name, value in variables.items()}
            )
        except jinja2.TemplateSyntaxError as error:
            raise PromptError(f"{self._label}, line {error.lineno}: {error.message}") from error
        except Exception as error:  # whatever a user's template does when it runs
            raise PromptError(f"{self._label} failed to render: {error}; {self._known}") from error

    def check(self, examples: Mapping[str, tuple[str, ...]]) -> None:
        """Render with every combination that `examples` lists per variable; raises PromptError.

        Refused: a syntax error, a variable the prompt does not have (in a branch that was not taken, too),
        and a text in which a required variable does not show up.
        """
        self.render({name: values[0] for name, values in examples.items()})
        unknown = sorted(meta.find_undeclared_variables(_ENVIRONMENT.parse(self.source)) - set(examples))
        if unknown:
            raise PromptError(
                f"{self._label} uses {', '.join(map(repr, unknown))}, not known here; {self._known}"
            )
        variants = [{name: values[0] for name, values in examples.items()}]
        for name, values in examples.items():
            variants += [variants[0] | {name: value} for value in values[1:]]
        for variables in variants:
            text = self.render(variables)
            if not text.strip():
                raise PromptError(f"{self._label} renders to nothing for {_shown(variables)}")
            for name in _REQUIRED[self.role]:
                if variables[name] not in text:
                    way_out = f"put {{{{ {name} }}}} in it"
                    raise PromptError(f"{self._label} leaves {name!r} out ({_shown(variables)}): {way_out}")

    @property
    def _label(self) -> str:
        return f"{self.role} template {self.version!r}"

    @property
    def _known(self) -> str:
        return f"a {self.role} template may use: {', '.join(_VARIABLES[self.role])}"


@dataclass(frozen=True, slots=True)
class Prompts:
    """The loaded templates. Every method is pure; two loads of the same files are equal."""

    solve_template: Template
    analyse_template: Template
    replay_template: Template
    expert_template: Template

    @classmethod
    def load(cls, config: PromptsConfig | None = None) -> Prompts:
        """Read the four templates. Raises PromptError naming a template that is not there."""
        config = config or PromptsConfig()
        names = {field.name: getattr(config, field.name) for field in fields(config)}
        return cls(**{f"{role}_template": load_template(role, name) for role, name in names.items()})

    @property
    def versions(self) -> dict[str, str]:
        """Role -> version: a packaged name, or `file.jinja@<first 12 digits of its sha256>`."""
        templates = (self.solve_template, self.analyse_template, self.replay_template, self.expert_template)
        return {template.role: template.version for template in templates}

    def system(self, expert_name: str = "", system_prompt: str = "") -> str:
        """The system text of an expert; empty for the nameless one without a text."""
        if not expert_name and not system_prompt:
            return ""
        return self.expert_template.render({"expert_name": expert_name, "system_prompt": system_prompt})

    def solve(self, question: Question, expert_name: str = "", system_prompt: str = "") -> Messages:
        """The prompt of a rollout."""
        return _messages(self.system(expert_name, system_prompt), self._task(question))

    def analyse(self, question: Question, right: str, wrong: str, order: Order = "wrong_first") -> Messages:
        """C_retro = [I, x, y+, y-] (MEL Eq. 2, 7). It carries no expert's prompt [O]."""
        variables = {"right": right, "wrong": wrong, "order": order}
        return _messages("", self.analyse_template.render(_of(question) | variables))

    def replay(
        self, question: Question, experience: Experience | str, system: str = "", context: Context = "full"
    ) -> Messages:
        """The question again with the meta-experience ahead of it (MEL Eq. 6).

        `system` is the system text as the model is to read it: with experts, that of the one that was wrong.
        `context` picks what of a parsed meta-experience is shown; plain text is shown whole.
        """
        knowledge = experience if isinstance(experience, str) else experience.knowledge(context)
        variables = {"knowledge": knowledge, "task": self._task(question)}
        return _messages(system, self.replay_template.render(_of(question) | variables))

    def check(self) -> None:
        """Render every template with stand-in values; raises PromptError. Needs no model."""
        kinds = ("math", "choice", "boolean")
        shared = {"problem": ("<stand-in problem>",), "kind": kinds}
        self.solve_template.check(shared)
        self.analyse_template.check(
            shared
            | {"right": ("<stand-in right>",), "wrong": ("<stand-in wrong>",)}
            | {"order": ("wrong_first", "right_first")}
        )
        task = self._task(Question(id="", problem="<stand-in problem>", answer=""))
        self.replay_template.check(shared | {"knowledge": ("<stand-in knowledge>",), "task": (task,)})
        self.expert_template.check({"expert_name": ("<stand-in name>", ""), "system_prompt": ("<stand-in>",)})
        self.expert_template.check({"expert_name": ("<stand-in name>",), "system_prompt": ("",)})

    def _task(self, question: Question) -> str:
        return self.solve_template.render(_of(question))


def load_template(role: str, name: str) -> Template:
    """The template `name` (a packaged one such as `solve.v1`, or a path ending in `.jinja`) for a role."""
    folder = files(__package__)
    if not name.endswith(".jinja"):
        packaged = folder / f"{name}.jinja"
        packaged_files = [item.name for item in folder.iterdir() if item.name.endswith(".jinja")]
        known = sorted(file.removesuffix(".jinja") for file in packaged_files)
        if name not in known:
            listed = ", ".join(known)
            raise PromptError(f"no prompt template {name!r}: use one of {listed}, or a path to a .jinja file")
        if name.split(".")[0] != role:
            raise PromptError(f"prompts.{role} is {name!r}, a template for another prompt: use {role}.v1")
        return Template(role, name, packaged.read_text(encoding="utf-8"))
    try:
        source = Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"prompts.{role}: can't read {name!r}: {error}") from error
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    return Template(role, f"{Path(name).name}@{digest}", source)


def defused(text: str) -> str:
    """`text` with a zero-width space in every special token's spelling.

    A tokenizer reads `<|im_end|>` as the token wherever it stands: in a problem, or in an attempt that an analysis
    quotes, it would end the user's turn early, and what follows could speak as the system.
    """
    return _SPECIAL.sub("\\g<0>\u200b", text)


@lru_cache(maxsize=64)
def _compiled(source: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(source)


def _of(question: Question) -> dict[str, str]:
    return {"problem": question.problem, "kind": question.kind}


def _messages(system: str, user: str) -> Messages:
    head: Messages = ({"role": "system", "content": system},) if system else ()
    return (*head, {"role": "user", "content": user})


def _shown(variables: Mapping[str, str]) -> str:
    chosen = {name: variables[name] for name in ("kind", "order") if name in variables}
    return ", ".join(f"{name}={value}" for name, value in chosen.items()) or "its variables"
