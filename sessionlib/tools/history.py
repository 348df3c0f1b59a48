"""The private history tools: the agent lists, reads and searches what left its window. They change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sessionlib.entries import EntryKind
from sessionlib.errors import StoreError
from sessionlib.projection import READ_ITEM, Projection
from sessionlib.providers.contract import ToolDeclaration
from sessionlib.recall.contract import ROLES, Scope
from sessionlib.recall.queries import QUERY_CHARACTERS, Query
from sessionlib.tools.declaration import Tool, ToolContext, validation_details
from sessionlib.tools.history_lists import Entries, ItemFilter, item_list, item_part, window_list
from sessionlib.tools.history_room import ResultRoom
from sessionlib.tools.history_search import Searched, search_text

LIST_WINDOWS, LIST_ITEMS, SEARCH = "history.list_windows", "history.list_items", "history.search"

DEFAULT_LIMIT_CHARS = 4_000

DEFAULT_LIMIT_TOKENS = 600
"""What a search returns: spec/retention finds nearly every planted decision in so much."""

Seq = Annotated[int, Field(ge=1)]
Limit = Annotated[int, Field(ge=1, le=1_000)]
Role = Literal["user", "assistant", "tool_call", "tool_result"]


class _Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListWindows(_Arguments):
    """Arguments of `history.list_windows`."""

    limit: Limit = 20
    recent_first: bool = True


class ListItems(_Arguments):
    """Arguments of `history.list_items`."""

    first: Seq | None = None
    last: Seq | None = None
    window: Seq | None = None
    role: Role | None = None
    tool_name: str | None = None
    limit: Limit = 50
    recent_first: bool = True


class ReadItem(_Arguments):
    """Arguments of `history.read_item`."""

    item: Seq
    offset_chars: Annotated[int, Field(ge=0)] = 0
    limit_chars: Annotated[int, Field(ge=1)] = DEFAULT_LIMIT_CHARS


class Search(_Arguments):
    """Arguments of `history.search`."""

    query: Annotated[str, Field(min_length=1)]
    role: Role | None = None
    first: Seq | None = None
    last: Seq | None = None
    limit_tokens: Annotated[int, Field(ge=1)] = DEFAULT_LIMIT_TOKENS


class History(Entries, Searched, Protocol):
    """One session's history, as the tools read it."""


def _declared(name: str, description: str, required: tuple[str, ...] = (), **properties: Any) -> ToolDeclaration:
    return ToolDeclaration(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": properties,
            **({"required": list(required)} if required else {}),
        },
    )


_NUMBER = {"type": "integer"}
_ROLE = {"enum": ["user", "assistant", "tool_call", "tool_result"]}
_RECENT_FIRST = {"type": "boolean"}

HISTORY_DECLARATIONS: tuple[ToolDeclaration, ...] = (
    _declared(
        SEARCH,
        "Search all of this conversation that left your window, by words and exact values.",
        ("query",),
        query={"type": "string"},
        role=_ROLE,
        first=_NUMBER,
        last=_NUMBER,
        limit_tokens={"type": "integer", "default": DEFAULT_LIMIT_TOKENS},
    ),
    _declared(
        READ_ITEM,
        "Read one item again, word for word, by its entry number: what a marker or pointer replaced, what a search "
        "found. Long ones in parts.",
        ("item",),
        item=_NUMBER,
        offset_chars={"type": "integer", "default": 0},
        limit_chars={"type": "integer", "default": DEFAULT_LIMIT_CHARS},
    ),
    _declared(
        LIST_ITEMS,
        "List items first-last (what a record stands for) or of a window.",
        first=_NUMBER,
        last=_NUMBER,
        window=_NUMBER,
        role=_ROLE,
        tool_name={"type": "string"},
        limit=_NUMBER,
        recent_first=_RECENT_FIRST,
    ),
    _declared(
        LIST_WINDOWS,
        "List the windows of this conversation with their entries.",
        limit=_NUMBER,
        recent_first=_RECENT_FIRST,
    ),
)
"""Each request carries them: descriptions say what a name does not."""

Given = TypeVar("Given", bound=BaseModel)


def history_tools(history: History, projection: Projection) -> dict[str, Tool]:
    """The private tools by name, for one session. What they return is never shortened when it is sent.

    None of them raises: bad arguments, missing items and a store that fails are texts to read.
    """
    functions = {
        SEARCH: _answering(Search, "searched", lambda given, room: _search(given, history, room)),
        READ_ITEM: _answering(ReadItem, "read", lambda given, room: _read_item(given, history, room)),
        LIST_ITEMS: _answering(ListItems, "listed", lambda given, room: _list_items(given, history, room)),
        LIST_WINDOWS: _answering(
            ListWindows,
            "listed",
            lambda given, room: window_list(history.windows(), given.limit, given.recent_first, room),
        ),
    }

    def tool(declaration: ToolDeclaration) -> Tool:
        answer = functions[declaration.name]

        def run(arguments: str, context: ToolContext) -> str:
            return answer(arguments, ResultRoom(projection, context.call_id))

        return Tool(declaration, run)

    return {declaration.name: tool(declaration) for declaration in HISTORY_DECLARATIONS}


def _answering(
    model: type[Given], done: str, answer: Callable[[Given, ResultRoom], str]
) -> Callable[[str, ResultRoom], str]:
    """*answer*, given arguments as the model wrote them."""

    def answered(arguments: str, room: ResultRoom) -> str:
        try:
            return answer(model.model_validate_json(arguments.strip() or "{}"), room)
        except ValidationError as exc:
            return f"Nothing was {done}: {validation_details(exc)}."
        except StoreError as exc:
            return f"Nothing was {done}: {exc}."

    return answered


def _search(given: Search, history: History, room: ResultRoom) -> str:
    query = Query.of(given.query)
    if not query.terms:
        place = f" in its first {QUERY_CHARACTERS:,} characters" if query.is_cut else ""
        return f"Nothing was searched: the query has no word to look for{place}."
    scope = Scope(first_seq=given.first or 1, last_seq=given.last or history.last_seq(), roles=_roles(given.role))
    return search_text(query, scope, history, given.limit_tokens, room)


def _read_item(given: ReadItem, history: History, room: ResultRoom) -> str:
    entries = history.entries(given.item, given.item)
    if not entries:
        return f"Nothing was read: this conversation has no entry {given.item}."
    return item_part(given.item, entries[0], given.offset_chars, given.limit_chars, room)


def _list_items(given: ListItems, history: History, room: ResultRoom) -> str:
    first_seq, last_seq = given.first or 1, given.last or history.last_seq()
    if given.window is not None:
        window = next((each for each in history.windows() if each.epoch == given.window), None)
        if window is None:
            return f"Nothing was listed: there is no window {given.window}."
        first_seq, last_seq = max(first_seq, window.first_seq), min(last_seq, window.last_seq)
    wanted = ItemFilter(
        first_seq=first_seq,
        last_seq=last_seq,
        roles=_roles(given.role),
        tool_name=given.tool_name,
        is_recent_first=given.recent_first,
    )
    return item_list(history, wanted, given.limit, room)


def _roles(role: Role | None) -> frozenset[EntryKind]:
    return frozenset(ROLES if role is None else (EntryKind(role),))
