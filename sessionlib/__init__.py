"""Keeps an LLM agent's session alive past its context window.

from sessionlib import Agent, Session
from sessionlib.providers.scripted import ScriptedProvider

with Session(Agent(name="coder"), {"default": ScriptedProvider()}) as session:
    print(session.send("hello").text)

What is listed here is loaded when it is first used: `import sessionlib` alone loads nothing else. For fleets of workers
there is `workers.client`.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessionlib.agent import Agent, Journal
    from sessionlib.attachments import media_from_bytes, media_from_url
    from sessionlib.catalog import Catalog, load_catalog
    from sessionlib.entries import Entry, EntryKind
    from sessionlib.errors import SessionError
    from sessionlib.events import Reply
    from sessionlib.media import Media
    from sessionlib.policies.log_merge import LogMerge
    from sessionlib.policies.slots import Slots
    from sessionlib.policies.tiers import Tiers
    from sessionlib.policies.work_room import WorkRoom
    from sessionlib.providers.anthropic import Anthropic
    from sessionlib.providers.chat_completions import ChatCompletions
    from sessionlib.providers.contract import Provider
    from sessionlib.providers.responses import Responses
    from sessionlib.session import Session
    from sessionlib.structured import answer_format
    from sessionlib.tools.declaration import Tool, ToolContext, ToolResult
    from sessionlib.workloads import Choice, ConsolidationWorkload, SummaryWorkload

__all__ = [
    "Agent",
    "Anthropic",
    "Catalog",
    "ChatCompletions",
    "Choice",
    "ConsolidationWorkload",
    "Entry",
    "EntryKind",
    "Journal",
    "LogMerge",
    "Media",
    "Provider",
    "Reply",
    "Responses",
    "Session",
    "SessionError",
    "Slots",
    "SummaryWorkload",
    "Tiers",
    "Tool",
    "ToolContext",
    "ToolResult",
    "WorkRoom",
    "answer_format",
    "load_catalog",
    "media_from_bytes",
    "media_from_url",
]

# A host application that does not configure logging is not spoken to on its standard error (logging HOWTO).
logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "Agent": "agent",
    "Anthropic": "providers.anthropic",
    "Catalog": "catalog",
    "ChatCompletions": "providers.chat_completions",
    "Choice": "workloads",
    "ConsolidationWorkload": "workloads",
    "Entry": "entries",
    "EntryKind": "entries",
    "Journal": "agent",
    "LogMerge": "policies.log_merge",
    "Media": "media",
    "Provider": "providers.contract",
    "Reply": "events",
    "Responses": "providers.responses",
    "Session": "session",
    "SessionError": "errors",
    "Slots": "policies.slots",
    "SummaryWorkload": "workloads",
    "Tiers": "policies.tiers",
    "Tool": "tools.declaration",
    "ToolContext": "tools.declaration",
    "ToolResult": "tools.declaration",
    "WorkRoom": "policies.work_room",
    "answer_format": "structured",
    "load_catalog": "catalog",
    "media_from_bytes": "attachments",
    "media_from_url": "attachments",
}
"""The module of each name: plain imports here would make every part of the engine load all others."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
