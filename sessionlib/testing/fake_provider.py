"""The fake provider itself, without HTTP: what it answers, holds, refuses and remembers."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from sessionlib.counters import counter_named
from sessionlib.errors import InvalidInput
from sessionlib.testing.answers import Answer, echo, record_of, recorded
from sessionlib.testing.chat_api import ChatApi
from sessionlib.testing.messages_api import MessagesApi
from sessionlib.testing.observations import Observations
from sessionlib.testing.responses_api import ResponsesApi
from sessionlib.testing.wire import Asked, Refused, Response, Spent, WireApi

SUMMARIZER_MODEL = "summarizer"
"""The model whose requests are consolidations."""


class Kind(StrEnum):
    """Which calls a hold or a failure is for. `all` means answers and summaries; a disposal cannot be held."""

    ALL = "all"
    ANSWERS = "answers"
    SUMMARIES = "summaries"
    DISPOSALS = "disposals"

    def covers(self, kind: Kind) -> bool:
        return self is kind or (self is Kind.ALL and kind in _HELD_KINDS)


_HELD_KINDS = (Kind.ANSWERS, Kind.SUMMARIES)

_BROKEN = {
    "garbage": Response(200, b"<html><body>gateway", "text/html"),
    "truncated": Response(200, b'{"id":"fake","object":"chat.completion","choices":[{"mess'),
}
"""What comes instead of an answer."""


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


RequestCheck = Callable[[str, Any], str | None]
"""Takes an API's name and a request's body; says what is wrong with it, None if nothing is."""


class FakeProvider:
    """A model whose every trait is chosen. Safe for concurrent use; a held call occupies the thread that made it.

    *check* looks at each request beside what the server itself looks at: what it complains of is refused with 400.
    """

    def __init__(self, *, check: RequestCheck | None = None, **traits: Any) -> None:
        self.traits = Traits(**traits)
        self.observations = Observations()
        self.chat, self.messages, self.responses = ChatApi(), MessagesApi(), ResponsesApi()
        self._check = check
        self._counter = counter_named("o200k_base")
        self._lock = threading.Lock()
        self._gates = {kind: _Gate() for kind in _HELD_KINDS}
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
        for gate in self._gates_of(kind):
            gate.close()

    def release(self, kind: str = Kind.ALL) -> None:
        """Answer what is held, and hold no more of that kind."""
        for gate in self._gates_of(kind):
            gate.open()

    def fail(
        self, failure: int | str, count: int = 1, kind: str = Kind.ALL, retry_after_seconds: float | None = None
    ) -> None:
        """Fail the next *count* calls of that kind: with a status, with `garbage` (half a page of HTML), or with an
        answer that is `truncated`."""
        if failure not in _BROKEN and not (isinstance(failure, int) and 400 <= failure < 600):
            raise InvalidInput("failure", failure, f"must be a status from 400 to 599, or of {', '.join(_BROKEN)}")
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
        index of the first message that changed (-1: model, tools or parameters did). Anthropic messages are compared
        block by block, responses with all that they continue.
        `consolidations`: key, `started` and `ended` in seconds since the epoch, tokens. They are asked outside every
        session, so they belong to none. `held`: calls that wait for `release` now, by kind.
        """
        report = self.observations.report(self.traits.window_tokens, sessions)
        return {**report, "held": {str(kind): gate.waiting for kind, gate in self._gates.items()}}

    def complete(self, api: WireApi, raw: bytes, *, session: str, key: str) -> Response:
        """Answer one call of *session* under the idempotency key *key*, as *api* has it."""
        started = time.time()
        try:
            text = raw.decode()
            body = json.loads(text)
            if fault := self._check(api.name, body) if self._check else None:
                return api.error(400, fault, "invalid_request")
            asked = api.read(body, text)
        except Refused as refused:
            return api.error(refused.status, refused.message, refused.code)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return api.error(400, f"the request is not one of {api.name}", "invalid_json")
        call = _Call(api, body, asked, key, self._counter.text(asked.text))
        if body["model"] == SUMMARIZER_MODEL:
            return self._consolidation(call)
        with self._timed(session, "model", key, started):
            return self._conversation(call, session)

    def dispose(self, handle: str) -> Response:
        """Answer a deletion of a held response."""
        failure = self._next_failure(Kind.DISPOSALS)
        return _failed(failure, self.responses) if failure else self.responses.delete(handle)

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

    def _conversation(self, call: _Call, session: str) -> Response:
        asked, prompt_tokens = call.asked, call.prompt_tokens
        shared_fraction = self.observations.received(session, call.key, asked.prompt, prompt_tokens)
        if prompt_tokens > self.traits.window_tokens:
            self.observations.refused(session)
            return call.api.above(self.traits.window_tokens, prompt_tokens)
        if failed := self._delayed(Kind.ANSWERS, call.api):
            return failed
        answer = self._answer(session, call.key, asked.messages)
        if answer is None:
            return call.api.error(400, f"the recording of this session has no answer for {call.key}", "not_recorded")
        return call.answered(answer, self._tokens(answer), int(prompt_tokens * shared_fraction))

    def _consolidation(self, call: _Call) -> Response:
        started = time.time()
        if call.prompt_tokens > self.traits.window_tokens:
            self.observations.refused(None)
            return call.api.above(self.traits.window_tokens, call.prompt_tokens)
        if failed := self._delayed(Kind.SUMMARIES, call.api):
            return failed
        answer = record_of(call.asked.messages, self._counter)
        completion_tokens = self._tokens(answer)
        self.observations.consolidated(call.key, started, time.time(), call.prompt_tokens, completion_tokens)
        return call.answered(answer, completion_tokens)

    def _delayed(self, kind: Kind, api: WireApi) -> Response | None:
        """Let the call take its time, held or slow; the failure that it then ends in, if one was asked for."""
        self._gates[kind].pass_through()
        traits = self.traits
        time.sleep(traits.summary_latency_seconds if kind is Kind.SUMMARIES else traits.latency_seconds)
        failure = self._next_failure(kind)
        return _failed(failure, api) if failure else None

    def _gates_of(self, kind: str) -> list[_Gate]:
        gates = [gate for held, gate in self._gates.items() if _kind(kind).covers(held)]
        if not gates:
            raise InvalidInput("kind", kind, "must be one of calls that can be held")
        return gates

    def _tokens(self, answer: Answer) -> int:
        return self._counter.text(json.dumps(answer.message(), ensure_ascii=False))

    def _next_failure(self, kind: Kind) -> _Failure | None:
        with self._lock:
            for failure in self._failures:
                if failure.kind.covers(kind):
                    self._failures.remove(failure)
                    return failure
        return None

    def _answer(self, session: str, key: str, messages: Sequence[Mapping[str, Any]]) -> Answer | None:
        with self._lock:
            if session not in self._recordings:
                return echo(messages)
            answer: Answer | None = self._recordings[session]["answers"].get(key)
            return answer


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that is as it should be, and its size in tokens."""

    api: WireApi
    body: Mapping[str, Any]
    asked: Asked
    key: str
    prompt_tokens: int

    def answered(self, answer: Answer, completion_tokens: int, cached_tokens: int = 0) -> Response:
        spent = Spent(
            prompt_tokens=self.prompt_tokens, completion_tokens=completion_tokens, cached_tokens=cached_tokens
        )
        return self.api.answer(self.body, self.key, answer, spent)


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


def _failed(failure: _Failure, api: WireApi) -> Response:
    if isinstance(failure.failure, str):
        return _BROKEN[failure.failure]
    seconds = failure.retry_after_seconds
    headers = {} if seconds is None else {"Retry-After": f"{seconds:g}"}
    return api.error(failure.failure, "a failure was asked for", "scripted", headers)


def _kind(value: str) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise InvalidInput("kind", value, f"must be one of {', '.join(Kind)}") from None
