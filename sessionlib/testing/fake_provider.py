"""The fake provider itself, without HTTP: what it answers, holds, refuses and remembers."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from sessionlib.counters import counter_named
from sessionlib.errors import InvalidInput
from sessionlib.testing.answers import Answer, echo, fault_in, record_of, recorded
from sessionlib.testing.observations import Observations, Prompt

SUMMARIZER_MODEL = "summarizer"
"""The model whose requests are consolidations."""


class Kind(StrEnum):
    """Which calls a hold or a failure is for."""

    ALL = "all"
    ANSWERS = "answers"
    SUMMARIES = "summaries"

    def covers(self, *, is_summary: bool) -> bool:
        return self is Kind.ALL or (self is Kind.SUMMARIES) == is_summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How the server behaves. Raises InvalidInput for nonsense."""

    window_tokens: int = 128_000
    latency_seconds: float = 0.0
    summary_latency_seconds: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.window_tokens, bool) or not isinstance(self.window_tokens, int) or self.window_tokens < 1:
            raise InvalidInput("window_tokens", self.window_tokens, "must be at least 1")
        for name in ("latency_seconds", "summary_latency_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise InvalidInput(name, value, "must be seconds, 0 or more")


@dataclass(frozen=True, slots=True)
class _Failure:
    failure: int | str
    kind: Kind
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        return cls(status, json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), headers=headers)

    @classmethod
    def error(cls, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        error = {"message": message, "type": "invalid_request_error" if status < 500 else "server_error", "code": code}
        return cls.json({"error": error}, status, headers)


class FakeProvider:
    """A model whose every trait is chosen. Safe for concurrent use; a held call occupies the thread that made it."""

    def __init__(self, **traits: Any) -> None:
        self.traits = Traits(**traits)
        self.observations = Observations()
        self._counter = counter_named("o200k_base")
        self._lock = threading.Lock()
        self._gates = {is_summary: _Gate() for is_summary in (False, True)}
        self._failures: deque[_Failure] = deque()
        self._recordings: dict[str, dict[str, Any]] = {}

    def change(self, **traits: Any) -> None:
        """Change traits from now on. Raises InvalidInput."""
        known = [field.name for field in fields(Traits)]
        if unknown := traits.keys() - set(known):
            raise InvalidInput("settings", min(unknown), f"must be among {', '.join(known)}")
        with self._lock:
            self.traits = replace(self.traits, **traits)

    def hold(self, kind: str = Kind.ALL) -> None:
        """Keep calls of that kind open until `release`. They are counted before they are held."""
        for is_summary, gate in self._gates.items():
            if _kind(kind).covers(is_summary=is_summary):
                gate.close()

    def release(self, kind: str = Kind.ALL) -> None:
        """Answer what is held, and hold no more of that kind."""
        for is_summary, gate in self._gates.items():
            if _kind(kind).covers(is_summary=is_summary):
                gate.open()

    def fail(
        self, failure: int | str, count: int = 1, kind: str = Kind.ALL, retry_after_seconds: float | None = None
    ) -> None:
        """Fail the next *count* calls of that kind: with a status, or with `garbage` (half a page of HTML)."""
        if failure != "garbage" and not (isinstance(failure, int) and 400 <= failure < 600):
            raise InvalidInput("failure", failure, 'must be "garbage" or a status from 400 to 599')
        if not isinstance(count, int) or not 0 <= count <= 100_000:
            raise InvalidInput("count", count, "must be 0 to 100,000")
        with self._lock:
            self._failures.extend([_Failure(failure, _kind(kind), retry_after_seconds)] * count)

    def record(self, session: str, recording: Mapping[str, Any]) -> None:
        """Answer *session* from `{"answers": {key: reply}, "results": {call_id: text}}`; adds to what is recorded."""
        if unknown := recording.keys() - {"answers", "results"}:
            raise InvalidInput("recording", min(unknown), "must be answers or results")
        answers = {key: recorded(reply) for key, reply in recording.get("answers", {}).items()}
        with self._lock:
            kept = self._recordings.setdefault(session, {"answers": {}, "results": {}})
            kept["answers"].update(answers)
            kept["results"].update(recording.get("results", {}))

    def forget_recording(self, session: str) -> None:
        with self._lock:
            self._recordings.pop(session, None)

    def recorded_result(self, session: str, call_id: str) -> str | None:
        """The recorded result of a tool call, if there is one."""
        with self._timed(session, "tool", call_id, time.time()), self._lock:
            result = self._recordings.get(session, {}).get("results", {}).get(call_id)
        return None if result is None else str(result)

    def report(self, sessions: Sequence[str] | None = None) -> dict[str, Any]:
        """What was seen, as JSON values.

        `sessions`, by id: `calls`; `asked_again` (idempotency keys asked more than once, and how often);
        `largest_request_tokens` and `fill`, its share of the window; `refused` (above the window); `break_count` and
        `breaks`: requests that did not extend the one before, with both keys, the time, and `first_difference`, the
        index of the first message that changed (-1: model, tools or parameters did).
        `consolidations`: key, `started` and `ended` in seconds since the epoch, tokens. They are asked outside every
        session, so they belong to none. `held`: calls that wait for `release` now, by kind.
        """
        report = self.observations.report(self.traits.window_tokens, sessions)
        held = {kind: self._gates[kind is Kind.SUMMARIES].waiting for kind in (Kind.ANSWERS, Kind.SUMMARIES)}
        return {**report, "held": {str(kind): count for kind, count in held.items()}}

    def complete(self, raw: bytes, *, session: str, key: str) -> Response:
        """Answer one chat-completions call of *session* under the idempotency key *key*."""
        started = time.time()
        try:
            text = raw.decode()
            body = json.loads(text)
            fault = fault_in(body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Response.error(400, "the request is not a chat completion", "invalid_json")
        if fault:
            return Response.error(400, fault, "invalid_request")
        prompt_tokens = self._counter.text(text)
        if body["model"] == SUMMARIZER_MODEL:
            return self._consolidation(body, key, prompt_tokens)
        with self._timed(session, "model", key, started):
            return self._conversation(body, session, key, prompt_tokens)

    def trace(self, session: str) -> list[dict[str, Any]]:
        """When a session's calls came and were answered: `kind` (model, tool), `key` (the call id of a tool),
        `started` and `ended` in seconds since the epoch."""
        return self.observations.spans(session)

    @contextmanager
    def _timed(self, session: str, kind: str, key: str, started: float) -> Iterator[None]:
        try:
            yield
        finally:
            self.observations.served(session, kind, key, started, time.time())

    def _conversation(self, body: Mapping[str, Any], session: str, key: str, prompt_tokens: int) -> Response:
        shared_fraction = self.observations.received(session, key, Prompt.of(body), prompt_tokens)
        if prompt_tokens > self.traits.window_tokens:
            self.observations.refused(session)
            return _above(self.traits.window_tokens, prompt_tokens)
        if failed := self._delayed(is_summary=False):
            return failed
        answer = self._answer(session, key, body["messages"])
        if answer is None:
            return Response.error(400, f"the recording of this session has no answer for {key}", "not_recorded")
        cached_tokens = int(prompt_tokens * shared_fraction)
        return _completion(body["model"], key, answer, prompt_tokens, self._tokens(answer), cached_tokens)

    def _consolidation(self, body: Mapping[str, Any], key: str, prompt_tokens: int) -> Response:
        started = time.time()
        if prompt_tokens > self.traits.window_tokens:
            self.observations.refused(None)
            return _above(self.traits.window_tokens, prompt_tokens)
        if failed := self._delayed(is_summary=True):
            return failed
        answer = record_of(body["messages"], self._counter)
        completion_tokens = self._tokens(answer)
        self.observations.consolidated(key, started, time.time(), prompt_tokens, completion_tokens)
        return _completion(body["model"], key, answer, prompt_tokens, completion_tokens)

    def _delayed(self, *, is_summary: bool) -> Response | None:
        """Let the call take its time, held or slow; the failure that it then ends in, if one was asked for."""
        self._gates[is_summary].pass_through()
        traits = self.traits
        time.sleep(traits.summary_latency_seconds if is_summary else traits.latency_seconds)
        failure = self._next_failure(is_summary=is_summary)
        return _failed(failure) if failure else None

    def _tokens(self, answer: Answer) -> int:
        return self._counter.text(json.dumps(answer.message(), ensure_ascii=False))

    def _next_failure(self, *, is_summary: bool) -> _Failure | None:
        with self._lock:
            for failure in self._failures:
                if failure.kind.covers(is_summary=is_summary):
                    self._failures.remove(failure)
                    return failure
        return None

    def _answer(self, session: str, key: str, messages: Sequence[Mapping[str, Any]]) -> Answer | None:
        with self._lock:
            if session not in self._recordings:
                return echo(messages)
            answer: Answer | None = self._recordings[session]["answers"].get(key)
            return answer


class _Gate:
    """Lets calls pass, or holds them; knows how many it holds."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_open = True
        self.waiting = 0

    def close(self) -> None:
        with self._condition:
            self._is_open = False

    def open(self) -> None:
        with self._condition:
            self._is_open = True
            self._condition.notify_all()

    def pass_through(self) -> None:
        with self._condition:
            self.waiting += 1
            self._condition.wait_for(lambda: self._is_open)
            self.waiting -= 1


def _completion(
    model: str, key: str, answer: Answer, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0
) -> Response:
    choice = {"index": 0, "message": answer.message(), "finish_reason": "tool_calls" if answer.calls else "stop"}
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    completion = {"id": f"fake-{quote(key)}", "object": "chat.completion", "created": int(time.time()), "model": model}
    return Response.json({**completion, "choices": [choice], "usage": usage})


def _above(window_tokens: int, prompt_tokens: int) -> Response:
    message = f"This model's maximum context length is {window_tokens} tokens. Your request has {prompt_tokens} tokens."
    return Response.error(400, message, "context_length_exceeded")


def _failed(failure: _Failure) -> Response:
    if failure.failure == "garbage":
        return Response(200, b"<html><body>gateway", "text/html")
    seconds = failure.retry_after_seconds
    headers = {} if seconds is None else {"Retry-After": f"{seconds:g}"}
    return Response.error(int(failure.failure), "a failure was asked for", "scripted", headers)


def _kind(value: str) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise InvalidInput("kind", value, f"must be one of {', '.join(Kind)}") from None
