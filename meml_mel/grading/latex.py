r"""One spelling for the many ways of writing the same LaTeX: `tidy`, and splitting at the top level.

Nothing here changes what a formula means: delimiters, spacing, fonts and synonyms (`\dfrac`, `\leq`, `≤`, `**`)
are unified, so that equal answers become equal strings more often and the parsers see less variety.
"""

from __future__ import annotations

import re

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": r" \times ", "·": r" \cdot ", "⋅": r" \cdot ", "∙": r" \cdot ",
    "÷": r" \div ", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "°": r"^{\circ}", "º": r"^{\circ}", "²": "^{2}", "³": "^{3}", "⁴": "^{4}",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "√": r"\sqrt", "∠": r"\angle ", "△": r"\triangle ", "⟨": r"\langle ", "⟩": r"\rangle ", "θ": r"\theta ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ", "φ": r"\phi ", "ω": r"\omega ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"',
    "，": ",", "；": ";", "（": "(", "）": ")", "：": ":", "。": ".", "％": "%", "＝": "=", "＋": "+", "－": "-",
    "／": "/", "＜": "<", "＞": ">", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2002": " ", "\u2003": " ",
    "\u200b": "", "\ufeff": "", "\x00": " ", "\r": " ", "\n": " ", "\t": " ",
}  # fmt: skip
_UNICODE |= {chr(0xFF10 + i): str(i) for i in range(10)}
_TRANSLATE = str.maketrans(_UNICODE)

_ENVIRONMENT = re.compile(r"\\begin\b")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z(){}\[\]%,;!])")
_SIZES = re.compile(r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s?\.?")
_SYNONYMS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\\?\x0crac", r"\\frac"),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\(?:leq|leqslant|leqq)(?![A-Za-z])", r"\\le "),
        (r"\\(?:geq|geqslant|geqq)(?![A-Za-z])", r"\\ge "),
        (r"\\(?:neq|not\s?=)(?![A-Za-z])", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\(?:lbrace|lbrack)(?![A-Za-z])", r"\\{"),
        (r"\\(?:rbrace|rbrack)(?![A-Za-z])", r"\\}"),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset "),
        (r"\\(?:simeq|approxeq|thickapprox|sim)(?![A-Za-z])", r"\\approx "),
        (r"\\(?:dots|ldots|cdots)(?![A-Za-z])", r"\\ldots "),
        (r"\\(?:degree|degrees)(?![A-Za-z])", r"^{\\circ}"),
        (r"\^\s*\\circ(?![A-Za-z])", r"^{\\circ}"),
        (r"\^\s*\{\s*\\circ\s*\}", r"^{\\circ}"),
        (r"\\(?:displaystyle|textstyle|limits|nolimits|hfill|strut|centering)(?![A-Za-z])", " "),
        (r"\\(?:text(?:bf|it|rm|normal|sf|tt|sc|up)?|[mh]box|math(?:rm|bf|it|sf|tt)|boldsymbol|bm)\s*\{", r"\\text{"),
        (r"\\operatorname\*?\s*\{", r"\\text{"),
        (r"\\(?:bf|rm|it|bfseries)(?![A-Za-z])", " "),
        (r"(\d)\s*\{\s*,\s*\}\s*(?=\d{3})", r"\1,"),
        (r"\{\s*,\s*\}", ","),
        (r"(\d)\s*,\s*(?:\\[!,;: ]\s*)+(?=\d{3}(?!\d))", r"\1,"),
        (r"(\d)\\[,;: ]\s*(?=\d{3}(?!\d))", r"\1,"),
        (r"(?<!\\)\\[!/]|\\(?:no)?linebreak(?![A-Za-z])", ""),
        (r"(?<!\\)\\[,;: >]|\\q?quad|\\(?:en|thin|med|thick)space(?![A-Za-z])|~(?!=)", " "),
        (r"\\(?:hspace|vspace|[hv]?phantom|label|tag)\*?\s*(?:\{[^{}]*\}|(?![A-Za-z{])\S)", " "),
        (r"\\%", "%"),
        (r"(?<!\\)\\(?=\d)", ""),  # what is left of "\\$5" when its dollar sign was dropped
        (r"\*\*", "^"),
        (r"<=|=<|⩽", r"\\le "),
        (r">=|⩾", r"\\ge "),
        (r"!=", r"\\ne "),
        (r"==", "="),
        (r"~=|≃", r"\\approx "),
        (r"(?<![A-Za-z\\])(?:infinity|infty|inf|oo)(?![A-Za-z])", r"\\infty "),
        (r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi "),
        (r"(?<![A-Za-z\\])sqrt(?![A-Za-z])", r"\\sqrt"),
        (r"(?<![A-Za-z\\])(arcsin|arccos|arctan|(?:sin|cos|tan)h?|cot|sec|csc|log|ln|exp)(?=[\s(\d])", r"\\\1"),
        (r"\\(?:f?boxed|fbox)\s*(?=\{)", ""),
    ]
]  # fmt: skip
_SPACES = re.compile(r"\s+")
_DIGIT_ARGUMENTS = [
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*(?=\{)"), r"\\frac{\1}"),
    (re.compile(r"(\\frac\s*\{[^{}]*\})\s*(\d)"), r"\1{\2}"),
    (re.compile(r"\\frac\s*(\\[A-Za-z]+)\s*(?=[\d{])"), r"\\frac{\1}"),
    (re.compile(r"(\\frac\s*\{[^{}]*\})\s*(\d)"), r"\1{\2}"),
    (re.compile(r"\\sqrt\s*(\d)"), r"\\sqrt{\1}"),
    (re.compile(r"\\sqrt\s*([A-Za-z])(?![A-Za-z])"), r"\\sqrt{\1}"),
    (re.compile(r"\^\s*(-\s*\d+(?:\.\d+)?)"), r"^{\1}"),
    (re.compile(r"\\(frac|sqrt|binom)\s+(?=[\[{])"), r"\\\1"),
    (re.compile(r"\^\s*\*"), "^{*}"),
]


def tidy(text: str) -> str:
    r"""`text` in one spelling: no `$`, no sizes, plain spaces; `\text{}` for every font, `\$` for currency."""
    text = text.translate(_TRANSLATE)
    if not _ENVIRONMENT.search(text):
        text = _DOUBLED.sub(r"\\", text)
    elif "\\\\begin" in text:  # the whole text is escaped twice, row breaks too
        text = text.replace("\\\\", "\\")
    text = _dollars(text)
    text = text.replace("\\(", " ").replace("\\)", " ").replace("\\[", " ").replace("\\]", " ")
    text = _SIZES.sub("", text)
    for pattern, replacement in _SYNONYMS:
        text = pattern.sub(replacement, text)
    for pattern, replacement in _DIGIT_ARGUMENTS:
        text = pattern.sub(replacement, text)
    text = _parenthesised(text, "\\sqrt")
    text = _parenthesised(text, "^")
    text = _SPACES.sub(" ", text).strip()
    while True:
        shorter = strip_group(text.lstrip(' ,;:`*"').rstrip(' .,;:\\`*"'))
        shorter = re.sub(r"^(?:=|\\approx)\s*", "", shorter)
        if shorter == text:
            return text
        text = shorter


def _dollars(text: str) -> str:
    r"""Drop `$` delimiters; a lone one beside a number is a currency sign and becomes `\$`."""
    if "$" not in text:
        return text
    bare = re.sub(r"\\\$", "", text)
    if bare.count("$") % 2:
        text = re.sub(r"(?<![\\$])\$(?=\s?\d)|(?<=\d)\s?(?<![\\$])\$(?!\$)", r"\\$", text, count=1)
    return re.sub(r"(?<!\\)\$", " ", text)


def _parenthesised(text: str, command: str) -> str:
    r"""`\sqrt(..)` and `^(..)` with braces instead of parentheses."""
    position = 0
    while True:
        start = text.find(command, position)
        if start < 0:
            return text
        opening = start + len(command)
        while opening < len(text) and text[opening] == " ":
            opening += 1
        position = opening
        if opening < len(text) and text[opening] == "(":
            close = matching(text, opening)
            if close is None:
                return text
            text = f"{text[:opening]}{{{text[opening + 1 : close]}}}{text[close + 1 :]}"


_TOKEN = re.compile(r"\\begin\s*\{[^{}]*\}|\\end\s*\{[^{}]*\}|\\[A-Za-z]+|\\.|.", re.S)
_OPEN = {"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"}
_CLOSE = {")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"}


def tokens(text: str) -> list[tuple[int, str, int]]:
    """(start, token, depth) over `text`; an opening bracket carries the depth outside it, as its closing does."""
    out = []
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _CLOSE or token.startswith("\\end"):
            depth -= 1
        out.append((match.start(), token, depth))
        if token in _OPEN or token.startswith("\\begin"):
            depth += 1
    return out


def balanced(text: str) -> bool:
    """Do the groups and environments close? Parentheses and square brackets may pair, as `[0, 1)` does."""
    depth = 0
    for _, token, depth in tokens(text):
        if depth < 0:
            return False
        if token in _OPEN or token.startswith("\\begin"):
            depth += 1
    return depth == 0


def matching(text: str, opening: int) -> int | None:
    """Index of the bracket that closes the one at `opening`; None when there is none."""
    depth = 0
    for match in _TOKEN.finditer(text, opening):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
            if depth == 0:
                return match.start()
    return None


def strip_group(text: str) -> str:
    """`text` without braces that enclose all of it."""
    while text.startswith("{") and text.endswith("}") and matching(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def split(text: str, separators: set[str], *, words: bool = False) -> list[str]:
    """Split at top-level separator tokens (kept out); `words` also splits at "and" / "or". Empty parts go."""
    if words:
        text = _AND_OR.sub(lambda m: m.group("sep") + " , ", text)
    parts = []
    start = 0
    for position, token, depth in tokens(text):
        if depth == 0 and token in separators:
            parts.append(text[start:position])
            start = position + len(token)
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


_AND_OR = re.compile(
    r"(?P<sep>)(?:\\text\{[\s,]*(?:and|or)[\s,]*\}|\\(?:land|lor|wedge|vee|text\{\s*\})(?![A-Za-z])"
    r"|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|(?<=[\d)}\]])or(?=[A-Z]))"
)


def squeeze(text: str) -> str:
    """For comparing spellings: no spaces except between digits or letters that they keep apart."""
    return re.sub(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])", "", text)
