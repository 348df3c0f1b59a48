"""Entry: one item of history, and how it is rendered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sessionlib.errors import InvalidInput
from sessionlib.media import Media


class EntryKind(StrEnum):
    """What an entry is. `RECORD` is never stored as history: records and markers are sent under it.

    `OPAQUE` is an item of a reply that only the provider which made it can read (reasoning): it is stored and sent back
    to that one, and shown to nobody else.
    """

    USER = "user"
    ASSISTANT = "assistant"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    OPAQUE = "opaque"
    RECORD = "record"


TOOL_KINDS = frozenset({EntryKind.TOOL_CALL, EntryKind.TOOL_RESULT})
OUTPUT_KINDS = frozenset({EntryKind.ASSISTANT, EntryKind.TOOL_CALL, EntryKind.OPAQUE})
"""What a model answers."""

MEDIA_KINDS = frozenset({EntryKind.USER, EntryKind.TOOL_RESULT})
"""What may carry images and files."""

_LABELS = {
    EntryKind.USER: "USER",
    EntryKind.ASSISTANT: "ASSISTANT",
    EntryKind.TOOL_CALL: "TOOL CALL",
    EntryKind.TOOL_RESULT: "TOOL RESULT",
    EntryKind.RECORD: "RECORD",
}

LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Every character that starts a new line somewhere (`str.splitlines`)."""

_FORGED_LABEL = re.compile(
    rf"(?<=[{LINE_BREAKS}])(?=(?:{'|'.join(label.replace(' ', '[ _]') for label in _LABELS.values())})(?::| ?\[))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of history, word for word.

    `text` of a tool call is its arguments as the model wrote them (JSON, or whatever it wrote); of an opaque item the
    JSON that its provider gave. `tool_call_id` pairs a call with its result. Raises InvalidInput for an undefined kind,
    a missing or superfluous call id, origin or media, a lone surrogate (it has no UTF-8 form).
    """

    kind: EntryKind
    text: str
    tool_call_id: str | None = None
    tool_name: str | None = None
    origin: str = ""
    """Of an opaque item: `<provider>/<model>`, who can read it."""
    media: tuple[Media, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.kind, EntryKind):
            raise InvalidInput("kind", self.kind, "must be one of EntryKind")
        if not isinstance(self.text, str):
            raise InvalidInput("text", self.text, "must be a string")
        if self.kind in TOOL_KINDS:
            if not isinstance(self.tool_call_id, str) or not self.tool_call_id.strip():
                raise InvalidInput("tool_call_id", self.tool_call_id, f"must be given for a {self.kind}")
        elif self.tool_call_id is not None:
            raise InvalidInput("tool_call_id", self.tool_call_id, f"must be absent for a {self.kind} entry")
        if self.tool_name is not None and self.kind not in TOOL_KINDS:
            raise InvalidInput("tool_name", self.tool_name, f"must be absent for a {self.kind} entry")
        if bool(self.origin) != (self.kind is EntryKind.OPAQUE):
            raise InvalidInput("origin", self.origin, "must be given for an opaque entry, and for no other")
        if self.media and self.kind not in MEDIA_KINDS:
            raise InvalidInput("media", self.kind, "must be absent but for messages and tool results")
        for field in ("text", "tool_call_id", "tool_name"):
            require_encodable(field, getattr(self, field))

    @property
    def readable(self) -> str:
        """The text, and its media by name: what can be told of the entry in words. Nothing of an opaque item can."""
        if self.kind is EntryKind.OPAQUE:
            return ""
        return "\n".join((self.text, *(media.label for media in self.media))).strip("\n") if self.media else self.text

    @classmethod
    def user(cls, text: str, media: tuple[Media, ...] = ()) -> Entry:
        return cls(EntryKind.USER, text, media=media)

    @classmethod
    def assistant(cls, text: str) -> Entry:
        return cls(EntryKind.ASSISTANT, text)

    @classmethod
    def tool_call(cls, tool_call_id: str, text: str, tool_name: str | None = None) -> Entry:
        return cls(EntryKind.TOOL_CALL, text, tool_call_id, tool_name)

    @classmethod
    def tool_result(
        cls, tool_call_id: str, text: str, tool_name: str | None = None, media: tuple[Media, ...] = ()
    ) -> Entry:
        return cls(EntryKind.TOOL_RESULT, text, tool_call_id, tool_name, media=media)

    @classmethod
    def opaque(cls, text: str, origin: str) -> Entry:
        return cls(EntryKind.OPAQUE, text, origin=origin)

    @classmethod
    def record(cls, text: str) -> Entry:
        return cls(EntryKind.RECORD, text)


def require_encodable(field: str, text: str | None) -> None:
    """Refuse text that UTF-8 cannot carry. Raises InvalidInput."""
    if text is None or text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        rule = f"must not hold a lone surrogate (at character {exc.start})"
        raise InvalidInput(field, text[max(0, exc.start - 8) : exc.start + 8], rule) from None


def encodable(text: str) -> str:
    """*text* with surrogate pairs joined and lone surrogates replaced: what came from outside can be an entry then."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def render(entries: Iterable[Entry]) -> str:
    """Labelled lines, one entry after the other, joined by single newlines; an empty run gives "".

    A line inside a text that would read as the label of another entry is indented by two blanks: a label at the start
    of a line is always an entry's own. Opaque items are left out, media are named.
    """
    return "\n".join(_rendered(entry) for entry in entries if not _is_opaque(entry))


def _is_opaque(entry: object) -> bool:
    return isinstance(entry, Entry) and entry.kind is EntryKind.OPAQUE


def _rendered(entry: Entry) -> str:
    if not isinstance(entry, Entry):
        raise InvalidInput("entries", entry, "must hold entries only")
    label, text = _LABELS[entry.kind], entry.readable
    if entry.tool_call_id is None:
        return _FORGED_LABEL.sub("  ", f"{label}: {text}")
    if entry.kind is EntryKind.TOOL_CALL and entry.tool_name:
        text = f"{entry.tool_name}({text})"
    return _FORGED_LABEL.sub("  ", f"{label} [{entry.tool_call_id}]: {text}")


def as_continuation(text: str) -> str:
    """*text* as it may follow a line break inside an entry: no line of it, the first included, reads as a label."""
    return _FORGED_LABEL.sub("  ", f"\n{text}")[1:]


def open_call_ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Ids of the calls that no later entry answers, oldest first."""
    unanswered: dict[str, None] = {}
    for entry in entries:
        if entry.kind is EntryKind.TOOL_CALL:
            unanswered[str(entry.tool_call_id)] = None
        elif entry.kind is EntryKind.TOOL_RESULT:
            unanswered.pop(str(entry.tool_call_id), None)
    return tuple(unanswered)
