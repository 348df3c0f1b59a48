"""A provider without a model: answers from a function or a recording, with the manners of real ones.

For tests, demos and trying things out. As a held provider it gives a **new** handle with each answer; the handle
before it stays valid until it is disposed or forgotten, so a call that is made again after a crash finds what it began
on. What it holds can be compared with a session's layout.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import HandleForgotten, ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Shape
from sessionlib.tokens import CharactersCounter, Counter, Usage

AnswerFunction = Callable[[ModelRequest], ModelReply | str]
UsageReport = Callable[[int, Usage], Usage | None]
"""Takes the number of the answered call (1 = the first) and its true usage; returns what is reported."""


def echo(request: ModelRequest) -> str:
    """Acknowledge the newest user message or tool result."""
    kinds = (EntryKind.USER, EntryKind.TOOL_RESULT)
    newest = next((entry.text for entry in reversed(request.entries) if entry.kind in kinds), "")
    return f"Acknowledged: {newest}"


def honest(call_number: int, usage: Usage) -> Usage:
    """Report what was counted, with each answer."""
    del call_number
    return usage


def late(silent_calls: int) -> UsageReport:
    """Report nothing for the first *silent_calls* answers."""
    return lambda call_number, usage: usage if call_number > silent_calls else None


def unsplit(call_number: int, usage: Usage) -> Usage:
    """Report one total, as providers do that do not tell prompt, answer and cache apart."""
    del call_number
    return Usage(prompt_tokens=usage.prompt_tokens + usage.completion_tokens)


def whole(text: str) -> Iterable[str]:
    """Stream an answer in one piece."""
    return (text,) if text else ()


def words(text: str) -> Iterable[str]:
    """Stream an answer word by word, as models do more or less."""
    return re.findall(r"\s*\S+|\s+$", text)


@dataclass(frozen=True, slots=True)
class Answered:
    """A call that was answered: nothing is kept of one that failed."""

    request: ModelRequest
    reply: ModelReply


class ScriptedProvider:
    """A Provider whose every trait is chosen. Safe for concurrent use.

    *answer*: a function, or a recording that is dealt out call by call; a call made again under the same idempotency
    key gets the same piece of it. *failures*: errors to raise before anything is answered, one a call (None lets a call
    pass), or a function that decides. *latency_seconds* passes in *sleep*. A streamed answer is cut by *pieces*, which
    may raise on its way, and *piece_seconds* pass before each. Above *window_tokens* by *counter* a request is refused
    with WindowOverflow. *efforts*: the reasoning efforts that it takes, as a parameter `effort`.
    """

    def __init__(
        self,
        answer: AnswerFunction | Iterable[ModelReply | str] = echo,
        *,
        shape: Shape = Shape.STATELESS,
        latency_seconds: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
        pieces: Callable[[str], Iterable[str]] = whole,
        piece_seconds: float = 0.0,
        usage: UsageReport = honest,
        failures: Iterable[Exception | None] | Callable[[ModelRequest], Exception | None] = (),
        disposal_failures: int = 0,
        window_tokens: int | None = None,
        counter: Counter | None = None,
        efforts: Iterable[str] = ("low", "medium", "high"),
    ) -> None:
        self.shape = shape
        self.efforts = {effort: {"effort": effort} for effort in efforts}
        self._answer = answer if callable(answer) else _Recording(answer)
        self._failure = failures if callable(failures) else _Queue(failures)
        self._latency_seconds, self._sleep = latency_seconds, sleep
        self._pieces, self._piece_seconds = pieces, piece_seconds
        self._usage = usage
        self._disposal_failures = disposal_failures
        self._window_tokens = window_tokens
        self._counter: Counter = counter or CharactersCounter()
        self._lock = threading.Lock()
        self._requests: list[ModelRequest] = []
        self._answered: list[Answered] = []
        self._held: dict[str, tuple[Entry, ...]] = {}
        self._parents: dict[str, str] = {}
        """By handle: the one that it continues."""
        self._disposed: list[str] = []
        self._handle_count = 0

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Answer *request*. Raises the scripted failures, WindowOverflow and HandleForgotten."""
        with self._lock:
            self._requests.append(request)
        if self._latency_seconds:
            self._sleep(self._latency_seconds)
        if failure := self._failure(request):
            raise failure
        conversation = self._conversation(request)
        prompt_tokens = self._admitted(request, conversation)
        answer = self._answer(request)
        reply = answer if isinstance(answer, ModelReply) else ModelReply(text=answer)
        if on_delta:
            self._stream(reply.text, on_delta)
        return self._recorded(request, conversation, prompt_tokens, reply)

    def dispose(self, handle: str, until: str = "") -> None:
        """Let go of *handle* and what it continues, oldest first; twice is fine.

        Raises ProviderUnavailable for the first *disposal_failures* calls.
        """
        with self._lock:
            if self._disposal_failures > 0:
                self._disposal_failures -= 1
                raise ProviderUnavailable("the scripted provider refuses to dispose")
            chain: list[str] = []
            while handle in self._held and handle != until:
                chain.append(handle)
                handle = self._parents.get(handle, "")
            for link in reversed(chain):
                del self._held[link]
                self._disposed.append(link)

    def forget(self, handle: str | None = None) -> None:
        """Lose one handle, or all of them, without anybody having asked."""
        with self._lock:
            lost = list(self._held) if handle is None else [handle]
            for name in lost:
                self._held.pop(name, None)

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """Every request that was made, answered or not, in order."""
        with self._lock:
            return tuple(self._requests)

    @property
    def answered(self) -> tuple[Answered, ...]:
        """Every call that was answered, in order of the answers."""
        with self._lock:
            return tuple(self._answered)

    @property
    def disposed(self) -> tuple[str, ...]:
        """Handles that were disposed, in order."""
        with self._lock:
            return tuple(self._disposed)

    @property
    def handles(self) -> tuple[str, ...]:
        """Handles that are held now, oldest first."""
        with self._lock:
            return tuple(self._held)

    def held(self, handle: str) -> tuple[Entry, ...]:
        """The conversation behind *handle*. Raises HandleForgotten."""
        with self._lock:
            if handle not in self._held:
                raise HandleForgotten(f"the provider knows no {handle}")
            return self._held[handle]

    def _stream(self, text: str, on_delta: OnDelta) -> None:
        for piece in self._pieces(text):
            if self._piece_seconds:
                self._sleep(self._piece_seconds)
            on_delta(piece)

    def _conversation(self, request: ModelRequest) -> tuple[Entry, ...]:
        if self.shape is Shape.STATELESS or request.handle is None:
            return request.entries
        return (*self.held(request.handle), *request.entries[request.held_count :])

    def _admitted(self, request: ModelRequest, conversation: tuple[Entry, ...]) -> int:
        fixed_tokens = self._counter.fixed(request.instructions, request.tools, request.parameters)
        prompt_tokens = fixed_tokens + sum(map(self._counter.entry, conversation))
        if self._window_tokens is not None and prompt_tokens > self._window_tokens:
            raise WindowOverflow(
                f"{prompt_tokens} tokens are above a window of {self._window_tokens}", self._window_tokens
            )
        return prompt_tokens

    def _recorded(
        self, request: ModelRequest, conversation: tuple[Entry, ...], prompt_tokens: int, reply: ModelReply
    ) -> ModelReply:
        completion_tokens = sum(map(self._counter.entry, reply.entries()))
        with self._lock:
            if reply.usage is None:
                true_usage = Usage(prompt_tokens, completion_tokens)
                reply = replace(reply, usage=self._usage(len(self._answered) + 1, true_usage))
            if self.shape is Shape.HELD:
                self._handle_count += 1
                reply = replace(reply, handle=f"handle-{self._handle_count}")
                self._held[f"handle-{self._handle_count}"] = (*conversation, *reply.entries())
                self._parents[f"handle-{self._handle_count}"] = request.handle or ""
            self._answered.append(Answered(request, reply))
        return reply


class _Queue:
    """Failures, one a call, until there are none left."""

    def __init__(self, failures: Iterable[Exception | None]) -> None:
        self._failures, self._lock = deque(failures), threading.Lock()

    def __call__(self, _: ModelRequest) -> Exception | None:
        with self._lock:
            return self._failures.popleft() if self._failures else None


class _Recording:
    """Answers in the order of the calls; the same call is given the same answer."""

    def __init__(self, answers: Iterable[ModelReply | str]) -> None:
        self._answers, self._lock = deque(answers), threading.Lock()
        self._dealt: dict[str, ModelReply | str] = {}

    def __call__(self, request: ModelRequest) -> ModelReply | str:
        key = request.idempotency_key
        with self._lock:
            if key not in self._dealt:
                if not self._answers:
                    raise ProviderRejected(f"the recording ended after {len(self._dealt)} answers")
                self._dealt[key] = self._answers.popleft()
            return self._dealt[key]
