"""An API behind a base URL: its client, its key, and one call after the other, with errors translated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Shape
from sessionlib.providers.http import ProcessClient, delete, plain_client, post, refusal, require_base_url

DISPOSAL_SECONDS = 30.0
"""How long letting go of a provider session may take: it is done in the background, and tried again."""

_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "permission_error": 403,
        "not_found_error": 404,
        "rate_limit_error": 429,
        "rate_limit_exceeded": 429,
        "overloaded_error": 529,
        "invalid_prompt": 400,
        "bio_policy": 400,
        "misalignment_policy_violation": 400,
        "data_residency_mismatch": 400,
    }
)
"""HTTP statuses of errors that an answer of status 200 names by word (both vendors' API references, errors)."""


def bearer(key: str) -> dict[str, str]:
    """The key as OpenAI-compatible APIs take it."""
    return {"Authorization": f"Bearer {key}"}


class Api:
    """Calls to one API. Safe for concurrent use; shows its key nowhere.

    *key_headers* makes headers of the key; *headers* go out with each call.
    """

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | None,
        build_client: Callable[[], httpx.Client],
        *,
        key_headers: Callable[[str], Mapping[str, str]] = bearer,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.base_url = require_base_url(base_url)
        self._api_key = api_key
        self._client = ProcessClient(build_client)
        self._key_headers, self._headers = key_headers, headers

    def ask(self, path: str, request: ModelRequest, body: bytes) -> Any:
        """The JSON that answers *body*.

        Raises ProviderUnavailable, ProviderRejected, WindowOverflow and HandleForgotten.
        """
        sent = (*self._secrets(), request.instructions, *(entry.text for entry in request.entries))

        def is_sent(text: str) -> bool:
            return any(text in part for part in sent)

        identity = {
            "Content-Type": "application/json",
            "Idempotency-Key": quote(request.idempotency_key, safe="/:@._-"),
            "X-Session-Id": quote(request.session_id, safe="/:@._-"),
        }
        answer = post(
            self._client.get(),
            f"{self.base_url}/{path}",
            body=body,
            headers={**self._all_headers(), **identity},
            timeout_seconds=request.timeout_seconds,
            is_sent=is_sent,
        )
        if isinstance(answer, dict) and answer.get("error"):  # some answer 200 with an error inside
            raise refusal(_error_status(answer["error"]), answer, {}, is_sent)
        return answer

    def delete(self, path: str) -> None:
        """Delete what is at *path*; it is fine if nothing is there. Raises ProviderUnavailable and ProviderRejected."""

        def is_secret(text: str) -> bool:
            return any(text in part for part in self._secrets())

        delete(
            self._client.get(),
            f"{self.base_url}/{path}",
            headers=self._all_headers(),
            timeout_seconds=DISPOSAL_SECONDS,
            is_sent=is_secret,
        )

    def close(self) -> None:
        """Close this process's connections; a later call opens new ones."""
        self._client.close()

    def _secrets(self) -> tuple[str, ...]:
        return () if self._api_key is None else (self._api_key.get_secret_value(),)

    def _all_headers(self) -> dict[str, str]:
        keys = self._key_headers(self._api_key.get_secret_value()) if self._api_key else {}
        return {**self._headers, **keys}


class ApiProvider(ABC):
    """A Provider behind one path of an API. Safe for concurrent use; shows its key nowhere.

    Subclasses say how a request is written and an answer is read; stateless, unless they say otherwise.
    """

    shape: Shape = Shape.STATELESS
    path: ClassVar[str]
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Sent with each call."""

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | None = None,
        *,
        build_client: Callable[[], httpx.Client] = plain_client,
    ) -> None:
        self._api = Api(base_url, api_key, build_client, key_headers=self.key_headers, headers=self.headers)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._api.base_url!r})"

    @staticmethod
    def key_headers(key: str) -> Mapping[str, str]:
        """The key as headers: as OpenAI-compatible APIs take it."""
        return bearer(key)

    @abstractmethod
    def body(self, request: ModelRequest) -> bytes:
        """What is sent for *request*, byte for byte. Raises ProviderRejected."""

    @abstractmethod
    def parsed(self, answer: Any, idempotency_key: str) -> ModelReply:
        """What was answered. Raises ProviderRejected and ProviderUnavailable."""

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Answer *request* with one plain response.

        Raises ProviderUnavailable, ProviderRejected, WindowOverflow and, where the provider holds it, HandleForgotten.
        """
        reply = self.parsed(self._api.ask(self.path, request, self.body(request)), request.idempotency_key)
        if on_delta and reply.text:
            on_delta(reply.text)
        return reply

    def dispose(self, handle: str) -> None:
        """Nothing is held, so nothing is let go."""
        del handle

    def close(self) -> None:
        """Close this process's connections; a later call opens new ones."""
        self._api.close()


def _error_status(error: Any) -> int:
    """The HTTP status that an error inside an answer stands for; 502 if it names none."""
    named = [error.get(name) for name in ("code", "type")] if isinstance(error, dict) else []
    for value in named:
        if isinstance(value, int) and 400 <= value < 600:
            return value
        if isinstance(value, str) and value in _STATUSES:
            return _STATUSES[value]
    return 502
