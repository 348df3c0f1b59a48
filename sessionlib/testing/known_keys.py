"""What a request of each API may have at its top: a key that is not there is refused, as the real APIs do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

SOURCES: Mapping[str, str] = MappingProxyType({"openai": "3.57.0", "anthropic": "2.14.0"})
"""The official Python clients, by version, whose request types the keys are taken from."""

SOURCES_DATE = "2026-11"
"""When that was done last."""

_CHAT = """
audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages metadata
modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options
prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store stream
stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options
"""

_MESSAGES = """
cache_control container diagnostics inference_geo max_tokens messages metadata model output_config service_tier speed
stop_sequences stream system thinking tool_choice tools user_profile_id workspace_id
"""

_RESPONSES = """
access_programs background background_options context_management conversation image include input instructions
max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt
prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream
stream_options temperature text tool_choice tools top_logprobs top_p truncation user
"""

KNOWN_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "chat_completions": frozenset(_CHAT.split()),
        "messages": frozenset(_MESSAGES.split()),
        "responses": frozenset(_RESPONSES.split()),
    }
)
"""By API: plain requests and those for a stream together."""

_REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        "chat_completions": "Unrecognized request argument supplied: {}",
        "messages": "{}: Extra inputs are not permitted",
        "responses": "Unknown parameter: '{}'.",
    }
)
"""In each vendor's words."""


def fault_in_keys(api: str, body: Any) -> str | None:
    """Why a request of *api* is refused for a key of its; None if it has none that is unknown, or is no object."""
    unknown = body.keys() - KNOWN_KEYS[api] if isinstance(body, dict) else ()
    return _REFUSALS[api].format(min(unknown)) if unknown else None
