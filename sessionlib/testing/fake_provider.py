"""The fake provider itself, without HTTP: what it answers, holds, refuses and remembers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sessionlib.errors import InvalidInput
from sessionlib.testing.answers import Answer, echo, record_of, recorded
from sessionlib.testing.calls import SUMMARIZER_MODEL, Call, Tokenizer
from sessionlib.testing.chat_api import ChatApi
from sessionlib.testing.failures import (
    HELD_KINDS,
    Failure,
    Failures,
    Fault,
    Gate,
    Kind,
    failing_kind,
    failure_named,
    held_kinds,
)
from sessionlib.testing.known_keys import fault_in_keys
from sessionlib.testing.messages_api import MessagesApi
from sessionlib.testing.observations import Observations
from sessionlib.testing.pace import broken, making_seconds, paced
from sessionlib.testing.prefix_cache import PrefixCache
from sessionlib.testing.responses_api import ResponsesApi
from sessionlib.testing.traits import Traits
from sessionlib.testing.wire import EVENT_STREAM, Event, Refused, Response, WireApi

__all__ = ["SUMMARIZER_MODEL", "FakeProvider", "Kind", "RequestCheck", "Traits"]

_ASKED_FOR = "a failure was asked for"
_GARBAGE = Response(200, b"<html><body>gateway", "text/html")

RequestCheck = Callable[[str, Any], str | None]
"""Takes an API's name and a request's body; says what is wrong with it, None if nothing is."""


class FakeProvider:
    """A model whose every trait is chosen. Safe for concurrent use; a held call occupies the thread that made it.

    *check* looks at each request beside what the server itself looks at: what it complains of is refused with 400.
    """

    def __init__(self, *, check: RequestCheck | None = None, **traits: Any) -> None:
        self.traits = Traits(**traits)
        self.observations = Observations()
        self.cache = PrefixCache()
        self.chat, self.messages, self.responses = ChatApi(), MessagesApi(), ResponsesApi()
        self._check = check
        self._lock = threading.Lock()
        self._gates = {kind: Gate() for kind in HELD_KINDS}
        self._failures = Failures()
        self._recordings: dict[str, dict[str, Any]] = {}

    def change(self, **traits: Any) -> None:
        """Change traits from now on. Raises InvalidInput."""
        known = [trait.name for trait in fields(Traits)]
        if unknown := traits.keys() - set(known):
            raise InvalidInput("settings", min(unknown), f"must be among {', '.join(known)}")
        with self._lock:
            self.traits = replace(self.traits, **traits)

    def hold(self, kind: str = Kind.ALL) -> None:
        """Keep calls of that kind open until `release`. They are counted before they are held."""
        for held in held_kinds(kind):
            self._gates[held].close()

    def release(self, kind: str = Kind.ALL) -> None:
        """Answer what is held, and hold no more of that kind; `all` means streams too, and what hangs."""
        for held in HELD_KINDS if kind == Kind.ALL else held_kinds(kind):
            self._gates[held].open()

    def fail(
        self,
        failure: int | str,
        count: int = 1,
        kind: str = Kind.ALL,
        *,
        retry_after_seconds: float | None = None,
        headers: Mapping[str, object] | None = None,
        trickle_seconds: float = 1.0,
    ) -> None:
        """Fail the next *count* calls of that kind: with a status and its headers, or with a `Fault`."""
        wish = {} if retry_after_seconds is None else {"Retry-After": f"{retry_after_seconds:g}"}
        named = {**wish, **{str(name): str(value) for name, value in (headers or {}).items()}}
        made = Failure(failure_named(failure), failing_kind(kind), named, float(trickle_seconds))
        self._failures.add(made, count)

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
        started = time.time()
        with self._lock:
            result = self._recordings.get(session, {}).get("results", {}).get(call_id)
        self.observations.served(session, "tool", call_id, started, time.time())
        return None if result is None else str(result)

    def report(self, sessions: Sequence[str] | None = None) -> dict[str, Any]:
        """What was seen, as JSON values.

        `sessions`, by id: `calls`; `asked_again` (idempotency keys asked more than once, and how often);
        `largest_request_tokens` and `fill`, its share of the window; `refused` (above the window); `prompt_tokens` of
        what was answered, `cached_tokens` and `written_tokens` among them; `break_count` and `breaks`: where a request
        did not extend the one before it, by both keys, the number of messages of each, and the index of the first
        message that changed (-1: model, tools or parameters did). Anthropic messages are compared block by block,
        responses with all that they continue.
        `consolidations`: key, `started` and `ended` in seconds since the epoch, tokens. They are asked outside every
        session, so they belong to none. `held`: calls that wait for `release` now, by kind.
        """
        report = self.observations.report(self.traits.window_tokens, sessions)
        return {**report, "held": {str(kind): gate.waiting for kind, gate in self._gates.items()}}

    def complete(self, api: WireApi, raw: bytes, *, session: str, key: str) -> Response:
        """Answer one call of *session* under the idempotency key *key*, as *api* has it."""
        started = time.time()
        try:
            body = json.loads(raw.decode())
            fault = fault_in_keys(api.name, body) or (self._check(api.name, body) if self._check else None)
            if fault:
                return api.error(400, fault, "invalid_request")
            asked = api.read(body)
        except Refused as refused:
            return api.error(refused.status, refused.message, refused.code)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return api.error(400, f"the request is not one of {api.name}", "invalid_json")
        call = Call(api, asked, session, key, started, Tokenizer(self.traits.token_ratio))
        if not call.is_summary:
            self.observations.received(session, key, asked.prompt, call.prompt_tokens)
        response = self._answered(call)
        if not call.is_under_way:
            self._ended(call)
        return response

    def dispose(self, handle: str) -> Response:
        """Answer a deletion of a held response."""
        failure = self._failures.next(Kind.DISPOSALS)
        if failure:
            return _failed(failure, self.responses, self._gates[Kind.ANSWERS])
        return self.responses.delete(handle)

    def trace(self, session: str) -> list[dict[str, Any]]:
        """When a session's calls came and were answered: `kind` (model, tool), `key` (the call id of a tool),
        `started`, `first_token` (of a stream; None otherwise) and `ended` in seconds since the epoch."""
        return self.observations.spans(session)

    def _answered(self, call: Call) -> Response:
        traits, gate = self.traits, self._gate_of(call)
        if call.prompt_tokens > traits.window_tokens:
            self.observations.refused(None if call.is_summary else call.session)
            return call.api.above(call.asked, traits.window_tokens, call.prompt_tokens)
        gate.pass_through()
        time.sleep(traits.summary_latency_seconds if call.is_summary else traits.latency_seconds)
        failure = self._failures.next(call.kind)
        if failure and not call.may_break(failure):
            return _failed(failure, call.api, gate)
        answer = self._answer(call)
        if answer is None:
            return call.api.error(400, f"the recording of this session has no answer for {call.key}", "not_recorded")
        spent = call.spent(answer, self.cache)
        if not call.is_summary:
            self.observations.answered(call.session, spent)
        return self._delivered(call, call.api.answer(call.asked, call.key, answer, spent), failure)

    def _delivered(self, call: Call, whole: Mapping[str, Any], failure: Failure | None) -> Response:
        """The answer on its way: at once, or in parts if it is a stream or does not come whole."""
        traits, error_event = self.traits, call.api.error_event(529, _ASKED_FOR)
        if call.is_streamed:
            content_type, events = EVENT_STREAM, call.api.events(call.asked, whole)
        else:
            time.sleep(making_seconds(call.completion_tokens, traits))
            response = Response.json(whole)
            if failure is None:
                return response
            content_type, events = response.content_type, iter([Event(response.body)])
        if failure:
            events = broken(list(events), failure, error_event, self._gate_of(call))
        call.is_under_way = True
        is_head_slow = failure is not None and failure.fault is Fault.TRICKLE_HEAD
        return Response(
            200,
            content_type=content_type,
            parts=self._parts(call, events, traits),
            trickle_seconds=failure.trickle_seconds if failure and is_head_slow else None,
        )

    def _parts(self, call: Call, events: Iterator[Event], traits: Traits) -> Iterator[bytes]:
        first: list[float] = []
        try:
            for event in paced(events, traits, self._gates[Kind.STREAMS], lambda: first.append(time.time())):
                yield event.data
        finally:
            self._ended(call, *first)

    def _ended(self, call: Call, first_token: float | None = None) -> None:
        """Note that a call was answered; or that it failed, unless it was a consolidation."""
        if not call.is_summary:
            self.observations.served(call.session, "model", call.key, call.started, time.time(), first_token)
        elif call.completion_tokens:
            spent = (call.prompt_tokens, call.completion_tokens)
            self.observations.consolidated(call.key, call.started, time.time(), *spent)

    def _gate_of(self, call: Call) -> Gate:
        return self._gates[call.kind]

    def _answer(self, call: Call) -> Answer | None:
        messages = call.asked.messages
        if call.is_summary:
            return record_of(messages, call.tokenizer.counter)
        with self._lock:
            if call.session not in self._recordings:
                return replace(echo(messages), reasoning=self.traits.reasoning)
            answer: Answer | None = self._recordings[call.session]["answers"].get(call.key)
            return answer


def _failed(failure: Failure, api: WireApi, gate: Gate) -> Response:
    """What comes instead of an answer."""
    if failure.fault is Fault.GARBAGE:
        return _GARBAGE
    if failure.fault is Fault.HANG:
        gate.wait()
    status = 529 if isinstance(failure.failure, Fault) else failure.failure
    return api.error(status, _ASKED_FOR, "scripted", failure.headers)
