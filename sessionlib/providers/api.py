"""An API behind a base URL: its client, its key, and one call after the other, with errors translated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from sessionlib.entries import Entry, encodable
from sessionlib.errors import InvalidInput
from sessionlib.providers.access import UNSHOWN, require_base_url, require_key
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Shape
from sessionlib.providers.http import (
    SILENCE_SECONDS,
    Assemble,
    ProcessClient,
    delete,
    get,
    plain_client,
    post,
)
from sessionlib.providers.refusals import error_status, refusal
from sessionlib.providers.streams import with_fields
from sessionlib.window_facts import reported_window

FACTS_SECONDS = 10.0
"""How long a question about a model may take; nobody waits for it but `sessionctl providers check`."""

DISPOSAL_SECONDS = 30.0
"""How long letting go of a provider session may take: it is done in the background, and tried again."""

_FIRST_HALVES = ("\ud800", "\udbff")
"""First to last of what begins a character that JSON wrote as two."""


def bearer(key: str) -> dict[str, str]:
    """The key as OpenAI-compatible APIs take it."""
    return {"Authorization": f"Bearer {key}"}


class Api:
    """Calls to one API. Safe for concurrent use; shows its key nowhere.

    *key_headers* makes headers of the key; *headers* go out with each call. Raises InvalidInput for a URL that requests
    cannot be sent to, and for a key that no header can hold.
    """

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | None,
        build_client: Callable[[], httpx.Client],
        *,
        key_headers: Callable[[str], Mapping[str, str]] = bearer,
        headers: Mapping[str, str] = MappingProxyType({}),
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.base_url = _require_reachable(require_base_url(base_url))
        require_key("api_key", UNSHOWN, api_key.get_secret_value() if api_key else "")
        self._api_key = api_key
        self._client = ProcessClient(build_client)
        self._key_headers, self._headers = key_headers, headers
        self._silence_seconds = silence_seconds

    def ask(self, path: str, request: ModelRequest, body: bytes, assemble: Assemble | None = None) -> Any:
        """The JSON that answers *body*; what *assemble* makes of it, if it comes as a stream of events.

        Raises ProviderUnavailable, ProviderRejected, WindowOverflow and HandleForgotten.
        """
        is_sent = self._is_sent(request.instructions, *(text for entry in request.entries for text in _texts(entry)))
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
            assemble=assemble,
            silence_seconds=self._silence_seconds if assemble else math.inf,
        )
        if isinstance(answer, dict) and answer.get("error"):  # some answer 200 with an error inside
            raise refusal(error_status(answer["error"]), answer, {}, is_sent)
        return answer

    def delete(self, path: str) -> None:
        """Delete what is at *path*; it is fine if nothing is there. Raises ProviderUnavailable and ProviderRejected."""
        delete(
            self._client.get(),
            f"{self.base_url}/{path}",
            headers=self._all_headers(),
            timeout_seconds=DISPOSAL_SECONDS,
            is_sent=self._is_sent(),
        )

    def get(self, path: str) -> Any:
        """The JSON at *path*; None if nothing is there. Raises ProviderUnavailable and ProviderRejected."""
        return get(
            self._client.get(),
            f"{self.base_url}/{path}",
            headers=self._all_headers(),
            timeout_seconds=FACTS_SECONDS,
            is_sent=self._is_sent(),
        )

    def close(self) -> None:
        """Close this process's connections; a later call opens new ones."""
        self._client.close()

    def _is_sent(self, *texts: str) -> Callable[[str], bool]:
        """Tells whether a text is part of *texts* or of the key, or holds the key."""
        keys = (self._api_key.get_secret_value(),) if self._api_key else ()

        def is_sent(text: str) -> bool:
            return any(text in part for part in (*keys, *texts)) or any(key in text for key in keys)

        return is_sent

    def _all_headers(self) -> dict[str, str]:
        keys = self._key_headers(self._api_key.get_secret_value()) if self._api_key else {}
        return {**self._headers, **keys}


def _require_reachable(base_url: str) -> str:
    """*base_url*, if httpx takes it for a URL, too. Raises InvalidInput."""
    try:
        httpx.URL(base_url)
    except httpx.InvalidURL:
        raise InvalidInput("base_url", UNSHOWN, "must be a URL") from None
    return base_url


def _texts(entry: Entry) -> Iterator[str]:
    """All that is sent of an entry."""
    yield entry.text
    for media in entry.media:
        yield from (media.data, media.url, media.name)


class ApiProvider(ABC):
    """A Provider behind one path of an API. Safe for concurrent use; shows its key nowhere.

    Subclasses say how a request is written and an answer is read; stateless, unless they say otherwise.
    """

    shape: Shape = Shape.STATELESS
    path: ClassVar[str]
    models_path: ClassVar[str] = "models"
    """Where the API tells of its models, one by one and all together."""
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Sent with each call."""
    streaming: ClassVar[Mapping[str, Any]]
    """Fields that ask for an answer in events."""

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | None = None,
        *,
        build_client: Callable[[], httpx.Client] = plain_client,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._api = Api(
            base_url,
            api_key,
            build_client,
            key_headers=self.key_headers,
            headers=self.headers,
            silence_seconds=silence_seconds,
        )

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

    @abstractmethod
    def assembled(self, events: Iterable[Any], on_delta: OnDelta) -> Any:
        """The plain answer that a stream's events come to, its text passed on piece by piece.

        Raises ProviderRejected and ProviderUnavailable.
        """

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Answer *request*, in events if there is somebody to pass its text on to: both are read in the same way.

        Raises ProviderUnavailable, ProviderRejected, WindowOverflow and, where the provider holds it, HandleForgotten.
        """
        if on_delta is None:
            return self.parsed(self._api.ask(self.path, request, self.body(request)), request.idempotency_key)
        passed_on = _PassedOn(on_delta)
        body = with_fields(self.body(request), self.streaming)
        answer = self._api.ask(self.path, request, body, lambda events: self.assembled(events, passed_on))
        reply = self.parsed(answer, request.idempotency_key)
        if reply.text and not passed_on.is_begun:  # from a server that does not stream, or does not say why it refused
            on_delta(reply.text)
        return reply

    def reported_window(self, model: str) -> int | None:
        """What the models endpoint says that a request may hold, in tokens; None if it says nothing.

        Raises ProviderUnavailable and ProviderRejected.
        """
        found = self._api.get(f"{self.models_path}/{quote(model, safe='/')}") if model else None
        if found is None:  # many compatible servers only list their models
            listed = self._api.get(self.models_path)
            models = listed.get("data") if isinstance(listed, dict) else None
            named = [one for one in models or () if isinstance(one, dict) and (not model or one.get("id") == model)]
            found = named[0] if len(named) == 1 else None
        return reported_window(found)

    def dispose(self, handle: str, until: str = "") -> None:
        """Nothing is held, so nothing is let go."""
        del handle, until

    def close(self) -> None:
        """Close this process's connections; a later call opens new ones."""
        self._api.close()


class _PassedOn:
    """Passes pieces of text on, and knows whether there were any. A character that is cut in two waits for its end."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._half = ""
        self.is_begun = False

    def __call__(self, text: str) -> None:
        self.is_begun = True
        text = self._half + text
        self._half = text[-1] if _FIRST_HALVES[0] <= text[-1] <= _FIRST_HALVES[1] else ""
        if whole := text.removesuffix(self._half):
            self._on_delta(encodable(whole))
