"""Analyses as models write them: 46 that are meta-experiences, and others with what they lack.

In each readable one the four key phrases stand in their own sections: that is what the tests check.
"""

KEYS = {
    "failure": "forgot to halve",
    "success": "drew the triangle",
    "reflection": "I rushed",
    "heuristics": "if an area is asked",
}
F = "Step: it forgot to halve the product.\nCause: the formula was taken from memory."
S = "It drew the triangle first and checked the formula against it."
R = "I rushed to the formula. I see now that a sketch is cheap. I will draw first."
H = "- Sketch first: if an area is asked, then draw the figure before choosing a formula."


def written(f: str, s: str, r: str, h: str, gap: str = "\n", between: str = "\n\n") -> str:
    return between.join([f"{head}{gap}{text}" for head, text in ((f, F), (s, S), (r, R), (h, H))])


PLAIN = written("## 1. Failure point", "## 2. What worked", "## 3. Reflection", "## 4. Heuristics")
NAMES = ("Failure point", "What worked", "Reflection", "Heuristics")


def each(pattern: str, **layout: str) -> str:
    """The four sections with each heading written by a pattern of {n} and {name}."""
    return written(*(pattern.format(n=n, name=name) for n, name in enumerate(NAMES, 1)), **layout)


READABLE = {
    "as asked": PLAIN,
    "no numbers": each("## {name}"),
    "one hash": each("# {n}. {name}"),
    "three hashes": each("### {n}. {name}"),
    "no space after the hashes": each("##{n}. {name}"),
    "closing hashes": each("## {n}. {name} ##"),
    "number with a parenthesis": each("{n}) {name}"),
    "number in parentheses": each("({n}) {name}"),
    "number and name only": each("{n}. {name}"),
    "number, name and colon": each("{n}. {name}:"),
    "number without a dot, hashes": each("## {n} {name}"),
    "number with a dash": each("**{n} - {name}**"),
    "bold": each("**{name}**"),
    "bold with number": each("**{n}. {name}**"),
    "bold with the colon inside": each("**{n}. {name}:**"),
    "bold with the colon outside": each("**{n}. {name}**:"),
    "number ahead of the bold": each("{n}. **{name}**"),
    "bold number, then bold name": each("**{n}**. **{name}**"),
    "hashes and bold": each("### **{n}. {name}**"),
    "underscores": each("__{name}__"),
    "italics": each("*{name}*"),
    "bare names": each("{name}"),
    "bare names with a colon": each("{name}:"),
    "full-width colon": each("{name}："),
    "text on the heading's line after a colon": each("{name}:", gap=" "),
    "text on the line after a bold colon": each("**{n}. {name}:**", gap=" "),
    "text on the line after the bold": each("**{name}**", gap=" "),
    "text on the line after hashes": each("## {n}. {name}", gap=" "),
    "text on the line after a dash": each("## {n}. {name} -", gap=" "),
    "bullets": each("- **{name}**:", gap=" "),
    "quoted": each("> ## {n}. {name}"),
    "no blank lines": each("## {n}. {name}", between="\n"),
    "many blank lines": each("\n\n## {n}. {name}\n\n", between="\n\n\n\n"),
    "windows line ends": PLAIN.replace("\n", "\r\n"),
    "capitals": each("## {n}. {name}").replace("Failure point", "FAILURE POINT").replace("Refl", "REFL"),
    "small letters": written(
        "## 1. failure point", "## 2. what worked", "## 3. reflection", "## 4. heuristics"
    ),
    "sections called sections": each("**Section {n}: {name}**"),
    "latex sections": each("\\section*{{{n}. {name}}}"),
    "latex bold": each("\\textbf{{{n}. {name}:}}"),
    "emoji": each("### 🔍 {n}. {name}"),
    "rules between": each("## {n}. {name}", between="\n\n---\n\n"),
    "another order": f"## Heuristics\n{H}\n\n## Reflection\n{R}\n\n## What worked\n{S}\n\n## Failure point\n{F}",
    "chatter ahead": f"Sure! Here is my comparison of the two attempts.\n\n{PLAIN}",
    "in a code fence": f"```markdown\n{PLAIN}\n```",
    "after reasoning": f"<think>\nThe second one is right. ## 1. Failure point\nhm\n</think>\n\n{PLAIN}",
    "reasoning without its opening tag": f"Let me see.\n</think>\n{PLAIN}",
    "longer titles": written(
        "## 1. Failure point and its cause",
        "## 2. What worked in the right attempt",
        "## 3. Reflection (first person)",
        "## 4. Heuristics for area problems",
    ),
    "longer bold titles": written(
        "**1. Failure point of the wrong attempt:**",
        "**2. What worked & why:**",
        "**3. Reflection (as I see it):**",
        "**4. Heuristics, traps:**",
    ),
    "near names": written(
        "## Failure analysis", "## Success factors", "## Self-reflection", "## General rules"
    ),
    "other near names": written(
        "**Point of failure**", "**Key to success**", "**My reflections**", "**Rules of thumb**"
    ),
    "what went wrong and right": written(
        "### What went wrong", "### What went right", "### Reflections", "### Rules"
    ),
    "marks of two kinds": written(
        "## 1. Failure point", "**2. What worked**", "3. Reflection", "Heuristics:"
    ),
    "a list of the sections first": f"1. Failure point\n2. What worked\n3. Reflection\n4. Heuristics\n\n{PLAIN}",
    "a bare list of the sections first": f"Failure point\nWhat worked\nReflection\nHeuristics\n\n{each('{name}:')}",
    "a label with the section's name": PLAIN.replace("Step: it", "**Failure point:** it"),
    "labels with other sections' names": PLAIN.replace(
        R, f"**What went wrong:** nothing was checked.\n**What worked:** nothing.\n{R}"
    ),
    "labels with later sections' names": PLAIN.replace(
        F, f"{F}\n**What worked:** nothing in it.\n**Reflection:** none."
    ),
    "a rule named like a section": f"{PLAIN}\n- Reflection: if a figure can be mirrored, then use it.",
    "a repeated heading": f"{PLAIN}\n\n## 3. Reflection\nOnce more: look first.",
    "closing words": f"{PLAIN}\n\nI hope this helps.",
    "sections named in prose": PLAIN.replace(
        S,
        f"As the failure point shows, care pays.\nHeuristics say little here.\nReflection on it helps.\n{S}",
    ),
    "rules over two lines": PLAIN.replace(
        H, f"{H}\n  Test: compare with the box around it.\n- Units: if two are mixed, convert."
    ),
}

UNREADABLE = {
    "nothing": ("", ("failure", "success", "reflection", "heuristics")),
    "prose": ("The wrong one forgot a factor.", ("failure", "success", "reflection", "heuristics")),
    "numbers without names": (
        "## 1\na\n## 2\nb\n## 3\nc\n## 4\nd",
        ("failure", "success", "reflection", "heuristics"),
    ),
    "no heuristics": (PLAIN.split("## 4.")[0], ("heuristics",)),
    "no reflection": (PLAIN.replace(f"## 3. Reflection\n{R}\n\n", ""), ("reflection",)),
    "two lack": (f"## 1. Failure point\n{F}\n\n## 4. Heuristics\n{H}", ("success", "reflection")),
    "empty at the end": (PLAIN.replace(H, ""), ("heuristics",)),
    "empty in the middle": (PLAIN.replace(S, "  \n"), ("success",)),
    "only a rule in it": (PLAIN.replace(S, "---"), ("success",)),
    "not applicable": (PLAIN.replace(R, "N/A"), ("reflection",)),
    "dots": (PLAIN.replace(R, "..."), ("reflection",)),
    "only a fence in it": (PLAIN.replace(H, "```\n```"), ("heuristics",)),
    "named in prose only": (
        "The failure point is the formula. What worked was a sketch. Reflection: none yet, heuristics neither.",
        ("failure", "success", "reflection", "heuristics"),
    ),
    "headings in the reasoning only": (
        f"<think>\n{PLAIN}",
        ("failure", "success", "reflection", "heuristics"),
    ),
    "empty after the reasoning": (
        f"<think>\n{PLAIN}\n</think>\n",
        ("failure", "success", "reflection", "heuristics"),
    ),
    "cut in the second heading": (
        PLAIN[: PLAIN.index("What worked")],
        ("success", "reflection", "heuristics"),
    ),
}
