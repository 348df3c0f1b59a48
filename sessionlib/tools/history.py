"""The private history tool: the agent reads what left its window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sessionlib.entries import Entry
from sessionlib.projection import READ_ITEM, Projection, exceeds
from sessionlib.providers.contract import ToolDeclaration
from sessionlib.tools.declaration import Tool, ToolContext, validation_details

DEFAULT_LIMIT_CHARS = 4_000
LARGEST_LIMIT_CHARS = 16_000
"""What one reading may return at most, however much is asked for (spec/work-room B6)."""

HISTORY_DECLARATIONS: tuple[ToolDeclaration, ...] = (
    ToolDeclaration(
        name=READ_ITEM,
        description=(
            "Read one item of this conversation's history again, word for word, by its entry number: what a record "
            "stands for, what a marker or pointer replaced. Long items are read in parts."
        ),
        parameters={
            "type": "object",
            "properties": {
                "item": {"type": "integer", "description": "entry number"},
                "offset_chars": {"type": "integer", "description": "where to start, in characters", "default": 0},
                "limit_chars": {"type": "integer", "description": "how much to read", "default": DEFAULT_LIMIT_CHARS},
            },
            "required": ["item"],
            "additionalProperties": False,
        },
    ),
)

Lookup = Callable[[int], Entry | None]
"""The stored entry of a sequence number, live or archived; None if there is none."""


class ReadItem(BaseModel):
    """Arguments of `history.read_item`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: Annotated[int, Field(ge=1)]
    offset_chars: Annotated[int, Field(ge=0)] = 0
    limit_chars: Annotated[int, Field(ge=1)] = DEFAULT_LIMIT_CHARS


def history_tools(lookup: Lookup, projection: Projection) -> dict[str, Tool]:
    """The private tools by name, for one session. What they return is never shortened when it is sent."""

    def run(arguments: str, context: ToolContext) -> str:
        return read_item(arguments, lookup, lambda text: _fits(text, context.call_id, projection))

    return {READ_ITEM: Tool(HISTORY_DECLARATIONS[0], run)}


def read_item(arguments: str, lookup: Lookup, fits: Callable[[str], bool]) -> str:
    """A part of an entry under a line that names it, or a readable text about what is wrong with *arguments*.

    Bad arguments and missing items never raise. A part that does not fit is halved until it does.
    """
    try:
        wanted = ReadItem.model_validate_json(arguments.strip() or "{}")
    except ValidationError as exc:
        return f"Nothing was read: {validation_details(exc)}."
    entry = lookup(wanted.item)
    if entry is None:
        return f"Nothing was read: this conversation has no entry {wanted.item}."
    if wanted.offset_chars and wanted.offset_chars >= len(entry.text):
        return f"Nothing was read: entry {wanted.item} ends at character {len(entry.text)}."
    limit_chars = min(wanted.limit_chars, LARGEST_LIMIT_CHARS)
    while not fits(part := _part(wanted.item, entry, wanted.offset_chars, limit_chars)) and limit_chars > 1:
        limit_chars //= 2
    return part


def _part(item: int, entry: Entry, offset_chars: int, limit_chars: int) -> str:
    end = min(offset_chars + limit_chars, len(entry.text))
    what = f"{entry.kind.replace('_', ' ')}{f' {entry.tool_name}' if entry.tool_name else ''}"
    more = f"; go on with offset_chars={end}" if end < len(entry.text) else ""
    return (
        f"[entry {item}, {what}, characters {offset_chars}-{end} of {len(entry.text)}{more}]\n"
        f"{entry.text[offset_chars:end]}"
    )


def _fits(text: str, call_id: str, projection: Projection) -> bool:
    return not exceeds(Entry.tool_result(call_id, text), projection.cap_tokens, projection.counter)
