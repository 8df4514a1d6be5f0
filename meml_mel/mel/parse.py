"""From an analysis as a model wrote it to a meta-experience, or to the reason why it is none (MEL Eq. 5).

The analysis prompt asks for four sections under stated headings. Models vary them: `#` or bold or neither,
numbers, colons, text on the heading's own line, other names, other order. A line is a heading when one of the
known names stands at its start, followed by the line's end, a colon or what closes its marks. Two rules keep
labels and repetitions out:

- of a section's possible headings only the most clearly marked kind counts (`#` and \\section, then bold or
  numbered, then a bare name), so that a label "Failure point:" below "## 1. Failure point" is text;
- a section that has text is not opened again: a repeated heading is text of the section it stands in, and
  headings listed without text ahead of the sections do no harm.

Every pattern is anchored to a line's first characters with bounded repeats: linear time on any input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# The headings that `prompts/analyse.v1.jinja` asks for, in its order.
HEADINGS = {
    "failure": "1. Failure point",
    "success": "2. What worked",
    "reflection": "3. Reflection",
    "heuristics": "4. Heuristics",
}

# The names a section goes by, as they may follow a line's marks.
_NAMES = {
    "failure": (
        "(?:the )?(?:failure|failing|error|mistake|bifurcation|divergence|breaking)"
        " (?:point|step|analysis|pattern|path|resolution|cause|diagnosis)s?",
        "(?:the )?(?:point|moment|step) of (?:the )?(?:failure|error|divergence|bifurcation)",
        "(?:what|where) (?:it |things |the (?:wrong|incorrect) (?:attempt|solution) )?(?:went wrong|failed)",
        "failures?",
    ),
    "success": (
        "what (?:worked|succeeded|went (?:right|well))",
        "what made (?:it|the (?:right|correct) (?:attempt|solution)) (?:work|right|correct|succeed)",
        "why (?:it|the (?:right|correct) (?:attempt|solution)) (?:works?|worked|succeed(?:s|ed))",
        "(?:the )?success(?: (?:factor|point|key|analysis|reason|pattern|path|mechanism|step)s?)?",
        "(?:the )?(?:keys?|reasons?) (?:to|of|for) (?:the )?success",
    ),
    "reflection": (
        r"(?:my |self[\s-]|personal |first[\s-]person )?reflect(?:ions?|ive)(?: summary| notes?)?",
    ),
    "heuristics": (
        r"(?:(?:general|named|reusable|subject|abstract|transferable|useful|key|if[-–]then) )?"
        "(?:heuristics?(?: rules?)?|rules(?: of thumb| and heuristics)?)",
    ),
}
_ANY_NAME = "|".join(f"(?P<{name}>{'|'.join(words)})" for name, words in _NAMES.items())
_NAME = re.compile(f"(?:{_ANY_NAME})(?![^\\W_])".replace(" ", r"\s{1,3}"), re.IGNORECASE)
_LEAD = re.compile(
    r"""\s{0,12} (?:>\s?){0,3} (?:[-+•*]\s{1,3})?             # a quote, a bullet
    (?P<hash> \#{1,6}\s{0,3} | \\(?:sub){0,2}section\*?\{ )?
    (?: [^\w\s\\*_`<(\[{\#>【]{1,3}\s{0,3} )?                 # an emoji
    (?P<bold> [*_`]{1,3} | \\textbf\{ | <b> | <strong> | 【 )? \s{0,3}
    (?P<number>
        (?:section|part)\s{0,3}\d{1,2}\s{0,3}[-–—.):]{0,2}
      | \(?(?:\d{1,2}|[IV]{1,3}|[A-D])[*_`]{0,3}(?:[.):]{1,2}|\s{0,3}[-–—])
      | [①-④] | \d(?=\s)
    )? \s{0,3}
    (?P<bold2> [*_`]{1,3}\s{0,3} )?""",
    re.VERBOSE | re.IGNORECASE,
)
# What may stand between a name and the text on its line: "(step 3)", ":", the end of the bold.
_AFTER = re.compile(
    r"\s{0,3}(?:\([^()]{1,70}\))?\s{0,3}(?P<point>[:：.]?)\s{0,3}"
    r"(?P<closed>(?:[*_`}】]|</b>|</strong>){0,4})\s{0,3}(?P<colon>[:：]?)"
)
_LONGER_TITLE = re.compile(
    r"(?:,|/|and\b|&|of\b|in\b|for\b|from\b|with\b|or\b)[^:：*_`}】]{1,70}", re.IGNORECASE
)
_LOOKED_AT = 240  # characters at a line's start in which a heading must end
_ECHO_CHARS = 60  # so many characters of the instruction at a section's start are no accident
_NOTHING = {"", "n/a", "na", "none", "nil", "tbd", "empty"}
_RULE = re.compile(r"\s*(?:[-=_*]\s?){3,}\s*")
_FENCE = re.compile(r"\s{0,8}(?:```|~~~)[ \t]{0,3}\w{0,20}\s{0,8}")
_CAUSE = re.compile(r"^\W{0,6}(?:root\s+)?cause\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MetaExperience:
    """M = (s*, C, H) (MEL Eq. 5) as the four sections of an analysis, with the text it was read from."""

    failure: str  # section 1: the bifurcation point and its cause
    success: str  # section 2
    reflection: str  # section 3
    heuristics: str  # section 4
    raw: str

    @property
    def bifurcation_point(self) -> str:
        """s* (MEL Eq. 2): section 1 up to its "Cause" line, or its first paragraph where it has none."""
        return self._split_failure()[0]

    @property
    def critique(self) -> str:
        """C (MEL Eq. 3): the rest of section 1 with sections 2 and 3."""
        return "\n\n".join(part for part in (self._split_failure()[1], self.success, self.reflection) if part)

    def knowledge(self, context: Literal["full", "heuristics_only"] = "full") -> str:
        """What a replay reads: all of M, or H alone, under our headings (MEL Eq. 6)."""
        names = list(HEADINGS) if context == "full" else ["heuristics"]
        return "\n\n".join(f"## {HEADINGS[name]}\n{getattr(self, name)}" for name in names)

    def _split_failure(self) -> tuple[str, str]:
        label = _CAUSE.search(self.failure)
        if label and label.start():
            return self.failure[: label.start()].strip(), self.failure[label.start() :].strip()
        first, _, rest = self.failure.partition("\n\n")
        return first.strip(), rest.strip()


@dataclass(frozen=True, slots=True)
class FormatError:
    """Why a text is no meta-experience. `missing` names the sections that are absent or empty."""

    missing: tuple[str, ...]
    reason: str


def parse_meta_experience(text: str) -> MetaExperience | FormatError:
    """Read the four sections from an analysis. Answers for any text, in time linear in its length.

    What stands before the first heading is left out, reasoning up to `</think>` included; what follows the
    last section belongs to it.
    """
    body = _after_thinking(text)
    if body is None:
        return FormatError(tuple(HEADINGS), "<think> is never closed: there is no text after the reasoning")
    found = _sections(_lines(body))
    texts = {name: _cleaned(found[name]) for name in HEADINGS if name in found}
    absent = [name for name in HEADINGS if name not in texts]
    empty = [name for name, content in texts.items() if _is_nothing(content)]
    if absent or empty:
        said = [f"section '{HEADINGS[name]}' is not there" for name in absent]
        said += [f"section '{HEADINGS[name]}' is empty" for name in empty]
        return FormatError(tuple(n for n in HEADINGS if n in absent or n in empty), "; ".join(said))
    return MetaExperience(**texts, raw=text)


def echoed_sections(experience: MetaExperience, instruction: str) -> tuple[str, ...]:
    """Sections that begin with a stretch of the instruction itself: what a weak model gives in place of an answer.

    `instruction` is the analysis prompt without a problem and attempts, so that quoting those is no echo.
    """
    told = " ".join(instruction.split())
    begins = {name: " ".join(getattr(experience, name).split())[:_ECHO_CHARS] for name in HEADINGS}
    return tuple(name for name, begin in begins.items() if len(begin) >= _ECHO_CHARS // 2 and begin in told)


def section_headings(text: str) -> list[tuple[str, int]]:
    """Every line that may be a section's heading: (section, how clearly marked, 3 for `#`), in order."""
    return [heading[:2] for line in _lines(text) if (heading := _heading(line))]


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _after_thinking(text: str) -> str | None:
    _, closed, rest = text.rpartition("</think>")
    if closed:
        return rest
    return None if text.lstrip().startswith("<think>") else text


def _heading(line: str) -> tuple[str, int, str] | None:
    """(section, how clearly marked: 1 to 3, text on the same line) where the line is a heading."""
    start = line[:_LOOKED_AT].replace("\t", " ")
    lead = _LEAD.match(start)
    name = lead and _NAME.match(start, lead.end())
    if not lead or not name:
        return None
    bold = bool(lead["bold"] or lead["bold2"])
    marks = 3 if lead["hash"] else 2 if bold or lead["number"] else 1
    section = str(name.lastgroup)
    text = _text_after_name(line[name.end() :], marks, bold)
    return None if text is None else (section, marks, text)


def _text_after_name(rest: str, marks: int, bold: bool, titled: bool = False) -> str | None:
    """The text that shares the heading's line, "" for none; None where the line is prose, not a heading.

    `titled`: a longer title ("... and its cause") has been passed already.
    """
    after = _AFTER.match(rest)
    assert after  # every part of it is optional
    text = rest[after.end() :].strip()
    if not text.strip("# "):
        return ""
    if after["colon"] or after["point"] in (":", "：") or (after["closed"] and (bold or marks == 3)):
        return text
    if marks == 1:
        return None
    if after["point"] or text[:2] in ("- ", "– ", "— "):
        return text.lstrip("-–— ")
    title = None if titled else _LONGER_TITLE.match(text)
    if title and (bold or marks == 3 or title[0].startswith(("and", "&"))):
        shared = _text_after_name(text[title.end() :], 2, True, titled=True)
        return text if shared is None and marks == 3 else shared
    return text if marks == 3 else None


def _sections(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each section that has a heading."""
    headings = {i: heading for i, line in enumerate(lines) if line and (heading := _heading(line))}
    clearest: dict[str, int] = {}
    for section, marks, _ in headings.values():
        clearest[section] = max(marks, clearest.get(section, 0))
    sections: dict[str, list[str]] = {}
    with_text: set[str] = set()
    current = ""
    for i, line in enumerate(lines):
        section, marks, inline = headings.get(i, ("", 0, ""))
        if section and marks == clearest[section] and section not in with_text:
            current, line = section, inline
            sections[current] = []
        if current:
            sections[current].append(line)
            if re.search(r"[^\W_]", line) and not _FENCE.fullmatch(line):
                with_text.add(current)
    return sections


def _cleaned(lines: list[str]) -> str:
    """A section's text without the rules around it and the end of a fence that opened ahead of it."""
    around = [i for i, line in enumerate(lines) if line.strip() and not _RULE.fullmatch(line)]
    kept = lines[around[0] : around[-1] + 1] if around else []
    if sum(bool(_FENCE.fullmatch(line)) for line in kept) % 2 and _FENCE.fullmatch(kept[-1]):
        kept = kept[:-1]
    return "\n".join(kept).strip()


def _is_nothing(text: str) -> bool:
    return not re.search(r"[^\W_]", text) or text.strip(" .*_-()[]<>:\n").lower() in _NOTHING
