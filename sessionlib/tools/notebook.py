"""Notes: what the agent writes down outlives its window.

A note is a text under a name, kept with the session (spec/work-room B6); there is no file system behind it. A name has
parts of letters, digits, `.`, `_`, `-` and blanks, with `/` between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from sessionlib.errors import InvalidInput
from sessionlib.tools.declaration import validation_details

NAME_CHARACTERS = 128
"""The longest name, as of sessions and turns."""
LARGEST_RESULT_CHARACTERS = 16_000
"""What one call returns at most, however much is asked for (spec/work-room B6)."""
MATCH_CHARACTERS = 100
"""What is shown of a line on either side of what was searched for (spec/work-room B6)."""

_PART = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-](?:[A-Za-z0-9._ -]*[A-Za-z0-9._-])?")
_NAME_RULE = (
    f"must have 1 to {NAME_CHARACTERS} characters: parts of A-Z a-z 0-9 . _ - and blanks, with / between them; no part "
    "may be . or .., or begin or end with a blank"
)

Fits = Callable[[str], bool]
"""Whether a result may be sent as it is."""


class WriteNote(Protocol):
    """Writes or lengthens a note; its size now, in bytes. *key* names this one write: again it changes nothing.

    Raises InvalidInput for what is too large, and LeaseLost.
    """

    def __call__(self, name: str, text: str, *, key: str, append: bool) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """One session's notes, as a store has them."""

    sizes: Callable[[], Mapping[str, int]]
    """Bytes by name, sorted by name."""
    text: Callable[[str], str | None]
    """A note by its name; None if there is none."""
    write: WriteNote


def is_name(name: str) -> bool:
    """Whether a note may have this name."""
    return len(name) <= NAME_CHARACTERS and all(map(_PART.fullmatch, name.split("/")))


def _checked_name(name: str) -> str:
    if not is_name(name):
        raise PydanticCustomError("note_name", _NAME_RULE)
    return name


def _checked_prefix(prefix: str) -> str:
    """The beginning of a name: a name, or the parts before its last one."""
    if prefix and not is_name(prefix.removesuffix("/")):
        raise PydanticCustomError("note_prefix", f"must be the beginning of a name, which {_NAME_RULE}")
    return prefix


Name = Annotated[str, AfterValidator(_checked_name)]
Prefix = Annotated[str, AfterValidator(_checked_prefix)]
Positive = Annotated[int, Field(ge=1)]


class ListFiles(BaseModel):
    """Arguments of `notes.list_files`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: Prefix = ""
    limit: Positive = 50


class ReadFile(BaseModel):
    """Arguments of `notes.read_file`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    first_line: Positive = 1
    last_line: Positive | None = None
    """The last line itself is read; None for the note's last."""
    offset_chars: Annotated[int, Field(ge=0)] = 0
    """Where to start in the first line: a line may be longer than what one call returns."""


class SearchContents(BaseModel):
    """Arguments of `notes.search_contents`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: Annotated[str, Field(min_length=1)]
    prefix: Prefix = ""
    max_files: Positive = 20
    max_matches: Positive = 5
    """Lines of one note."""


class WriteFile(BaseModel):
    """Arguments of `notes.write_file` and `notes.append_to_file`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    content: str


def list_files(arguments: str, notebook: Notebook, fits: Fits) -> str:
    """Names and sizes of the notes, or a readable text about what is wrong with *arguments*."""
    wanted = _validated(ListFiles, arguments)
    if isinstance(wanted, str):
        return f"Nothing was listed: {wanted}."
    found = [f"{name} ({_bytes(size)})" for name, size in notebook.sizes().items() if name.startswith(wanted.prefix)]
    if not found:
        return f"There are no notes{_under(wanted.prefix)}."
    return _as_far_as_fits(found, wanted.limit, fits, lambda left: f"[{left} more; narrow them down with prefix]")


def read_file(arguments: str, notebook: Notebook, fits: Fits) -> str:
    """Lines of a note under a line that names them, "" past its end, or a readable text about what is wrong.

    What does not fit is halved until it does, and ends with a whole line if it holds one.
    """
    wanted = _validated(ReadFile, arguments)
    if isinstance(wanted, str):
        return f"Nothing was read: {wanted}."
    if wanted.last_line is not None and wanted.last_line < wanted.first_line:
        return f"Nothing was read: last_line {wanted.last_line} comes before first_line {wanted.first_line}."
    text = notebook.text(wanted.name)
    if text is None:
        return f"Nothing was read: there is no note {wanted.name}."
    lines = _LINE.findall(text)
    stretch = _Stretch("".join(lines[wanted.first_line - 1 : wanted.last_line]), wanted.first_line)
    stretch = stretch.after(wanted.offset_chars)
    if not stretch.text:
        return ""
    limit_characters = min(len(stretch.text), LARGEST_RESULT_CHARACTERS)
    while not fits(part := _part(wanted.name, len(lines), stretch, limit_characters)) and limit_characters > 1:
        limit_characters //= 2
    return part


def search_contents(arguments: str, notebook: Notebook, fits: Fits) -> str:
    """Lines that hold a text, each with its note and number, or a readable text about what is wrong."""
    wanted = _validated(SearchContents, arguments)
    if isinstance(wanted, str):
        return f"Nothing was searched: {wanted}."
    query = re.compile(re.escape(wanted.query), re.IGNORECASE)
    found: list[str] = []
    file_count = 0
    for name in notebook.sizes():
        matches = _matches(name, notebook.text(name) or "", query) if name.startswith(wanted.prefix) else []
        if not matches:
            continue
        if file_count == wanted.max_files:
            found.append("[more notes have it; narrow them down with prefix]")
            break
        file_count += 1
        found += matches[: wanted.max_matches]
        if len(matches) > wanted.max_matches:
            found.append(f"[{len(matches) - wanted.max_matches} more lines of {name}]")
    if not found:
        return f"No note{_under(wanted.prefix)} has that text."
    return _as_far_as_fits(found, len(found), fits, lambda left: f"[{left} more lines; search for something rarer]")


def write_file(arguments: str, notebook: Notebook, *, key: str, append: bool) -> str:
    """Write a note, or add to it: its size, or a readable text about why nothing was written. Raises LeaseLost."""
    wanted = _validated(WriteFile, arguments)
    if isinstance(wanted, str):
        return f"Nothing was written: {wanted}."
    try:
        size = notebook.write(wanted.name, wanted.content, key=key, append=append)
    except InvalidInput as exc:
        return f"Nothing was written: {exc}."
    return f"Written: {wanted.name} has {_bytes(size)} now."


_LINE = re.compile(r"[^\n]*\n|[^\n]+")

Arguments = TypeVar("Arguments", bound=BaseModel)


def _validated(model: type[Arguments], arguments: str) -> Arguments | str:
    """The arguments, or what is wrong with them."""
    try:
        return model.model_validate_json(arguments.strip() or "{}")
    except ValidationError as exc:
        return validation_details(exc)


def _bytes(size: int) -> str:
    return f"{size:,} byte{'s' * (size != 1)}"


def _under(prefix: str) -> str:
    return f" under {prefix}" if prefix else ""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Text of a note from some place on."""

    text: str
    line: int
    """Number of the line that it begins in."""
    offset: int = 0
    """Characters of that line before it."""

    def after(self, count: int) -> _Stretch:
        """What is left without the first *count* characters."""
        before = self.text[:count]
        offset = len(before) - before.rindex("\n") - 1 if "\n" in before else self.offset + len(before)
        return _Stretch(self.text[count:], self.line + before.count("\n"), offset)


def _part(name: str, line_count: int, stretch: _Stretch, limit_characters: int) -> str:
    """The beginning of *stretch*, up to the end of a line if it holds one, under a line that says where to go on."""
    shown = stretch.text[:limit_characters]
    if len(shown) < len(stretch.text) and "\n" in shown:
        shown = shown[: shown.rindex("\n") + 1]
    left = stretch.after(len(shown))
    more = f"; go on with first_line={left.line}" if left.text else ""
    more += f", offset_chars={left.offset}" if left.text and left.offset else ""
    last_line = left.line if left.offset else left.line - 1
    return f"[{name}, lines {stretch.line}-{last_line} of {line_count}{more}]\n{shown}"


def _matches(name: str, text: str, query: re.Pattern[str]) -> list[str]:
    """The lines of a note that *query* is found in."""
    found = ((number, line, query.search(line)) for number, line in enumerate(text.split("\n"), 1))
    return [f"{name}:{number}: {_excerpt(line, match)}" for number, line, match in found if match]


def _excerpt(line: str, match: re.Match[str]) -> str:
    first, last = max(0, match.start() - MATCH_CHARACTERS), match.end() + MATCH_CHARACTERS
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"


def _as_far_as_fits(lines: Sequence[str], limit: int, fits: Fits, rest: Callable[[int], str]) -> str:
    """The first *limit* lines, halved until they fit, and a line about the *rest*, given how many they are."""
    count = min(limit, len(lines))
    while True:
        left = len(lines) - count
        text = "\n".join((*lines[:count], *([rest(left)] if left else [])))
        if count == 0 or (len(text) <= LARGEST_RESULT_CHARACTERS and fits(text)):
            return text
        count //= 2
