"""What the fake provider server saw: calls by key, sizes, and where a request did not extend the one before it."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SESSIONS = 20_000
"""Sessions that are remembered; the least recently active one is forgotten first."""

KEYS = 20_000
"""Idempotency keys that are counted per session, the newest ones."""

BREAKS = 1_000
"""Breaks that are listed per session, the newest ones; all are counted."""

CONSOLIDATIONS = 20_000
"""Consolidations that are listed, the newest ones; all are counted."""

SPANS = 50_000
"""Model calls and tool results whose times are remembered per session, the newest ones."""

CACHE_MARKERS = frozenset({"cache_control", "prompt_cache_key"})
"""Keys that mark what a provider shall cache: they are no part of the prompt."""

_BESIDE = frozenset({"messages", "stream", "stream_options"})
"""Fields of a request that are not in a prompt's head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a call cost, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    """Those of the completion that are reasoning."""
    cached_tokens: int = 0
    written_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as it is compared: one digest a message, and one for all that comes before them."""

    head: bytes
    messages: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Prompt:
        serialised = [_serialised(message) for message in body.get("messages", [])]
        head = _serialised({key: value for key, value in body.items() if key not in _BESIDE})
        return cls(_digest(head), tuple(map(_digest, serialised)))

    def first_difference(self, before: Prompt) -> int | None:
        """The first message of *before* that is not here; -1 if what precedes the messages differs; None if all are."""
        if self.head != before.head:
            return -1
        for position, digest in enumerate(before.messages):
            if position >= len(self.messages) or self.messages[position] != digest:
                return position
        return None


@dataclass(slots=True)
class _Seen:
    """One session. Guarded by the lock of Observations."""

    calls: int = 0
    refused: int = 0
    largest_request_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    keys: OrderedDict[str, int] = field(default_factory=OrderedDict)
    prompt: Prompt | None = None
    key: str = ""
    break_count: int = 0
    breaks: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=BREAKS))
    spans: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SPANS))

    def receive(self, key: str, prompt: Prompt, tokens: int) -> None:
        self.calls += 1
        self.largest_request_tokens = max(self.largest_request_tokens, tokens)
        self.keys[key] = self.keys.pop(key, 0) + 1
        if len(self.keys) > KEYS:
            self.keys.popitem(last=False)
        before, self.prompt = self.prompt, prompt
        if before is not None:
            self._compare(key, before, prompt)
        self.key = key

    def _compare(self, key: str, before: Prompt, prompt: Prompt) -> None:
        difference = prompt.first_difference(before)
        if difference is None:
            return
        self.break_count += 1
        self.breaks.append(
            {
                "key": key,
                "previous_key": self.key,
                "first_difference": difference,
                "previous_messages": len(before.messages),
                "messages": len(prompt.messages),
                "time": time.time(),
            }
        )

    def report(self, window_tokens: int) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "asked_again": {key: count for key, count in self.keys.items() if count > 1},
            "largest_request_tokens": self.largest_request_tokens,
            "fill": self.largest_request_tokens / window_tokens,
            "refused": self.refused,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "written_tokens": self.written_tokens,
            "break_count": self.break_count,
            "breaks": list(self.breaks),
        }


class Observations:
    """All sessions' observations. Safe for concurrent use; bounded in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, _Seen] = OrderedDict()
        self._consolidations: deque[dict[str, Any]] = deque(maxlen=CONSOLIDATIONS)
        self._consolidation_count = 0
        self._refused_consolidations = 0

    def received(self, session: str, key: str, prompt: Prompt, tokens: int) -> None:
        """Note a request."""
        with self._lock:
            self._seen(session).receive(key, prompt, tokens)

    def answered(self, session: str, spent: Spent) -> None:
        """Note what an answer cost."""
        with self._lock:
            seen = self._seen(session)
            seen.prompt_tokens += spent.prompt_tokens
            seen.cached_tokens += spent.cached_tokens
            seen.written_tokens += spent.written_tokens

    def refused(self, session: str | None) -> None:
        """Note that a request of a session, or a consolidation (None), was above the window."""
        with self._lock:
            if session is None:
                self._refused_consolidations += 1
            else:
                self._seen(session).refused += 1

    def consolidated(self, key: str, started: float, ended: float, prompt_tokens: int, completion_tokens: int) -> None:
        """Note a consolidation, its times in seconds since the epoch."""
        with self._lock:
            self._consolidation_count += 1
            self._consolidations.append(
                {
                    "key": key,
                    "started": started,
                    "ended": ended,
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": completion_tokens,
                }
            )

    def served(
        self, session: str, kind: str, key: str, started: float, ended: float, first_token: float | None = None
    ) -> None:
        """Note that a call was answered (or failed), its times in seconds since the epoch."""
        span = {"kind": kind, "key": key, "started": started, "first_token": first_token, "ended": ended}
        with self._lock:
            self._seen(session).spans.append(span)

    def spans(self, session: str) -> list[dict[str, Any]]:
        """The times of a session's calls, in the order of their ends."""
        with self._lock:
            return list(self._sessions[session].spans) if session in self._sessions else []

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._sessions.clear()
            self._consolidations.clear()
            self._consolidation_count = self._refused_consolidations = 0

    def report(self, window_tokens: int, sessions: Sequence[str] | None = None) -> dict[str, Any]:
        """All of it as JSON values, or that of *sessions*."""
        with self._lock:
            reported = {name: seen.report(window_tokens) for name, seen in self._chosen(sessions)}
            return {
                "window_tokens": window_tokens,
                "sessions": reported,
                "consolidation_count": self._consolidation_count,
                "refused_consolidations": self._refused_consolidations,
                "consolidations": list(self._consolidations),
            }

    def _chosen(self, sessions: Sequence[str] | None) -> Iterator[tuple[str, _Seen]]:
        for name, seen in self._sessions.items():
            if sessions is None or name in sessions:
                yield name, seen

    def _seen(self, session: str) -> _Seen:
        seen = self._sessions.setdefault(session, _Seen())
        self._sessions.move_to_end(session)
        if len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return seen


def _serialised(value: Any) -> str:
    return json.dumps(_unmarked(value), ensure_ascii=False, separators=(",", ":"))


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(inner) for key, inner in value.items() if key not in CACHE_MARKERS}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
