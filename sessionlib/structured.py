"""Answers in a form that the caller chose: what asks each API for it, and what is made of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from sessionlib.errors import AnswerUnreadable, InvalidInput

Parsed = TypeVar("Parsed", bound=BaseModel)

Api = Literal["chat_completions", "responses", "anthropic"]

UNNAMED_PART = "…"
"""Stands for a place in an answer that the model has named itself: a key of a mapping, or a field that there is not."""


_BY_NAME = frozenset({"properties", "$defs"})
"""Keywords whose value holds schemas by names of the caller's choice."""

_DROPPED = frozenset({"default", "title"})


def answer_format(model: type[BaseModel], api: Api) -> dict[str, Any]:
    """Parameters of an agent that ask *api* for answers that fit *model*, for `Agent.parameters`.

    All fields are asked for, those with a default too, and no others, as the vendors' strict form wants it; mappings
    with keys of the model's choice cannot be asked for. Raises InvalidInput for an unknown API.
    """
    schema = _strict(model.model_json_schema())
    named = {"type": "json_schema", "name": model.__name__[:64], "schema": schema, "strict": True}
    match api:
        case "chat_completions":
            inner = {name: value for name, value in named.items() if name != "type"}
            return {"response_format": {"type": "json_schema", "json_schema": inner}}
        case "responses":
            return {"text": {"format": named}}
        case "anthropic":
            return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
        case _:
            raise InvalidInput("api", api, "must be chat_completions, responses or anthropic")


def parsed_answer(text: str, model: type[Parsed], turn_id: str) -> Parsed:
    """An answer as *model*. Raises AnswerUnreadable, which names fields and the kind of fault, and quotes nothing."""
    try:
        return model.model_validate_json(text)
    except ValidationError as exc:
        faults = exc.errors(include_url=False, include_context=False, include_input=False)
    names = frozenset(_field_names(model.model_json_schema()))
    lines = [f"{_place(fault['loc'], names)}: {fault['type'].replace('_', ' ')}" for fault in faults]
    raise AnswerUnreadable(turn_id, model.__name__, "; ".join(lines))


def _strict(schema: Any) -> Any:
    """*schema* with closed objects whose fields are all required, as strict modes want it (OpenAI API guide, structured
    outputs; Anthropic API guide, structured outputs). A reference stands alone there; defaults are not taken."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    made = {
        name: {inner: _strict(value) for inner, value in part.items()} if name in _BY_NAME else _strict(part)
        for name, part in schema.items()
        if name not in _DROPPED
    }
    if schema.get("type") == "object" and "properties" in schema:
        made |= {"required": list(schema["properties"]), "additionalProperties": False}
    return made


def _field_names(schema: Any) -> Iterator[str]:
    """Names of all fields in a schema, at any depth."""
    if isinstance(schema, list):
        for item in schema:
            yield from _field_names(item)
    elif isinstance(schema, Mapping):
        yield from schema.get("properties", ())
        for part in schema.values():
            yield from _field_names(part)


def _place(location: tuple[int | str, ...], names: frozenset[str]) -> str:
    parts = (str(part) if isinstance(part, int) or part in names else UNNAMED_PART for part in location)
    return ".".join(parts) or "answer"
