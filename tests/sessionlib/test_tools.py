"""Tools: declared from functions, run without ever raising."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from sessionlib.attachments import media_from_url
from sessionlib.errors import InvalidInput
from sessionlib.media import Media
from sessionlib.providers.contract import CallRequest
from sessionlib.tools.declaration import Tool, ToolContext, ToolResult, as_text, run_tool

SHOT, PLAN = media_from_url("https://example.org/shot.png"), media_from_url("https://example.org/plan.pdf")
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


def shown(value: object) -> tuple[str, tuple[Media, ...], bool]:
    """What the model gets of a tool that returns *value*: text, media, and whether that is an error."""

    def show() -> object:
        return value

    output = run_tool({"show": Tool.from_function(show)}, CallRequest(call_id="c", name="show", arguments=""), CONTEXT)
    return output.text, output.media, output.is_error


@pytest.mark.parametrize(
    ("value", "text", "media"),
    [
        (SHOT, "", (SHOT,)),
        ([SHOT, PLAN], "", (SHOT, PLAN)),
        ((SHOT,), "", (SHOT,)),
        (["before", SHOT, "after", PLAN], "before\nafter", (SHOT, PLAN)),
        (ToolResult("both", (SHOT, PLAN)), "both", (SHOT, PLAN)),
        ([], "[]", ()),
        (["a", "b"], '["a", "b"]', ()),
    ],
    ids=["alone", "list", "tuple", "among texts", "tool result", "empty list", "texts only"],
)
def test_a_tool_shows_media(value: object, text: str, media: tuple[Media, ...]) -> None:
    """Alone, several, or with texts; a list without any is JSON as ever."""
    assert shown(value) == (text, media, False)


@pytest.mark.parametrize(
    "value",
    [[SHOT, 1], {"shot": SHOT}, [[SHOT]], {"all": [{"shot": SHOT}]}, [ToolResult("x", (SHOT,))]],
    ids=["beside a number", "in a mapping", "in a list of a list", "deep inside", "in a result in a list"],
)
def test_media_elsewhere_in_a_result_are_an_error(value: object) -> None:
    """As JSON their bytes would be text, and fill the window."""
    text, media, is_error = shown(value)
    assert (media, is_error) == ((), True)
    assert "must hold images and files in a ToolResult" in text
    assert len(text) < 200
