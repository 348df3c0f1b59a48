"""The private notes tools over a notebook in memory: names, reading, searching, writing, bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, LeaseLost, StoreUnavailable
from sessionlib.projection import Projection, exceeds
from sessionlib.providers.contract import CallRequest
from sessionlib.tools.declaration import ToolContext, run_tool
from sessionlib.tools.notebook import (
    LARGEST_RESULT_CHARACTERS,
    NAME_CHARACTERS,
    ListFiles,
    Notebook,
    ReadFile,
    SearchContents,
    WriteFile,
    is_name,
    list_files,
    read_file,
    search_contents,
    write_file,
)
from sessionlib.tools.notes import NOTES_DECLARATIONS, notes_tools

NOTE_BYTES = 1_000_000


class Shelf:
    """Notes in a dictionary, with one limit."""

    def __init__(self, **texts: str) -> None:
        self.texts = {name.replace("_", "."): text for name, text in texts.items()}
        self.keys: list[str] = []

    def write(self, name: str, text: str, *, key: str, append: bool) -> int:
        whole = (self.texts.get(name, "") if append else "") + text
        if len(whole.encode()) > NOTE_BYTES:
            raise InvalidInput("text", f"{len(whole.encode())} bytes", f"must have at most {NOTE_BYTES:,} bytes")
        self.texts[name] = whole
        self.keys.append(key)
        return len(whole.encode())

    def sizes(self) -> dict[str, int]:
        return {name: len(text.encode()) for name, text in sorted(self.texts.items())}

    @property
    def notebook(self) -> Notebook:
        return Notebook(sizes=self.sizes, text=self.texts.get, write=self.write)


Tool = Callable[[str, Notebook, Callable[[str], bool]], str]


def ask(tool: Tool, shelf: Shelf, **arguments: Any) -> str:
    return tool(json.dumps(arguments), shelf.notebook, lambda text: True)


def write(shelf: Shelf, *, append: bool = False, key: str = "t/0/c", **arguments: Any) -> str:
    return write_file(json.dumps(arguments), shelf.notebook, key=key, append=append)


LINES = Shelf(plan_md="one\ntwo\nthree\nfour\n", todo_md="Öl\nTWO pumps", empty="")


# --- names


@pytest.mark.parametrize(
    "name",
    ["plan.md", "a/b/c.md", "two..dots", "...", "..hidden", "a b.md", ".x", "-", "a.", "x" * NAME_CHARACTERS],
)
def test_names_that_a_note_may_have(name: str) -> None:
    """Dots are harmless: there is no file system behind them."""
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    ["", " ", "/", "/plan.md", "plan.md/", "a//b", ".", "..", "a/../b", "./a", "a/..", " a", "a ", "a/ b", "ä.md",
     "a\\b", "a\nb", "a\n", "..\n", "a\0", "~", "a:b", "x" * (NAME_CHARACTERS + 1)],
)  # fmt: skip
def test_names_that_a_note_may_not_have(name: str) -> None:
    """Each is refused by every tool that takes one, with the rule; nothing is read or written."""
    shelf = Shelf(plan_md="x")
    assert not is_name(name)
    assert ask(read_file, shelf, name=name).startswith("Nothing was read: name: must have 1 to 128 characters")
    assert write(shelf, name=name, content="x").startswith("Nothing was written: name: must have 1 to 128")
    assert shelf.texts == {"plan.md": "x"}


@pytest.mark.parametrize("prefix", ["/", "..", "../", "a/../b", " ", "~", "plan.md\n", "//", "ä"])
@pytest.mark.parametrize("tool", [list_files, search_contents])
def test_a_prefix_that_begins_no_name_is_refused(tool: Tool, prefix: str) -> None:
    """It never lists everything in silence."""
    arguments = {"prefix": prefix} | ({"query": "two"} if tool is search_contents else {})
    text = ask(tool, LINES, **arguments)
    assert "prefix: must be the beginning of a name" in text
    assert "plan.md" not in text


# --- list


def test_notes_are_listed_by_name_with_their_sizes() -> None:
    """Sorted, in bytes of UTF-8."""
    assert ask(list_files, LINES) == "empty (0 bytes)\nplan.md (19 bytes)\ntodo.md (13 bytes)"


@pytest.mark.parametrize("prefix", ["p", "plan", "plan.md"])
def test_a_prefix_narrows_the_list(prefix: str) -> None:
    """A prefix is the beginning of a name, wherever it ends."""
    assert ask(list_files, LINES, prefix=prefix) == "plan.md (19 bytes)"


def test_a_prefix_may_end_with_a_slash() -> None:
    """All notes of a folder, as it were."""
    shelf = Shelf()
    shelf.texts = {"a/b": "1", "ab": "2"}
    assert ask(list_files, shelf, prefix="a/") == "a/b (1 byte)"


def test_no_notes_are_said() -> None:
    """In words: an empty result looks like a failure."""
    assert ask(list_files, Shelf()) == "There are no notes."
    assert ask(list_files, LINES, prefix="x") == "There are no notes under x."


def test_a_list_says_how_many_more_there_are() -> None:
    """Fifty by default."""
    shelf = Shelf(**{f"n{number:03}": "" for number in range(60)})
    lines = ask(list_files, shelf).split("\n")
    assert (len(lines), lines[49], lines[50]) == (51, "n049 (0 bytes)", "[10 more; narrow them down with prefix]")
    assert ask(list_files, shelf, limit=1) == "n000 (0 bytes)\n[59 more; narrow them down with prefix]"


# --- read


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "[plan.md, lines 1-4 of 4]\none\ntwo\nthree\nfour\n"),
        ({"first_line": 2, "last_line": 3}, "[plan.md, lines 2-3 of 4]\ntwo\nthree\n"),
        ({"first_line": 4, "last_line": 4}, "[plan.md, lines 4-4 of 4]\nfour\n"),
        ({"first_line": 3, "last_line": 99}, "[plan.md, lines 3-4 of 4]\nthree\nfour\n"),
        ({"last_line": 1}, "[plan.md, lines 1-1 of 4]\none\n"),
        ({"last_line": None}, "[plan.md, lines 1-4 of 4]\none\ntwo\nthree\nfour\n"),
        ({"first_line": 5}, ""),
        ({"first_line": 10**9}, ""),
        ({"offset_chars": 0, "last_line": 1}, "[plan.md, lines 1-1 of 4]\none\n"),
        ({"offset_chars": 2, "last_line": 1}, "[plan.md, lines 1-1 of 4]\ne\n"),
        ({"offset_chars": 5, "last_line": 2}, "[plan.md, lines 2-2 of 4]\nwo\n"),
        ({"offset_chars": 99}, ""),
    ],
)
def test_lines_are_read_by_their_numbers(arguments: dict[str, Any], text: str) -> None:
    """From 1, the last one included; nothing past the end."""
    assert ask(read_file, LINES, name="plan.md", **arguments) == text


def test_a_note_without_a_last_line_break_is_read_whole() -> None:
    """Its last line counts, and an empty note has none."""
    assert ask(read_file, LINES, name="todo.md") == "[todo.md, lines 1-2 of 2]\nÖl\nTWO pumps"
    assert ask(read_file, LINES, name="empty") == ""


def test_a_note_that_is_not_there_is_named() -> None:
    """The model may have its name from an older window."""
    assert ask(read_file, LINES, name="lost.md") == "Nothing was read: there is no note lost.md."


texts = st.text(st.sampled_from("ab \n\rÄ漢🙂e\u0301"), max_size=300)


@given(text=texts, bound=st.integers(1, 400), first=st.integers(1, 9), last=st.none() | st.integers(9, 20))
def test_a_note_is_read_whole_in_parts(text: str, bound: int, first: int, last: int | None) -> None:
    """Each part says where to go on; together they are what was asked for, to the character."""
    shelf = Shelf(note=text)
    asked = "".join(line + "\n" for line in text.split("\n")).removesuffix("\n").split("\n")[first - 1 : last]
    wanted: dict[str, int] = {"first_line": first}
    whole = ""
    while True:
        limits = {"name": "note", "last_line": last}
        part = read_file(json.dumps(wanted | limits), shelf.notebook, lambda part: len(part.split("\n", 1)[1]) <= bound)
        if not part:
            break
        head, shown = part.split("\n", 1)
        whole += shown
        if "go on with " not in head:
            break
        places = head.split("go on with ")[1].rstrip("]").split(", ")
        wanted = {name: int(value) for name, value in (place.split("=") for place in places)}
    assert whole.removesuffix("\n") == "\n".join(asked).removesuffix("\n")


def test_a_part_ends_with_a_whole_line_if_it_holds_one() -> None:
    """Only a line that is longer than a result is cut."""
    shelf = Shelf(note="short\n" + "x" * 40_000 + "\nlast")
    first = ask(read_file, shelf, name="note")
    assert first == "[note, lines 1-1 of 3; go on with first_line=2]\nshort\n"
    second = ask(read_file, shelf, name="note", first_line=2)
    assert second.split("\n")[0] == f"[note, lines 2-2 of 3; go on with first_line=2, offset_chars={16_000}]"
    third = ask(read_file, shelf, name="note", first_line=2, offset_chars=32_000)
    assert third == "[note, lines 2-3 of 3]\n" + "x" * 8_000 + "\nlast"


# --- search


def test_lines_are_found_whatever_their_case() -> None:
    """Note, line number, line."""
    assert ask(search_contents, LINES, query="tWo") == "plan.md:2: two\ntodo.md:2: TWO pumps"
    assert ask(search_contents, LINES, query="öl") == "todo.md:1: Öl"


def test_a_query_is_no_expression() -> None:
    """It is searched for as it is written."""
    shelf = Shelf(note="a.c\nabc\n(")
    assert ask(search_contents, shelf, query="A.C") == "note:1: a.c"
    assert ask(search_contents, shelf, query="(") == "note:3: ("


def test_a_search_may_be_narrowed() -> None:
    """By the beginning of the names."""
    assert ask(search_contents, LINES, query="two", prefix="todo") == "todo.md:2: TWO pumps"
    assert ask(search_contents, LINES, query="two", prefix="x") == "No note under x has that text."
    assert ask(search_contents, LINES, query="six") == "No note has that text."


def test_a_search_says_what_it_leaves_out() -> None:
    """Five lines of a note, twenty notes; or as was asked."""
    shelf = Shelf(a="x\n" * 7, b="x", c="x")
    assert ask(search_contents, shelf, query="x", max_files=1) == (
        "a:1: x\na:2: x\na:3: x\na:4: x\na:5: x\n[2 more lines of a]\n"
        "[more notes have it; narrow them down with prefix]"
    )
    assert ask(search_contents, shelf, query="x", max_matches=1) == "a:1: x\n[6 more lines of a]\nb:1: x\nc:1: x"
    lines = ask(search_contents, Shelf(**{f"n{number:02}": "x" for number in range(21)}), query="x").split("\n")
    assert lines[19:] == ["n19:1: x", "[more notes have it; narrow them down with prefix]"]


def test_of_a_long_line_the_place_is_shown() -> None:
    """A hundred characters on either side."""
    shelf = Shelf(note="a" * 500 + "needle" + "b" * 500)
    assert ask(search_contents, shelf, query="NEEDLE") == f"note:1: …{'a' * 100}needle{'b' * 100}…"
    exact = "a" * 100 + "needle" + "b" * 100
    assert ask(search_contents, Shelf(note=exact), query="needle") == f"note:1: {exact}"


def test_a_note_that_went_meanwhile_is_passed_over() -> None:
    """Names and texts are not read at once."""
    notebook = Notebook(sizes=lambda: {"gone": 5}, text=lambda name: None, write=Shelf().write)
    assert search_contents('{"query": "x"}', notebook, lambda text: True) == "No note has that text."


# --- write


def test_a_note_is_written_and_written_over() -> None:
    """Its size is told, in bytes."""
    shelf = Shelf()
    assert write(shelf, name="plan.md", content="Öl\n") == "Written: plan.md has 4 bytes now."
    assert write(shelf, name="plan.md", content="") == "Written: plan.md has 0 bytes now."
    assert shelf.texts == {"plan.md": ""}


def test_a_note_is_added_to() -> None:
    """Nothing is put between what was there and what comes."""
    shelf = Shelf(log="one\n")
    assert write(shelf, append=True, name="log", content="two") == "Written: log has 7 bytes now."
    assert write(shelf, append=True, name="new", content="1") == "Written: new has 1 byte now."
    assert shelf.texts == {"log": "one\ntwo", "new": "1"}


def test_what_is_too_large_is_not_written() -> None:
    """Exactly the limit is allowed; above it the model reads the limit, and the note stays."""
    shelf = Shelf()
    assert "has 1,000,000 bytes" in write(shelf, name="note", content="x" * NOTE_BYTES)
    refused = write(shelf, append=True, name="note", content="y")
    assert refused == "Nothing was written: text must have at most 1,000,000 bytes; got '1000001 bytes'."
    assert shelf.texts["note"] == "x" * NOTE_BYTES


# --- as tools

COUNTER = counter_named("o200k_base")
CONTEXT = ToolContext(session_id="s", turn_id="t", call_id="c1", round=7)


def run(shelf: Shelf, tool: str, cap_tokens: int = 50_000, **arguments: Any) -> str:
    tools = notes_tools(shelf.notebook, Projection(COUNTER, cap_tokens))
    output = run_tool(tools, CallRequest(call_id="c1", name=tool, arguments=json.dumps(arguments)), CONTEXT)
    assert not output.is_error
    return output.text


def test_each_tool_does_what_its_name_says() -> None:
    """All five, by their declared names."""
    shelf = Shelf()
    assert run(shelf, "notes.write_file", name="a", content="one\n") == "Written: a has 4 bytes now."
    assert run(shelf, "notes.append_to_file", name="a", content="two\n") == "Written: a has 8 bytes now."
    assert run(shelf, "notes.list_files") == "a (8 bytes)"
    assert run(shelf, "notes.read_file", name="a", first_line=2) == "[a, lines 2-2 of 2]\ntwo\n"
    assert run(shelf, "notes.search_contents", query="TWO") == "a:2: two"


def test_a_write_is_named_by_its_turn_round_and_call() -> None:
    """Tools run at least once, and a model may number its calls anew in each round."""
    shelf = Shelf()
    run(shelf, "notes.write_file", name="a", content="x")
    assert shelf.keys == ["t/7/c1"]


@pytest.mark.parametrize("cap_tokens", [100, 1_000, 50_000])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("notes.read_file", {"name": "n000"}),
        ("notes.read_file", {"name": "line"}),
        ("notes.list_files", {"limit": 1_000}),
        ("notes.search_contents", {"query": "x", "max_files": 1_000, "max_matches": 1_000}),
    ],
)
def test_a_result_is_never_shortened_when_it_is_sent(name: str, arguments: dict[str, Any], cap_tokens: int) -> None:
    """It is cut to the cap of results, and says that there is more."""
    shelf = Shelf(**{f"n{number:03}": f"x 漢字 {number}\n" * 4_000 for number in range(150)}, line="漢🙂" * 100_000)
    text = run(shelf, name, cap_tokens, **arguments)
    assert not exceeds(Entry.tool_result("c1", text), cap_tokens, COUNTER)
    assert len(text) <= LARGEST_RESULT_CHARACTERS + 100
    assert "go on with first_line=" in text or "more" in text or (name, cap_tokens) == ("notes.list_files", 50_000)


def test_where_nothing_fits_the_least_is_returned() -> None:
    """One character of a note, and of a list how long it is: never nothing, and never without end."""
    shelf = Shelf(a="漢字", b="x")

    def ask_in_no_room(tool: Tool, **arguments: Any) -> str:
        return tool(json.dumps(arguments), shelf.notebook, lambda text: False)

    assert ask_in_no_room(read_file, name="a") == "[a, lines 1-1 of 1; go on with first_line=1, offset_chars=1]\n漢"
    assert ask_in_no_room(list_files) == "[2 more; narrow them down with prefix]"
    assert ask_in_no_room(search_contents, query="x") == "[1 more lines; search for something rarer]"


@pytest.mark.parametrize("error", [LeaseLost("s", "turn"), StoreUnavailable("gone")])
@pytest.mark.parametrize("name", ["notes.write_file", "notes.append_to_file"])
def test_a_lost_lease_is_no_result(name: str, error: Exception) -> None:
    """Another worker goes on, and its run of the call is the one that counts."""

    def fail(name: str, text: str, *, key: str, append: bool) -> int:
        raise error

    tools = notes_tools(Notebook(sizes=dict, text=lambda name: None, write=fail), Projection(COUNTER, 1_000))
    call = CallRequest(call_id="c1", name=name, arguments='{"name": "a", "content": "b"}')
    with pytest.raises(type(error)):
        run_tool(tools, call, CONTEXT, passing=(LeaseLost, StoreUnavailable))


@pytest.mark.parametrize("name", [declared.name for declared in NOTES_DECLARATIONS])
@pytest.mark.parametrize(
    "arguments",
    ["{", "[]", "null", "\x00", '{"name": 5}', '{"nam": "a"}', '{"name": "a", "content": "\\ud800"}', '{"limit": 0}',
     '{"first_line": 0}', '{"query": ""}', '{"name": "plan.md", "first_line": 3, "last_line": 2}', "9" * 5_000],
)  # fmt: skip
def test_bad_arguments_are_said(name: str, arguments: str) -> None:
    """A readable text, never an error; nothing is written."""
    shelf = Shelf(plan_md="one")
    tools = notes_tools(shelf.notebook, Projection(COUNTER, 1_000))
    output = run_tool(tools, CallRequest(call_id="c1", name=name, arguments=arguments), CONTEXT)
    assert output.text.startswith("Nothing was ")
    assert not output.is_error
    assert shelf.texts == {"plan.md": "one"}


arguments = st.text() | st.dictionaries(
    st.sampled_from(["name", "content", "query", "prefix", "limit", "first_line", "last_line", "x"]),
    st.none() | st.integers() | st.sampled_from(["plan.md", "..", "a"]) | st.text(max_size=5),
).map(json.dumps)


@given(st.sampled_from([declared.name for declared in NOTES_DECLARATIONS]), arguments)
def test_no_arguments_make_a_tool_fail(name: str, arguments: str) -> None:
    """Whatever the model writes."""
    tools = notes_tools(Shelf(plan_md="one").notebook, Projection(COUNTER, 1_000))
    assert not run_tool(tools, CallRequest(call_id="c1", name=name, arguments=arguments), CONTEXT).is_error


def test_declarations_agree_with_what_is_validated() -> None:
    """Fields, and which are required."""
    models: tuple[type[BaseModel], ...] = (ListFiles, ReadFile, SearchContents, WriteFile, WriteFile)
    for declared, model in zip(NOTES_DECLARATIONS, models, strict=True):
        schema = model.model_json_schema()
        assert list(declared.parameters["properties"]) == list(schema["properties"])
        assert declared.parameters["required"] == schema.get("required", [])


def test_declarations_are_short() -> None:
    """Each request carries them."""
    assert COUNTER.fixed("", NOTES_DECLARATIONS, {}) - COUNTER.fixed("", (), {}) <= 460
