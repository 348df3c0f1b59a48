"""Single requests to providers, and providers whose answer is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import httpx
from pydantic import SecretStr

from sessionlib.entries import Entry
from sessionlib.providers.contract import ModelRequest, ToolDeclaration

KEY = "sk-very-secret-key"
SINGLE = "team/single"
"""The session of single requests."""

LOOK = ToolDeclaration(name="history.look", description="Read a file.", parameters={"type": "object"})

Provider = TypeVar("Provider")


def request_of(*entries: Entry, **fields: Any) -> ModelRequest:
    """A request with one tool."""
    defaults: dict[str, Any] = {
        "model": "m-1",
        "instructions": "Be kind.",
        "tools": (LOOK,),
        "parameters": {},
        "session_id": SINGLE,
        "turn_id": "t1",
        "step": "model:0",
        "timeout_seconds": 30.0,
    }
    return ModelRequest(entries=entries or (Entry.user("Hello"),), **{**defaults, **fields})


def answering(kind: Callable[..., Provider], status: int = 200, **content: Any) -> tuple[Provider, list[httpx.Request]]:
    """A provider that gets one answer for all it asks, and what it asked."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, **content)

    transport = httpx.MockTransport(handler)
    provider = kind("http://model.test/", SecretStr(KEY), build_client=lambda: httpx.Client(transport=transport))
    return provider, seen
