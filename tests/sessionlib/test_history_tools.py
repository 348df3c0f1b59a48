"""The private history tools: what they list, read and find, how they refuse, and that nothing of it is shortened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from sessionlib.agent import Agent
from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import StoreCorrupt, StoreUnavailable
from sessionlib.projection import READ_ITEM, Projection, exceeds
from sessionlib.providers.contract import CallRequest
from sessionlib.recall.contract import Found, Scope
from sessionlib.recall.parts import parts_of
from sessionlib.recall.postings import postings_of
from sessionlib.recall.queries import Query
from sessionlib.stores.contract import ChunkRef
from sessionlib.tools.declaration import ToolContext, run_tool
from sessionlib.tools.history import (
    HISTORY_DECLARATIONS,
    LIST_ITEMS,
    LIST_WINDOWS,
    SEARCH,
    ListItems,
    ListWindows,
    ReadItem,
    Search,
    history_tools,
)
from sessionlib.tools.history_lists import LARGEST_LIMIT_CHARS, LIST_TOKENS, MOST_WINDOWS, PREVIEW_CHARACTERS
from tests.sessionlib.recalling import Archive

COUNTER = counter_named("o200k_base")
CAP_TOKENS = 50_000
CONTEXT = ToolContext(session_id="s", turn_id="t", call_id="c", round=0)

FIRST = (
    Entry.user("Please make the upload port configurable."),
    Entry.assistant(""),
    Entry.tool_call("c1", '{"q": 1}', "search"),
    Entry.tool_result("c1", "0123456789" * 2_000, "search"),
)
SECOND = (
    Entry.opaque('{"summary": "thought"}', "openai/gpt"),
    Entry.assistant("Decision: the upload port stays at 48113;\nthe firewall lets nothing else through."),
)


def stored() -> Archive:
    return Archive(FIRST, SECOND)


def call(name: str, history: Archive | None = None, cap_tokens: int = CAP_TOKENS, **arguments: Any) -> str:
    return raw(name, json.dumps(arguments), history or stored(), cap_tokens)


def raw(name: str, arguments: str, history: Archive, cap_tokens: int = CAP_TOKENS) -> str:
    tools = history_tools(history, Projection(COUNTER, cap_tokens))
    output = run_tool(tools, CallRequest(call_id="c", name=name, arguments=arguments), CONTEXT)
    assert not output.is_error, output.text
    return output.text


# --- Declarations


@pytest.mark.parametrize(
    ("name", "model"), [(SEARCH, Search), (READ_ITEM, ReadItem), (LIST_ITEMS, ListItems), (LIST_WINDOWS, ListWindows)]
)
def test_declarations_agree_with_what_is_validated(name: str, model: type[BaseModel]) -> None:
    """Names, what is required, the defaults that are told."""
    (declared,) = [each for each in HISTORY_DECLARATIONS if each.name == name]
    schema = model.model_json_schema()
    assert list(declared.parameters["properties"]) == list(schema["properties"])
    assert declared.parameters.get("required") == schema.get("required")
    for field, told in declared.parameters["properties"].items():
        if "default" in told:
            assert told["default"] == schema["properties"][field]["default"]


def test_declarations_cost_little() -> None:
    """Every request carries them."""
    with_tools, without = (Agent(name="a", history_tool=has).fixed_tokens(COUNTER) for has in (True, False))
    assert with_tools - without <= 460


# --- history.list_windows


def test_windows_are_listed_with_their_entries() -> None:
    """The newest first, or the oldest; the one that is now among them."""
    assert call(LIST_WINDOWS) == ("window 3 (now): no entries\nwindow 2: entries 5-6 (2)\nwindow 1: entries 1-4 (4)")
    assert call(LIST_WINDOWS, limit=1, recent_first=False) == "window 1: entries 1-4 (4)\n2 newer not shown"
    assert call(LIST_WINDOWS, limit=2).endswith("window 2: entries 5-6 (2)\n1 older not shown")


def test_many_windows_are_cut_to_what_a_list_may_take() -> None:
    """And the rest is counted."""
    archive = Archive()
    archive.all = [Entry.user("x")] * 1_000
    archive.refs = [ChunkRef(first_seq=seq, last_seq=seq, epoch=seq) for seq in range(1, 1_001)]
    text = call(LIST_WINDOWS, archive, limit=1_000)
    *rows, notice = text.split("\n")
    assert 100 < len(rows) < 1_000
    assert notice == f"{1_001 - len(rows)} older not shown"
    assert COUNTER.text(text) <= LIST_TOKENS


# --- history.list_items


def test_items_are_listed_with_their_beginning() -> None:
    """One line each: number, role, tool, preview. What only its provider can read is left out."""
    assert call(LIST_ITEMS, recent_first=False).split("\n") == [
        "[1 user] Please make the upload port configurable.",
        "[2 assistant] ",
        '[3 tool_call search] {"q": 1}',
        f"[4 tool_result search] {'0123456789' * 20}… (20,000 characters)",
        "[6 assistant] Decision: the upload port stays at 48113; the firewall lets nothing else through.",
    ]


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({}, [6, 4, 3, 2, 1]),
        ({"first": 2, "last": 4}, [4, 3, 2]),
        ({"first": 2, "last": 6, "recent_first": False}, [2, 3, 4, 6]),
        ({"window": 1}, [4, 3, 2, 1]),
        ({"window": 1, "first": 3}, [4, 3]),
        ({"role": "assistant"}, [6, 2]),
        ({"role": "tool_result"}, [4]),
        ({"tool_name": "search"}, [4, 3]),
        ({"tool_name": "search", "role": "tool_call"}, [3]),
    ],
)
def test_items_of_a_span_a_window_a_role_a_tool(arguments: dict[str, Any], numbers: list[int]) -> None:
    """A record is expanded by the span that it names."""
    rows = call(LIST_ITEMS, **arguments).split("\n")
    assert [int(row.split()[0][1:]) for row in rows] == numbers


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"window": 9}, "Nothing was listed: there is no window 9."),
        ({"window": 3}, "No items fit."),
        ({"first": 90}, "No items fit."),
        ({"first": 4, "last": 2}, "No items fit."),
        ({"tool_name": "other"}, "No items fit."),
    ],
)
def test_empty_lists_say_so(arguments: dict[str, Any], text: str) -> None:
    """In words."""
    assert call(LIST_ITEMS, **arguments) == text


@pytest.mark.parametrize("recent_first", [True, False])
def test_a_list_is_continued_where_it_ended(recent_first: bool) -> None:
    """Every item once, whatever the limit."""
    archive = Archive(*([Entry.user(f"item {chunk * 10 + n}") for n in range(10)] for chunk in range(5)))
    seen: list[int] = []
    arguments: dict[str, Any] = {"limit": 7, "recent_first": recent_first}
    while True:
        *rows, last = call(LIST_ITEMS, archive, **arguments).split("\n")
        if not last.startswith("More: go on with "):
            rows.append(last)
        seen += [int(row.split()[0][1:]) for row in rows]
        if not last.startswith("More"):
            break
        field, number = last.removeprefix("More: go on with ").rstrip(".").split("=")
        arguments[field] = int(number)
    assert seen == sorted(range(1, 51), reverse=recent_first)


def test_a_list_looks_through_so_many_windows_and_says_where_to_go_on() -> None:
    """A filter that nothing fits must not read a whole archive."""
    archive = Archive()
    archive.all = [Entry.user("x")] * 200
    archive.refs = [ChunkRef(first_seq=seq, last_seq=seq, epoch=seq) for seq in range(1, 201)]
    text = call(LIST_ITEMS, archive, role="assistant", last=200)
    assert text == f"More: go on with last={200 - MOST_WINDOWS}."


def test_a_long_list_is_cut_to_what_a_list_may_take() -> None:
    """Its last line says where to go on."""
    archive = Archive([Entry.user("字" * 300) for _ in range(100)])
    text = call(LIST_ITEMS, archive, limit=100)
    *rows, more = text.split("\n")
    assert 5 < len(rows) < 100
    assert more == f"More: go on with last={100 - len(rows)}."
    assert COUNTER.text(text) <= LIST_TOKENS


def test_a_preview_splits_no_character() -> None:
    """A joined emoji across the border is left out whole."""
    text = "a" * (PREVIEW_CHARACTERS - 1) + "👩\u200d🚀" + "b" * 100
    assert (
        call(LIST_ITEMS, Archive([Entry.user(text)])) == f"[1 user] {'a' * (PREVIEW_CHARACTERS - 1)}… (302 characters)"
    )


# --- history.read_item


def test_an_item_is_read_word_for_word() -> None:
    """Under a line that says what it is."""
    assert call(READ_ITEM, item=1) == (
        "[entry 1, user, characters 0-41 of 41]\nPlease make the upload port configurable."
    )
    assert call(READ_ITEM, item=3) == '[entry 3, tool call search, characters 0-8 of 8]\n{"q": 1}'
    assert call(READ_ITEM, item=2) == "[entry 2, assistant, characters 0-0 of 0]\n"


def test_a_long_item_is_read_in_parts() -> None:
    """Each part says where to go on; together they are the item."""
    whole, offset = "", 0
    while True:
        head, part = call(READ_ITEM, item=4, offset_chars=offset, limit_chars=3_333).split("\n", 1)
        whole += part
        if "go on with offset_chars=" not in head:
            break
        offset = int(head.split("offset_chars=")[1].rstrip("]"))
    assert whole == FIRST[3].text


@given(st.text(st.sampled_from("ab\u0301👩\u200d🚀\n"), min_size=1, max_size=60), st.integers(1, 9))
def test_parts_are_the_item_whatever_it_holds(text: str, limit_chars: int) -> None:
    """Joined emoji too, and parts smaller than one."""
    archive, whole, offset = Archive(), "", 0
    archive.all = [Entry.user(text)]
    while offset < len(text):
        head, part = call(READ_ITEM, archive, item=1, offset_chars=offset, limit_chars=limit_chars).split("\n", 1)
        whole += part
        offset += len(part)
        assert ("go on" in head) == (offset < len(text))
    assert whole == text


def test_a_part_is_never_longer_than_the_bound() -> None:
    """However much is asked for."""
    assert len(call(READ_ITEM, item=4, limit_chars=10**9).split("\n", 1)[1]) == LARGEST_LIMIT_CHARS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "item: Field required"),
        ("{", "Invalid JSON"),
        ('{"item": 0}', "greater than or equal to 1"),
        ('{"item": 1, "offset_chars": -1}', "offset_chars"),
        ('{"item": 1, "limit_chars": 0}', "limit_chars"),
        ('{"item": 1, "window": 1}', "window"),
        ('{"item": 99}', "no entry 99"),
        ('{"item": 1, "offset_chars": 41}', "ends at character 41"),
        ('{"item": 5}', "only its provider can read"),
    ],
)
def test_what_cannot_be_read_is_said(arguments: str, words: str) -> None:
    """A readable text, never an exception."""
    text = raw(READ_ITEM, arguments, stored())
    assert text.startswith("Nothing was read: ")
    assert words in text


# --- history.search


def test_a_search_shows_passages_word_for_word() -> None:
    """The best first, under the entry, its role and tool; those beside them after them."""
    archive = Archive([*SECOND, *(Entry.user(f"message {number}") for number in range(9)), FIRST[0], FIRST[2]])
    assert call(SEARCH, archive, query="what is the upload port?") == (
        "Of 7 passages, the best first, by [entry role +offset]:\n"
        "[12 user]\n"
        "Please make the upload port configurable.\n"
        "[2 assistant]\n"
        "Decision: the upload port stays at 48113;\nthe firewall lets nothing else through.\n"
        "[13 tool_call search]\n"
        '{"q": 1}\n'
        "[11 user]\nmessage 8\n"
        "[3 user]\nmessage 0\n"
        "[10 user]\nmessage 7\n"
        "[4 user]\nmessage 1"
    )


def test_a_passage_says_where_it_begins() -> None:
    """So that reading can go on from there."""
    text = "\n".join(f"line {number} says nothing of note" for number in range(100)) + "\nthe needle is 4711\n"
    archive = Archive([Entry.tool_result("c", text, "read_file")])
    shown = call(SEARCH, archive, query="needle", limit_tokens=200)
    heading = shown.split("\n")[1]
    offset = int(heading.split("+")[1].rstrip("]"))
    assert heading.startswith("[1 tool_result read_file +")
    assert "needle" in text[offset : offset + 600]
    read = call(READ_ITEM, archive, item=1, offset_chars=offset, limit_chars=20)
    assert read.split("\n", 1)[1] == shown.split("\n", 2)[2][:20]


@pytest.mark.parametrize("limit_tokens", [60, 150, 600, 5_000])
def test_a_search_keeps_to_its_tokens(limit_tokens: int) -> None:
    """By the agent's counter; the last passage may be cut, and ends in an ellipsis then."""
    archive = Archive(
        [Entry.user(f"port {number}: " + "the harbour master says so, again. " * 12) for number in range(60)]
    )
    text = call(SEARCH, archive, query="harbour port", limit_tokens=limit_tokens)
    assert COUNTER.text(text) <= limit_tokens
    assert COUNTER.text(text) > limit_tokens / 2
    assert text.count("\n[") >= 1


@pytest.mark.parametrize("cap_tokens", [100, 1_000])
def test_nothing_that_a_tool_returns_is_shortened_when_it_is_sent(cap_tokens: int) -> None:
    """It is cut to what the result cap holds, so that no reading needs another reading."""
    archive = Archive([Entry.user(f"port {number} " * 80) for number in range(60)], FIRST)
    for name, arguments in (
        (SEARCH, {"query": "port", "limit_tokens": 100_000}),
        (READ_ITEM, {"item": 64, "limit_chars": 16_000}),
        (LIST_ITEMS, {"limit": 60}),
        (LIST_WINDOWS, {}),
    ):
        text = call(name, archive, cap_tokens, **arguments)
        assert not exceeds(Entry.tool_result("c", text), cap_tokens, COUNTER), name


def test_what_is_said_twice_is_shown_once() -> None:
    """A file that was read ten times does not fill the result."""
    same = [Entry.tool_result("c", "the port is 80 and nothing else", "read") for _ in range(10)]
    text = call(SEARCH, Archive([*same, Entry.user("which port was it?")]), query="port")
    assert text.count("the port is 80") == 1
    assert "which port was it?" in text


def test_quoted_words_are_first_where_they_stand_like_that() -> None:
    """Not where the words only occur."""
    archive = Archive(
        [
            Entry.user("length of the lease, lease of length, length, lease"),
            Entry.user("the lease length is written down in the long page that nobody reads"),
            *(Entry.user(f"message {number} about other things") for number in range(30)),
        ]
    )
    assert call(SEARCH, archive, query='"lease length"').split("\n")[1] == "[2 user]"


def test_a_search_by_role_and_span() -> None:
    """Nothing else is shown."""
    assert "[1 user]" not in call(SEARCH, query="upload port", role="assistant")
    assert "[6 assistant]" not in call(SEARCH, query="upload port", last=4)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"query": "harbour"}', "Nothing was found."),
        ('{"query": "?!"}', "Nothing was searched: the query has no word to look for."),
        ('{"query": ""}', "Nothing was searched: query: String should have at least 1 character."),
        ("{}", "Nothing was searched: query: Field required."),
    ],
)
def test_a_search_without_result_says_why(arguments: str, text: str) -> None:
    """In words."""
    assert raw(SEARCH, arguments, stored()) == text


def test_a_search_names_what_it_cannot_search() -> None:
    """Chunks that were archived without postings."""
    archive = stored()
    archive.archive([Entry.user("the port again")], with_postings=False)
    notice = "Not searched in full, for want of sound postings: entries 7-7."
    assert notice in call(SEARCH, archive, query="upload port")
    assert call(SEARCH, archive, query="harbour") == f"Nothing was found.\n{notice}"
    assert "Not searched" not in call(SEARCH, archive, query="upload port", last=6)


def test_a_search_counts_what_it_does_not_name() -> None:
    """Many spans are no reason to show nothing else."""
    archive = Archive([Entry.user(f"port {number}") for number in range(15)])
    assert "Not searched" not in call(SEARCH, archive, query="port")
    torn = postings_of([entry if seq % 2 else None for seq, entry in enumerate(archive.all, 1)], 1)
    archive.kept = [replace(archive.kept[0], parts=parts_of(torn))]
    text = call(SEARCH, archive, query="port")
    assert "sound postings: entries 2-2, 4-4, 6-6, 8-8, 10-10 and 2 more." in text
    assert "[15 user]" in text


class Torn(Archive):
    """An archive whose first entries cannot be read; their postings are sound."""

    lost = 0

    def at(self, seqs: Sequence[int]) -> Mapping[int, Entry]:
        return super().at([seq for seq in seqs if seq > self.lost])


@pytest.mark.parametrize("query", ["port", '"the port"'])
def test_a_search_names_what_it_found_and_cannot_read(query: str) -> None:
    """The other passages are shown."""
    archive = Torn([Entry.user(f"the port is {number}") for number in range(8)])
    archive.lost = 2
    text = call(SEARCH, archive, query=query)
    assert "Not shown, being damaged: entries 1, 2." in text
    assert "the port is 7" in text
    archive.lost = 8
    assert call(SEARCH, archive, query=query).endswith("Not shown, being damaged: entries 1, 2, 3, 4, 5 and 3 more.")


def test_a_search_says_that_its_query_was_cut() -> None:
    """Whether something was found or not."""
    notice = "Only the first 2,000 characters of the query were looked for."
    assert notice not in call(SEARCH, query="upload port " + "x" * 1_988)
    assert notice in call(SEARCH, query="upload port " + "x" * 1_989)
    assert call(SEARCH, query="?" * 2_001) == (
        "Nothing was searched: the query has no word to look for in its first 2,000 characters."
    )
    assert call(SEARCH, query="漢" * 10_000) == f"Nothing was found.\n{notice}"


@pytest.mark.parametrize("limit_tokens", [1, 5, 20, 30, 41])
def test_a_limit_without_room_is_said(limit_tokens: int) -> None:
    """With one that has room."""
    archive = Archive([Entry.user(f"port {number}: " + "the harbour master says so. " * 12) for number in range(9)])
    text = call(SEARCH, archive, query="harbour port", limit_tokens=limit_tokens)
    assert text.startswith(f"Of 9 passages none is shown: limit_tokens={limit_tokens} has no room for one; ")
    enough = int(text.split("; ")[1].split()[0])
    assert "the harbour master" in call(SEARCH, archive, query="harbour port", limit_tokens=enough)


class Failing(Archive):
    """A history whose store fails."""

    error: Exception = StoreUnavailable("the store is away")

    def windows(self) -> Sequence[ChunkRef]:
        raise self.error

    def entries(self, first_seq: int, last_seq: int) -> Sequence[Entry]:
        raise self.error

    def at(self, seqs: Sequence[int]) -> Mapping[int, Entry]:
        raise self.error

    def found(self, query: Query, scope: Scope) -> Found:
        raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("the store is away"), StoreCorrupt("the archive is damaged")])
@pytest.mark.parametrize(
    ("name", "arguments"), [(SEARCH, {"query": "x"}), (READ_ITEM, {"item": 1}), (LIST_ITEMS, {}), (LIST_WINDOWS, {})]
)
def test_a_store_that_fails_is_a_text(name: str, arguments: dict[str, Any], error: Exception) -> None:
    """The turn goes on without what could not be read."""
    history = Failing()
    history.error = error
    text = call(name, history, **arguments)
    assert text.startswith("Nothing was ")
    assert text.endswith(f": {error}.")


@given(
    st.sampled_from([SEARCH, READ_ITEM, LIST_ITEMS, LIST_WINDOWS]),
    st.text() | st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)).map(json.dumps),
)
def test_no_arguments_make_a_tool_raise(name: str, arguments: str) -> None:
    """Whatever the model writes."""
    assert raw(name, arguments, stored())
