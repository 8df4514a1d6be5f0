"""Does an analysis go on after its end? Such a text is no target: it would teach the model not to stop.

Base models go on as the next speaker, the next problem, or with the whole analysis once more.
"""

from __future__ import annotations

import re

from .parse import section_headings

_GOES_ON = re.compile(
    r"<\|[A-Za-z_]{2,24}\|>|</s>"
    r"|^[ \t>#*]{0,8}(?:Human|User|Assistant|System)[ \t]?\*{0,2}[:：]"
    r"|^[ \t>#*]{0,8}(?:Problem|Question|Exercise|Task)[ \t]?\d{0,3}[ \t]?\*{0,2}[:：]"
    r"|^[ \t]{0,4}\[(?:End of the|Problem\]|Attempt with a|Notes\])",
    re.MULTILINE,
)


def analysis_runs_on(text: str) -> bool:
    """Whether a text holds a further turn or problem, the prompt's own marks, or its sections twice."""
    body = text.rpartition("</think>")[2]
    return bool(_GOES_ON.search(body)) or _written_twice(body)


def _written_twice(text: str) -> bool:
    """A `#` heading of a section that comes back after another section's."""
    seen: list[str] = []
    for section, marks in section_headings(text):
        if marks == 3 and (not seen or seen[-1] != section):
            if section in seen:
                return True
            seen.append(section)
    return False
