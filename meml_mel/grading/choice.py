"""Multiple choice (letters a to e) and yes/no questions: what was answered, in any of the usual wordings."""

from __future__ import annotations

import re

from .extract import NOTHING, Extraction, Source, own_text, passage

_LETTER = r"[A-Ea-e]"
_STRIP = re.compile(
    r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mathbf|mbox|boxed)\s*(?=\{)|[${}*_`\"']|\\[()\[\],;! ]|\\q?quad"
)
_LEADING = re.compile(
    rf"\W*(?:(?:option|choice|answer|letter)s?\b\W*(?:is\b)?\W*)?\(?({_LETTER})\)?(?=$|[\s.,:;)\]!?。，、]|[^\x00-\x7f])",
    re.I,
)
_STANDALONE = re.compile(r"(?<![A-Za-z'])\(?([A-E])\)?(?=$|[.,:;)\]!?。，]|\s|[^\x00-\x7f])")
_LISTED = re.compile(
    rf"(?:\(([A-Ea-e])\)|\b(?:option|choice|answer|letter)\s+\(?({_LETTER})\)?(?![A-Za-z]))", re.I
)
_MORE = re.compile(rf"\s*(?:,|and|or|&|/)\s*\(?({_LETTER})\)?(?=$|[\s.,;)])", re.I)
_POSITIVE, _NEGATIVE = {"yes", "true"}, {"no", "false"}
_TRUTH = re.compile(r"(?P<not>\b(?:not|isn't)\s+)?\b(?P<word>yes|no|true|false)\b", re.I)
# In running text "no" is mostly an adjective: there the word must end its clause.
_STATED = re.compile(_TRUTH.pattern + r"(?=\W{0,3}(?:$|[.,:;!)\n]))", re.I)
_EITHER = re.compile(r"\b(?:yes|true)\s?(?:or|/)\s?(?:no|false)\b", re.I)  # the question, not an answer


def _clean(text: str) -> str:
    return re.sub(r"\s+", " ", _STRIP.sub(" ", text)).strip()


def choice_gold(text: str) -> str | None:
    """The gold letter, in capitals ("b", "(B)", "B) 16", "the answer is B"); None when there is none."""
    clean = _clean(passage(text, tolerant=True).text or text)
    found = re.match(rf"\(?({_LETTER})(?:\)|[.:]|\s|$)", clean)
    return found[1].upper() if found else None


def choice_letter(response: str) -> Extraction:
    """The letter that a response chooses; several ("A or B") are no choice of one and stay as written."""
    text = own_text(response)
    found = passage(text)
    if found.text is None:
        return _from_prose(text)
    clean = _clean(found.text)
    letter = _LEADING.match(clean) or _LISTED.search(clean)
    if letter is None and found.source == "marker":  # "for sure D, it can't be A"
        letter = _STANDALONE.search(clean)
    if letter is None:
        return Extraction(found.text, found.source) if clean else NOTHING
    chosen = next(group for group in letter.groups() if group).upper()
    more = _MORE.match(clean, letter.end())
    if more and more[1].upper() != chosen:
        return Extraction(clean, found.source)
    return Extraction(chosen, found.source)


def _from_prose(text: str) -> Extraction:
    text = _clean(text[-4000:])
    source: Source = "expression"
    first = _LEADING.match(text)
    if first and not re.match(r"\W*[Aa]\s+[a-z]", text):
        return Extraction(first[1].upper(), source)
    listed = [m[1] or m[2] for m in _LISTED.finditer(text)]
    if listed:
        return Extraction(listed[-1].upper(), source)
    letters = [
        m for m in _STANDALONE.finditer(text) if not re.match(r"A\s+[a-z]", text[m.start(1) : m.start(1) + 4])
    ]
    return Extraction(letters[-1][1].upper(), source) if letters else NOTHING


def boolean_gold(text: str) -> bool | None:
    """True for yes/true, False for no/false (any case), else None."""
    word = _clean(text).strip(".!").lower()
    return True if word in _POSITIVE else False if word in _NEGATIVE else None


def boolean_answer(response: str) -> Extraction:
    """ "yes" or "no" as the response answers; what it says instead stays as written."""
    text = own_text(response)
    place = passage(text)
    if place.text is not None:
        said = {_truth(m): m for m in _TRUTH.finditer(_clean(place.text))}
        if len(said) == 1 or (said and place.source == "marker"):  # "yes or no" in a box is neither
            return Extraction(next(iter(said)), place.source)
        return Extraction(place.text, place.source) if place.text else NOTHING
    text = _EITHER.sub(" ", _clean(text[-4000:]))
    words = list(_STATED.finditer(text))
    if not words:
        return NOTHING
    opening = words[0] if not text[: words[0].start()].strip(" .") else None
    last = words[-1] if words[-1].end() > len(text) - 200 else None
    return Extraction(_truth(last or opening or words[-1]), "expression")


def _truth(found: re.Match[str]) -> str:
    positive = found["word"].lower() in _POSITIVE
    return "yes" if positive != bool(found["not"]) else "no"
