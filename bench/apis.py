"""The provider APIs, each spoken with the fake server."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessionlib.providers.anthropic import Anthropic
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.responses import Responses
from sessionlib.testing.server import FakeProviderServer

APIS: Mapping[str, Callable[[FakeProviderServer], ApiProvider]] = {
    "chat_completions": lambda server: ChatCompletions(server.base_url),
    "anthropic": lambda server: Anthropic(server.url),
    "responses": lambda server: Responses(server.base_url),
}
