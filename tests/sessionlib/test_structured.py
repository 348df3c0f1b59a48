"""Answers in a chosen form: what asks each API for it, as the official clients would."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, ConfigDict, Field

from sessionlib.agent import Agent
from sessionlib.errors import AnswerUnreadable, InvalidInput
from sessionlib.structured import Api, answer_format, parsed_answer
from tests.sessionlib.asking import request_of
from tests.sessionlib.test_wire_items import sent


class Place(BaseModel):
    """Where it is."""

    title: str
    properties: list[str] = []


class Report(BaseModel):
    """All fields that forms have trouble with."""

    model_config = ConfigDict(extra="forbid")

    verdict: Literal["good", "bad"]
    place: Place = Field(description="the place", default_factory=lambda: Place(title="here"))
    others: list[Place] = []
    note: str | None = None


SCHEMAS: dict[str, list[str]] = {
    "chat_completions": ["response_format", "json_schema", "schema"],
    "responses": ["text", "format", "schema"],
    "anthropic": ["output_config", "format", "schema"],
}
WIRE = {"chat_completions": "chat_completions", "responses": "responses", "anthropic": "messages"}


@pytest.mark.parametrize("api", SCHEMAS)
def test_each_api_is_asked_in_its_own_words(api: Api) -> None:
    """With one schema, as parameters of an agent that go out unchanged."""
    parameters: Any = answer_format(Report, api)
    assert Agent(name="a", parameters=parameters).parameters == parameters
    sent(WIRE[api], *request_of().entries, parameters=parameters)
    for name in SCHEMAS[api]:
        parameters = parameters[name]
    assert parameters["required"] == ["verdict", "place", "others", "note"]
    assert parameters["$defs"]["Place"]["required"] == ["title", "properties"]
    assert parameters["$defs"]["Place"]["additionalProperties"] is False
    assert parameters["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert "default" not in str(parameters)


def test_the_official_client_asks_for_the_same_fields() -> None:
    """Its own strict schema requires the same, and forbids the same."""
    ours: Any = answer_format(Report, "responses")["text"]["format"]["schema"]
    theirs = to_strict_json_schema(Report)
    assert ours["required"] == theirs["required"]
    assert ours["additionalProperties"] == theirs["additionalProperties"]
    assert ours["$defs"]["Place"]["required"] == theirs["$defs"]["Place"]["required"]


def test_an_unknown_api_is_refused() -> None:
    """The known ones are named."""
    with pytest.raises(InvalidInput, match="chat_completions, responses or anthropic"):
        answer_format(Report, "cohere")  # type: ignore[arg-type]


def test_faults_name_fields_and_nothing_else() -> None:
    """Fields by their own names; what the model has named itself does not show."""
    text = '{"verdict": "secret", "place": {"title": 3}, "others": [{"title": "a", "properties": [1]}], "secret": 1}'
    with pytest.raises(AnswerUnreadable) as caught:
        parsed_answer(text, Report, "t1")
    assert str(caught.value) == (
        "the model's answer to turn t1 is no Report: verdict: literal error; place.title: string type; "
        "others.0.properties.0: string type; …: extra forbidden"
    )
