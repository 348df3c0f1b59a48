"""What the fake server says of its models: any name is one, and all of them are alike."""

from __future__ import annotations

from typing import Any

from sessionlib.testing.traits import Traits
from sessionlib.testing.wire import Response

MODEL = "fake"
"""The one that is listed."""

MESSAGES_FIELD = "max_input_tokens"
"""Where Anthropic's endpoint reports a window. OpenAI's reports none; those of compatible servers do, each its own way
(`Traits.reported_window_field`)."""

_BORN = "2026-01-01T00:00:00Z"
_BORN_SECONDS = 1_767_225_600


def models_response(name: str, traits: Traits, *, is_messages: bool) -> Response:
    """What is said of the model *name*, or the list if that is "": as Anthropic does, or as OpenAI does."""
    model = _messages_model if is_messages else _model
    if name:
        return Response.json(model(name, traits))
    listed = [model(MODEL, traits)]
    page = {"has_more": False, "first_id": MODEL, "last_id": MODEL} if is_messages else {"object": "list"}
    return Response.json({"data": listed, **page})


def _model(name: str, traits: Traits) -> dict[str, Any]:
    model = {"id": name, "object": "model", "created": _BORN_SECONDS, "owned_by": "fake"}
    return {**model, **_reported(traits.reported_window_field, traits)}


def _messages_model(name: str, traits: Traits) -> dict[str, Any]:
    model = {"id": name, "type": "model", "display_name": name, "created_at": _BORN, "lifecycle": "active"}
    return {**model, **_reported(MESSAGES_FIELD, traits)}


def _reported(field: str, traits: Traits) -> dict[str, int]:
    return {field: traits.reported_window_tokens} if traits.reported_window_tokens else {}
