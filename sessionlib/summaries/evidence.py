"""Evidence: what a summary is made from, as items that say where they come from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import InvalidInput
from sessionlib.layout import Record
from sessionlib.summaries.media import name_media
from sessionlib.summaries.redaction import redact

RESULT_CAP_CHARACTERS = 8_000
"""What of a tool result is kept, from its beginning (spec/summaries C4)."""

SHORTEST_ARGUMENT_CAP, LONGEST_ARGUMENT_CAP = 80, 800
"""Between these, a string in a tool call's arguments is cut where a result would be, in characters (C4)."""

UNREADABLE_ARGUMENTS = "[arguments that are no JSON]"

MARKER_CHARACTERS = 16
"""Hexadecimal digits of a fence marker (spec/tiers A17)."""

_MARKER = re.compile(rf"[0-9a-f]{{{MARKER_CHARACTERS}}}")
# A string, or what is left of one whose end was replaced as a secret: it is not tried again from within.
_JSON_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)("?)', re.DOTALL)
# A character of a JSON string as it is written: a surrogate pair, another escape, or itself (RFC 8259, 7).
_JSON_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)


class Provenance(StrEnum):
    """Where an item of evidence comes from (spec/summaries C4)."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL_CALL = "tool-call"
    TOOL_RESULT = "tool-result"
    SKILL_INVOCATION = "skill-invocation"
    """A result of a tool that is declared to return instructions: kept whole."""
    RECORD = "prior-continuation-summary"
    """A record: what an earlier consolidation left of older entries."""
    TRANSCRIPT = "transcript"
    """Rendered entries, as a policy hands them to a consolidation."""


_PROVENANCES = {
    EntryKind.USER: Provenance.USER,
    EntryKind.ASSISTANT: Provenance.ASSISTANT,
    EntryKind.TOOL_CALL: Provenance.TOOL_CALL,
    EntryKind.TOOL_RESULT: Provenance.TOOL_RESULT,
    EntryKind.RECORD: Provenance.RECORD,
}


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of evidence. `text` is untrusted."""

    provenance: Provenance
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Frozen source of one summary: redacted, its tool items capped."""

    items: tuple[Item, ...]
    redaction_count: int = 0
    """Secrets that were found in the source and replaced."""
    omitted_characters: int = 0
    """What the caps left out."""

    @property
    def is_blank(self) -> bool:
        return not any(item.text.strip() for item in self.items)


def project(
    entries: Iterable[Entry],
    *,
    records: Iterable[Record] = (),
    instruction_tools: AbstractSet[str] = frozenset(),
    result_cap: int = RESULT_CAP_CHARACTERS,
) -> Evidence:
    """The evidence in *records* and *entries*: media named, secrets replaced, tool items capped, blank ones and opaque
    ones left out.

    Results of *instruction_tools* are kept whole, as skill invocations; of others the first *result_cap* characters.
    Secrets are replaced before anything is cut: half of one would no longer be recognised. Raises InvalidInput for a
    negative cap.
    """
    if result_cap < 0:
        raise InvalidInput("result_cap", result_cap, "must not be negative")
    projection = _Projection(instruction_tools, result_cap)
    drafts = [_Draft.clean(Provenance.RECORD, record.text) for record in records]
    drafts += projection.drafts(entries)
    return Evidence(
        items=tuple(Item(draft.provenance, draft.text) for draft in drafts if draft.text.strip()),
        redaction_count=sum(draft.redaction_count for draft in drafts),
        omitted_characters=sum(draft.omitted_characters for draft in drafts),
    )


def fenced(items: Iterable[Item], marker: str) -> str:
    """*items* as one document, each between an opening line that states its provenance and a closing line.

    Both lines carry *marker*, which must occur in none of the texts (`draw_marker`): then no text can hold either.
    """
    return "\n\n".join(
        f"--- evidence item {marker}; provenance: {item.provenance} ---\n"
        f"{item.text.strip()}\n"
        f"--- end evidence item {marker} ---"
        for item in items
    )


def draw_marker(draw: Callable[[], str], texts: Iterable[str]) -> str:
    """The first drawn marker that occurs in none of *texts*, in capital or small letters.

    *draw* gives MARKER_CHARACTERS hexadecimal digits in small letters, other ones each time (`secrets.token_hex`).
    Raises InvalidInput if it gives anything else.
    """
    folded = [text.casefold() for text in texts]
    while True:
        marker = draw()
        if not _MARKER.fullmatch(marker):
            raise InvalidInput("draw", marker, f"must give {MARKER_CHARACTERS} hexadecimal digits in small letters")
        if not any(marker in text for text in folded):
            return marker


@dataclass(frozen=True, slots=True)
class _Draft:
    """An item in the making, with what was taken out of it."""

    provenance: Provenance
    text: str
    redaction_count: int = 0
    omitted_characters: int = 0

    @classmethod
    def clean(cls, provenance: Provenance, text: str) -> _Draft:
        """Media named, then secrets replaced: a search for secrets in encoded bytes would find some by chance."""
        redacted = redact(name_media(text))
        return cls(provenance, redacted.text, redacted.count)

    def cut_to(self, cap: int) -> _Draft:
        """The first *cap* characters, and how many are left out."""
        omitted = max(0, len(self.text) - cap)
        text = self.text[:cap] + _omission(omitted)
        return _Draft(self.provenance, text, self.redaction_count, omitted)

    def followed_by(self, other: _Draft) -> _Draft:
        """This item and what *other* says below it."""
        text = f"{self.text}\n{other.text}".lstrip("\n")
        count = self.redaction_count + other.redaction_count
        return _Draft(self.provenance, text, count, self.omitted_characters + other.omitted_characters)


@dataclass(frozen=True, slots=True)
class _Projection:
    instruction_tools: AbstractSet[str]
    result_cap: int

    @property
    def argument_cap(self) -> int:
        """Longest string in a call's arguments, in characters."""
        return max(SHORTEST_ARGUMENT_CAP, min(LONGEST_ARGUMENT_CAP, self.result_cap))

    def drafts(self, entries: Iterable[Entry]) -> list[_Draft]:
        tool_names: dict[str | None, str | None] = {}
        drafts = []
        for entry in entries:
            if entry.kind is EntryKind.OPAQUE:
                continue
            if entry.kind is EntryKind.TOOL_CALL:
                tool_names[entry.tool_call_id] = entry.tool_name
                drafts.append(self._call(entry))
            elif entry.kind is EntryKind.TOOL_RESULT:
                drafts.append(self._result(entry, entry.tool_name or tool_names.get(entry.tool_call_id)))
            else:
                drafts.append(_Draft.clean(_PROVENANCES[entry.kind], entry.readable))
        return drafts

    def _call(self, entry: Entry) -> _Draft:
        """A call as `name(arguments)`, the arguments as they were written but for long strings."""
        if not _is_json(entry.text):
            return _Draft(Provenance.TOOL_CALL, _printed_call(entry.tool_name, UNREADABLE_ARGUMENTS))
        draft = _Draft.clean(Provenance.TOOL_CALL, entry.text)
        arguments, omitted = _with_short_strings(draft.text, self.argument_cap)
        return _Draft(draft.provenance, _printed_call(entry.tool_name, arguments), draft.redaction_count, omitted)

    def _result(self, entry: Entry, tool_name: str | None) -> _Draft:
        if tool_name in self.instruction_tools:
            return _Draft.clean(Provenance.SKILL_INVOCATION, entry.readable)
        draft = _Draft.clean(Provenance.TOOL_RESULT, entry.text).cut_to(self.result_cap)
        labels = "\n".join(media.label for media in entry.media)
        return draft.followed_by(_Draft.clean(Provenance.TOOL_RESULT, labels)) if labels else draft


def _printed_call(name: str | None, arguments: str) -> str:
    return f"{name}({arguments})" if name else arguments


def _is_json(arguments: str) -> bool:
    """Whether *arguments* can be read; blank ones are those of a tool that takes none."""
    if not arguments.strip():
        return True
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _with_short_strings(arguments: str, cap: int) -> tuple[str, int]:
    """*arguments*, JSON, with every string in it cut to *cap* characters, and how many characters that left out."""
    omitted_characters = 0

    def shortened(string: re.Match[str]) -> str:
        nonlocal omitted_characters
        if len(string[1]) <= cap:
            return string[0]
        characters = _JSON_CHARACTER.findall(string[1])
        omitted = max(0, len(characters) - cap)
        omitted_characters += omitted
        return f'"{"".join(characters[:cap])}{_omission(omitted)}{string[2]}'

    return _JSON_STRING.sub(shortened, arguments), omitted_characters


def _omission(omitted_characters: int) -> str:
    """What stands for omitted characters; nothing if there are none."""
    return f"[… {omitted_characters:,} characters left out]" if omitted_characters else ""
