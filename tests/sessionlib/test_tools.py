"""Tools: declared from functions, run without ever raising; the private history tool."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput
from sessionlib.projection import Projection, exceeds
from sessionlib.providers.contract import CallRequest
from sessionlib.tools.declaration import Tool, ToolContext, as_text, run_tool
from sessionlib.tools.history import HISTORY_DECLARATIONS, LARGEST_LIMIT_CHARS, ReadItem, history_tools, read_item

CONTEXT = ToolContext(session_id="s", turn_id="t", call_id="c")


class Unit(StrEnum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Place(BaseModel):
    name: str
    latitude: float = 0.0


def weather(place: Place, unit: Unit = Unit.CELSIUS, days: Annotated[int, Field(ge=1, le=7)] = 1) -> dict[str, Any]:
    """Say what the weather will be.

    In a few words.
    """
    return {"place": place.name, "unit": unit, "days": days}


def run(tool: Tool, arguments: str) -> tuple[str, bool]:
    call = CallRequest(call_id="c", name=tool.declaration.name, arguments=arguments)
    output = run_tool({tool.declaration.name: tool}, call, CONTEXT)
    return output.text, output.is_error


def test_a_function_is_declared_by_its_signature() -> None:
    """Name, docstring and a schema that refuses what the function does not take."""
    declared = Tool.from_function(weather).declaration
    assert declared.name == "weather"
    assert declared.description == "Say what the weather will be.\n\nIn a few words."
    assert declared.parameters["type"] == "object"
    assert declared.parameters["required"] == ["place"]
    assert declared.parameters["additionalProperties"] is False
    assert list(declared.parameters["properties"]) == ["place", "unit", "days"]
    assert declared.parameters["properties"]["days"] == {"default": 1, "maximum": 7, "minimum": 1, "type": "integer"}


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    """No arguments, blank arguments and {} are the same."""

    def now() -> str:
        return "noon"

    for arguments in ("", "  ", "{}"):
        assert run(Tool.from_function(now), arguments) == ("noon", False)


def test_the_context_is_filled_in_and_not_declared() -> None:
    """A tool that must not act twice gets its idempotency key; the model does not see the parameter."""

    def pay(amount: int, context: ToolContext) -> str:
        return f"{amount} for {context.turn_id}/{context.call_id}"

    tool = Tool.from_function(pay)
    assert list(tool.declaration.parameters["properties"]) == ["amount"]
    assert run(tool, '{"amount": 5}') == ("5 for t/c", False)


def test_arguments_arrive_as_their_types() -> None:
    """Models, enums and defaults are made before the function is called."""
    text, is_error = run(Tool.from_function(weather), '{"place": {"name": "Bonn"}, "unit": "kelvin"}')
    assert (json.loads(text), is_error) == ({"place": "Bonn", "unit": "kelvin", "days": 1}, False)


@pytest.mark.parametrize(
    "name", ["json", "copy", "schema", "model_config", "model_fields", "_private", "field_0", "self"]
)
def test_a_parameter_may_have_any_name(name: str) -> None:
    """Names that mean something to pydantic are names like any other."""
    scope: dict[str, Any] = {}
    exec(f"def tool({name}: str = 'd') -> str:\n    return {name}", scope)
    tool = Tool.from_function(scope["tool"])
    assert list(tool.declaration.parameters["properties"]) == [name]
    assert run(tool, json.dumps({name: "given"})) == ("given", False)
    assert run(tool, "") == ("d", False)


@pytest.mark.parametrize(
    "arguments",
    ["{", "not json", "[]", "null", '"text"', '{"place": 5}', "{}", '{"place": {"name": "x"}, "days": 99}',
     '{"place": {"name": "x"}, "extra": 1}', '{"place": {"name": "x"}, "days": "NaN"}', "\x00"],
)  # fmt: skip
def test_arguments_that_do_not_fit_come_back_as_an_error(arguments: str) -> None:
    """The model reads which field is wrong, and may try again; nothing was run."""
    text, is_error = run(Tool.from_function(weather), arguments)
    assert is_error
    assert text.startswith("InvalidInput: arguments must fit the schema of weather")


def test_what_a_tool_raises_is_the_models_to_read() -> None:
    """Any exception becomes an error result."""

    def fail() -> str:
        raise FileNotFoundError("no such file: notes.txt")

    assert run(Tool.from_function(fail), "{}") == ("FileNotFoundError: no such file: notes.txt", True)


def test_a_result_that_is_no_json_is_an_error() -> None:
    """A tool that returns an open file, say."""

    def handle() -> object:
        return object()

    assert run(Tool.from_function(handle), "{}")[1]


def test_a_missing_tool_is_named() -> None:
    """The model learns that there is no such tool."""
    output = run_tool({}, CallRequest(call_id="c", name="deploy", arguments="{}"), CONTEXT)
    assert (output.text, output.is_error) == ("InvalidInput: there is no tool 'deploy'", True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        (5, "5"),
        (["ä", None], '["ä", null]'),
        ({"u": Unit.KELVIN}, '{"u": "kelvin"}'),
        (Place(name="Bonn"), '{"name": "Bonn", "latitude": 0.0}'),
    ],
)
def test_results_as_text(value: object, text: str) -> None:
    """Strings as they are, nothing as nothing, the rest as JSON."""
    assert as_text(value) == text


async def coroutine(place: str) -> str:
    return place


def unannotated(place) -> str:  # type: ignore[no-untyped-def]
    return str(place)


def many(*places: str) -> str:
    return ""


def open_ended(**places: str) -> str:
    return ""


def positional(place: str, /) -> str:
    return place


@pytest.mark.parametrize("function", [coroutine, unannotated, many, open_ended, positional])
def test_functions_that_cannot_be_declared_are_refused(function: Any) -> None:
    """At definition, naming the function, not when the model first calls it."""
    with pytest.raises(InvalidInput, match=function.__name__):
        Tool.from_function(function)


# --- history.read_item

STORED = {
    3: Entry.user("word for word"),
    4: Entry.tool_call("c", '{"q": 1}', "search"),
    5: Entry.tool_result("c", "0123456789" * 2_000, "search"),
    6: Entry.assistant(""),
}


def read(**arguments: Any) -> str:
    return read_item(json.dumps(arguments), STORED.get, lambda text: True)


def test_an_item_is_read_word_for_word() -> None:
    """Under a line that says what it is."""
    assert read(item=3) == "[entry 3, user, characters 0-13 of 13]\nword for word"
    assert read(item=4) == '[entry 4, tool call search, characters 0-8 of 8]\n{"q": 1}'
    assert read(item=6) == "[entry 6, assistant, characters 0-0 of 0]\n"


def test_a_long_item_is_read_in_parts() -> None:
    """Each part says where to go on; together they are the item."""
    whole, offset = "", 0
    while True:
        head, part = read(item=5, offset_chars=offset, limit_chars=3_333).split("\n", 1)
        whole += part
        if "go on with offset_chars=" not in head:
            break
        offset = int(head.split("offset_chars=")[1].rstrip("]"))
    assert whole == STORED[5].text


def test_a_part_is_never_longer_than_the_bound() -> None:
    """However much is asked for."""
    assert len(read(item=5, limit_chars=10**9).split("\n", 1)[1]) == LARGEST_LIMIT_CHARS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "item: Field required"),
        ("{", "Invalid JSON"),
        ('{"item": 0}', "greater than or equal to 1"),
        ('{"item": 3, "offset_chars": -1}', "offset_chars"),
        ('{"item": 3, "limit_chars": 0}', "limit_chars"),
        ('{"item": 3, "window": 1}', "window"),
        ('{"item": 99}', "no entry 99"),
        ('{"item": 3, "offset_chars": 13}', "ends at character 13"),
    ],
)
def test_what_cannot_be_read_is_said(arguments: str, words: str) -> None:
    """A readable text, never an exception."""
    text = read_item(arguments, STORED.get, lambda text: True)
    assert text.startswith("Nothing was read: ")
    assert words in text


@given(st.text() | st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)).map(json.dumps))
def test_no_arguments_make_it_raise(arguments: str) -> None:
    """Whatever the model writes."""
    assert read_item(arguments, STORED.get, lambda text: True)


@pytest.mark.parametrize("cap_tokens", [100, 1_000, 50_000])
def test_a_reading_is_never_shortened_when_it_is_sent(cap_tokens: int) -> None:
    """It is cut to what the result cap holds, so that no reading needs another reading."""
    counter = counter_named("o200k_base")
    tool = history_tools(STORED.get, Projection(counter, cap_tokens))["history.read_item"]
    text, is_error = run(tool, '{"item": 5, "limit_chars": 16000}')
    assert not is_error
    assert not exceeds(Entry.tool_result("c", text), cap_tokens, counter)
    assert STORED[5].text.startswith(text.split("\n", 1)[1])


def test_the_declaration_agrees_with_what_is_validated() -> None:
    """Fields, defaults and what is required."""
    (declared,) = HISTORY_DECLARATIONS
    schema = ReadItem.model_json_schema()
    assert list(declared.parameters["properties"]) == list(schema["properties"])
    assert declared.parameters["required"] == schema["required"]
    for name, field in declared.parameters["properties"].items():
        assert field.get("default") == schema["properties"][name].get("default")
