"""The model-backed summarizer: one tool-free call, outside every session."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from sessionlib.entries import Entry
from sessionlib.errors import Cancelled, ProviderError, ProviderRejected
from sessionlib.providers.contract import ModelReply, ModelRequest, Provider
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest
from sessionlib.summaries.prompts import compose

CONSOLIDATION_SESSION = "consolidation"
"""The session id under which consolidations are asked: they belong to no session of the provider's."""


class ModelSummarizer:
    """Asks *model* of *provider* for each record. Stateless; safe for concurrent use."""

    def __init__(
        self,
        provider: Provider,
        model: str,
        parameters: Mapping[str, Any],
        window_tokens: int,
        timeout_seconds: float,
    ) -> None:
        self._provider, self._model, self._parameters = provider, model, dict(parameters)
        self._timeout_seconds = timeout_seconds
        self.window_tokens = window_tokens

    def consolidate(self, request: ConsolidationRequest, cancelled: Callable[[], bool]) -> Consolidated:
        """Ask once. A reply that calls tools, or says nothing, is the blank text: it says nothing about the material.

        Raises ProviderError, and Cancelled if that was known before the call.
        """
        if cancelled():
            raise Cancelled(f"consolidation of entries {request.first_seq}-{request.last_seq}")
        reply = self._asked(request)
        usage = reply.usage
        return Consolidated(
            text="" if reply.calls else reply.text.strip(),
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            model=self._model,
        )

    def _asked(self, request: ConsolidationRequest) -> ModelReply:
        prompt = compose(request)
        reply: ModelReply | None = self._provider.complete(
            ModelRequest(
                model=self._model,
                instructions=prompt.instructions,
                tools=(),
                parameters=self._parameters,
                entries=(Entry.user(prompt.document),),
                session_id=CONSOLIDATION_SESSION,
                # No session to name: what is asked is named by its content, so that asking again has the same key.
                turn_id=hashlib.sha256(f"{prompt.instructions}\0{prompt.document}".encode()).hexdigest()[:32],
                step=f"consolidation:{request.first_seq}-{request.last_seq}",
                timeout_seconds=self._timeout_seconds,
            )
        )
        if reply is None:
            raise ProviderRejected(f"the provider returned None for a consolidation at tier {request.tier}")
        if reply.handle is not None:
            # One call, one provider session. One that stays behind harms nobody (DESIGN 4).
            with contextlib.suppress(ProviderError):
                self._provider.dispose(reply.handle)
        return reply
