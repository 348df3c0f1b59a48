"""Validation: whether an answer is what its purpose asks for (spec/summaries C6). Reasons hold no content."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sessionlib.entries import require_encodable
from sessionlib.errors import InvalidInput
from sessionlib.summaries.purposes import DIGEST_LIMIT_BYTES, EMPTY_BULLET, HEADINGS, Purpose

_HEADING = re.compile(r" {0,3}##(?!#)(?=\s|$)")
"""What Markdown shows as a heading of the second level."""

_FENCE = re.compile(r"\s*(```|~~~)")
_BULLET = re.compile(r"- +\S")
_CONTINUATION = re.compile(r" {2,}\S")


def complaint(text: str, purpose: Purpose, *, source: str) -> str:
    """Why *text* is no summary of *source* for *purpose*; "" if it is one.

    *text* is the answer as it came; blanks around it are no fault. A continuation must be smaller than its source, in
    characters, and say something: it takes the place of its source.
    """
    if not text.strip():
        return "the answer is blank"
    try:
        require_encodable("text", text)
    except InvalidInput:
        return "the answer holds a lone surrogate"
    lines = _lines(text)
    if misplaced := _heading_complaint([line for line in _outside_fences(lines) if _HEADING.match(line)], purpose):
        return misplaced
    if purpose is Purpose.DIGEST:
        return _digest_complaint(text, lines)
    if purpose is Purpose.CONTINUATION:
        return _continuation_complaint(text, lines, source)
    return ""


def is_empty_digest(text: str) -> bool:
    """Whether *text* is a valid digest that says nothing. Malformed text is not: it authorizes no omission."""
    if complaint(text, Purpose.DIGEST, source=""):
        return False
    empty = EMPTY_BULLET[Purpose.DIGEST]
    return all(bullets == [empty] for bullets in _sections(_lines(text)))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().split("\n")]


def _outside_fences(lines: Iterable[str]) -> Iterator[str]:
    is_inside = False
    for line in lines:
        if _FENCE.match(line):
            is_inside = not is_inside
        elif not is_inside:
            yield line


def _heading_complaint(found: list[str], purpose: Purpose) -> str:
    due = [f"## {heading}" for heading in HEADINGS[purpose]]
    if found == due:
        return ""
    if len(found) != len(due):
        return f"a {purpose} has {len(due)} headings; the answer has {len(found)}"
    position = next(at for at, (one, other) in enumerate(zip(found, due, strict=True)) if one != other)
    return f"heading {position + 1} of the answer is not {due[position][3:]!r}"


def _continuation_complaint(text: str, lines: list[str], source: str) -> str:
    if len(text.strip()) >= len(source):
        return f"the answer has {len(text.strip()):,} characters; its source has {len(source):,}"
    empty = EMPTY_BULLET[Purpose.CONTINUATION]
    if all(not line or line == empty or _HEADING.match(line) for line in lines):
        return "the answer says nothing under its headings"
    return ""


def _digest_complaint(text: str, lines: list[str]) -> str:
    size_bytes = len(text.encode())
    if size_bytes > DIGEST_LIMIT_BYTES:
        return f"a digest has at most {DIGEST_LIMIT_BYTES:,} bytes; the answer has {size_bytes:,}"
    if any(map(_FENCE.match, lines)):
        return "a digest has no fenced blocks"
    if not _HEADING.match(lines[0]):
        return "a digest has nothing outside its sections"
    for heading, section in zip(HEADINGS[Purpose.DIGEST], _sections(lines), strict=True):
        if wrong := _section_complaint(section):
            return f"under {heading}: {wrong}"
    return ""


def _sections(lines: Iterable[str]) -> list[list[str]]:
    """The lines under each heading that are not blank."""
    sections: list[list[str]] = []
    for line in lines:
        if _HEADING.match(line):
            sections.append([])
        elif line:
            sections[-1].append(line)
    return sections


def _section_complaint(lines: list[str]) -> str:
    """What is wrong with a digest's section: it is one or more bullets, or the empty bullet alone."""
    if not lines:
        return "there is no bullet"
    if lines == [EMPTY_BULLET[Purpose.DIGEST]]:
        return ""
    if not _BULLET.match(lines[0]):
        return "the first line is no bullet"
    for line in lines:
        if _is_none(line):
            return "the empty bullet is not alone, or not exact"
        if not _BULLET.match(line) and not _CONTINUATION.match(line):
            return "a line is neither a bullet nor the continuation of one"
    return ""


def _is_none(line: str) -> bool:
    """Whether a line is an empty bullet in some form: `- None.`, `- (none)`."""
    return line.startswith("- ") and re.sub(r"[\W_]", "", line).casefold() == "none"
