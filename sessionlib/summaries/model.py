"""The model-backed generator: one tool-free call outside every session, and exactly one settlement of it."""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from sessionlib.entries import Entry
from sessionlib.errors import (
    Cancelled,
    InvalidInput,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    WindowOverflow,
    place_of,
)
from sessionlib.layout import Level
from sessionlib.providers.contract import ModelReply, ModelRequest, Provider
from sessionlib.summaries.admission import estimated_tokens, most_tokens, output_limit_tokens, usable_tokens
from sessionlib.summaries.contract import (
    Consolidated,
    ConsolidationRequest,
    Fault,
    Settlement,
    SummaryRequest,
    Workload,
)
from sessionlib.summaries.evidence import MARKER_CHARACTERS, Evidence, Item, Provenance, draw_marker
from sessionlib.summaries.grounding import unsupported_values
from sessionlib.summaries.prompts import Prompt, compose, texts_of
from sessionlib.summaries.purposes import DIGEST_LIMIT_BYTES, EMPTY_BULLET, HEADINGS, Purpose
from sessionlib.summaries.redaction import redact
from sessionlib.summaries.validation import complaint

SUMMARIES_SESSION = "summaries"
"""The session id under which summaries are asked for: they belong to no session of the provider's."""

ECHO_CHARACTERS = 12
"""A provider's error text that repeats this many characters of what it was sent is withheld."""

ANY_MARKER = "0" * MARKER_CHARACTERS
"""Stands for a marker where only the size of a request matters."""

Draw = Callable[[], str]
"""Gives MARKER_CHARACTERS random hexadecimal digits, other ones each time."""


class ModelGenerator:
    """Asks a provider's model for each summary. Stateless; safe for concurrent use."""

    def __init__(self, provider: Provider, workload: Workload, draw: Draw) -> None:
        self._provider, self._workload, self._draw = provider, workload, draw

    def generate(self, request: SummaryRequest, cancelled: Callable[[], bool]) -> Settlement:
        """Settle exactly once, whatever goes wrong. See `ask`."""
        try:
            return self.ask(request, cancelled)
        except Cancelled:
            return self._fault(Fault.CANCELLED, "the summary was cancelled")
        except ProviderUnavailable as exc:
            settled = self._fault(Fault.PROVIDER, _reason(exc, request))
            return replace(settled, is_transient=True, retry_after_seconds=exc.retry_after_seconds)
        except ProviderError as exc:
            return self._fault(Fault.PROVIDER, _reason(exc, request))
        except Exception as exc:  # noqa: BLE001 - providers are anybody's code, and their text may quote content
            return self._fault(Fault.PROVIDER, f"{type(exc).__name__} at {place_of(exc)}")

    def admits(self, request: SummaryRequest) -> bool:
        """Whether *request* fits the window. One whose parameters make no sense is for `generate` to refuse."""
        try:
            return not self._size_complaint(compose(request, ANY_MARKER))
        except ProviderRejected:
            return True

    def ask(self, request: SummaryRequest, cancelled: Callable[[], bool]) -> Settlement:
        """Admit, ask once, and judge the answer.

        Raises ProviderError, but for WindowOverflow, which is a fault of size, and whatever else a provider lets out;
        Cancelled if that is known before the call or while the answer comes. A digest that grows past its cap is
        settled there, and its request aborted.
        """
        texts = texts_of(request)
        marker = draw_marker(self._draw, texts)
        prompt = compose(request, marker)
        if above := self._size_complaint(prompt):
            return self._fault(Fault.SIZE, above)
        if cancelled():
            raise Cancelled(f"summary {request.name}")
        listener = _Listener(DIGEST_LIMIT_BYTES if request.purpose is Purpose.DIGEST else None, cancelled)
        try:
            reply = self._answered(request, prompt, listener)
        except WindowOverflow as exc:  # the provider counts more tokens than we do
            return self._fault(Fault.SIZE, _reason(exc, request))
        if listener.fault is Fault.CANCELLED:
            raise Cancelled(f"summary {request.name}")
        if reply is None:
            return self._fault(Fault.VALIDATION, f"the answer grew past {DIGEST_LIMIT_BYTES:,} bytes and was stopped")
        return self._judged(reply, request, "\n".join(texts), marker)

    def _size_complaint(self, prompt: Prompt) -> str:
        """Why the request does not fit; "" if it does. Raises ProviderRejected for a limit without sense."""
        try:
            limit_tokens = output_limit_tokens(self._workload.parameters)
        except InvalidInput as exc:
            raise ProviderRejected(f"the request was not sent: {exc}") from None
        tokens = estimated_tokens(prompt.instructions, prompt.document)
        usable = usable_tokens(self._workload.window_tokens, limit_tokens)
        return f"the request takes about {tokens:,} tokens; {usable:,} are usable" if tokens > usable else ""

    def _answered(self, request: SummaryRequest, prompt: Prompt, listener: _Listener) -> ModelReply | None:
        """The answer; None if the listener stopped it, which counts whatever the provider makes of that."""
        try:
            reply: ModelReply | None = self._provider.complete(self._call(request, prompt), listener)
        except Exception:
            if listener.fault:
                return None
            raise
        if reply is None:
            raise ProviderRejected("the provider returned None")
        if reply.handle is not None:
            # It was not to be held, but this provider does. One that stays behind harms nobody (DESIGN 4).
            with contextlib.suppress(ProviderError):
                self._provider.dispose(reply.handle)
        return None if listener.fault else reply

    def _call(self, request: SummaryRequest, prompt: Prompt) -> ModelRequest:
        """One message, no tools. Its key comes from the request's name: the marker differs from try to try."""
        return ModelRequest(
            model=self._workload.model,
            instructions=prompt.instructions,
            tools=(),
            parameters=copy.deepcopy(dict(self._workload.parameters)),
            entries=(Entry.user(prompt.document),),
            session_id=SUMMARIES_SESSION,
            turn_id=request.name,
            step=f"summary:{request.purpose}{':terse' if request.terse else ''}",
            timeout_seconds=self._workload.timeout_seconds,
            is_single=True,
        )

    def _judged(self, reply: ModelReply, request: SummaryRequest, source: str, marker: str) -> Settlement:
        """What an answer comes to: its text without secrets, if that is valid."""
        text, redaction_count = "", 0
        if reply.calls:
            reason = "the model called tools in the place of an answer"
        elif not isinstance(reply.text, str):
            reason = "the answer has no text"
        elif marker in reply.text.casefold():
            reason = "the answer repeats the structure of its input"
        else:
            redacted = redact(reply.text)
            text, redaction_count = redacted.text.strip(), redacted.count
            reason = complaint(redacted.text, request.purpose, source=source)
        settled = self._fault(Fault.VALIDATION, reason) if reason else self._settled(text)
        usage = reply.usage
        return replace(
            settled,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            cached_tokens=usage.cached_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            redaction_count=0 if reason else redaction_count,
            unsupported_values=() if reason else unsupported_values(text, source),
        )

    def _settled(self, text: str = "") -> Settlement:
        workload = self._workload
        return Settlement(text=text, provider=workload.provider, model=workload.model, effort=workload.effort)

    def _fault(self, fault: Fault, reason: str) -> Settlement:
        return replace(self._settled(), fault=fault, reason=reason)


class _Stopped(Exception):
    """Goes through the provider, so that it lets go of the request."""


class _Listener:
    """Hears an answer as it comes, and stops it once: past its cap in bytes, or cancelled. Later pieces are ignored."""

    def __init__(self, limit_bytes: int | None, cancelled: Callable[[], bool]) -> None:
        self._limit_bytes, self._cancelled = limit_bytes, cancelled
        self._size_bytes = 0
        self.fault: Fault | None = None
        """Why the answer is not wanted any more."""

    def __call__(self, delta: str) -> None:
        if self.fault:
            return
        self._size_bytes += len(delta.encode("utf-8", "surrogatepass"))
        if self._cancelled():
            self.fault = Fault.CANCELLED
        elif self._limit_bytes is not None and self._size_bytes > self._limit_bytes:
            self.fault = Fault.VALIDATION
        if self.fault:
            raise _Stopped


def _reason(error: ProviderError, request: SummaryRequest) -> str:
    """The provider's error text, or just its code if that text repeats some of what was sent."""
    message = str(error)
    pieces = [message[at : at + ECHO_CHARACTERS] for at in range(len(message) - ECHO_CHARACTERS + 1)]
    return error.code if _any_holds(texts_of(request), pieces) else message or error.code


def _any_holds(texts: Iterable[str], pieces: Iterable[str]) -> bool:
    distinct = set(pieces)
    return any(piece in text for text in texts for piece in distinct)


SKELETON = "\n".join(
    f"## {heading}\n{EMPTY_BULLET[Purpose.CONTINUATION]}" for heading in HEADINGS[Purpose.CONTINUATION]
)
"""The shortest text with the headings of a continuation."""


def _prompt_tokens() -> int:
    """What a consolidation's request takes at most beside previous record and material, by the estimate."""
    item = Item(Provenance.TRANSCRIPT, "x")
    request = SummaryRequest(
        purpose=Purpose.CONTINUATION, evidence=Evidence(items=(item,)), previous="x", terse=True, name=""
    )
    prompts = [compose(replace(request, level=level), ANY_MARKER) for level in Level]
    most = max(most_tokens(prompt.instructions) + most_tokens(prompt.document) for prompt in prompts)
    return most + 2  # the estimate rounds once, up


class ModelSummarizer:
    """Consolidations by the generator: continuations whose evidence is the material. Safe for concurrent use."""

    PROMPT_TOKENS = _prompt_tokens()

    def __init__(self, provider: Provider, workload: Workload, draw: Draw) -> None:
        self._generator = ModelGenerator(provider, workload, draw)
        self._window_tokens = workload.window_tokens

    @property
    def window_tokens(self) -> int:
        """The window without what the prompt takes of its usable half: half of the rest is shown (spec C5)."""
        return max(self._window_tokens // 2, self._window_tokens - 2 * self.PROMPT_TOKENS)

    def consolidate(self, request: ConsolidationRequest, cancelled: Callable[[], bool]) -> Consolidated:
        """Ask once. An answer that is no continuation comes back as a fault, and so does what does not fit the window,
        and a record that has no room for the headings, which is not asked for.

        Raises ProviderError, and Cancelled.
        """
        if request.budget_tokens <= estimated_tokens(SKELETON):
            reason = f"a record of {request.budget_tokens:,} tokens has no room for its headings"
            return Consolidated(text="", fault=f"{Fault.SIZE}: {reason}")
        settled = self._generator.ask(_continuation(request), cancelled)
        return Consolidated(
            text=settled.text,
            fault=f"{settled.fault}: {settled.reason}" if settled.fault else "",
            prompt_tokens=settled.prompt_tokens,
            completion_tokens=settled.completion_tokens,
            redaction_count=settled.redaction_count,
            model=settled.model,
        )


def _continuation(request: ConsolidationRequest) -> SummaryRequest:
    """What is asked is named by its content: no session is known here, and asked again it has the same key."""
    content = "\0".join([request.previous_record, request.material, *([request.level] if request.level else [])])
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return SummaryRequest(
        purpose=Purpose.CONTINUATION,
        evidence=Evidence(items=(Item(Provenance.TRANSCRIPT, request.material),)),
        previous=request.previous_record,
        terse=request.terse,
        level=request.level,
        name=f"consolidation:{request.first_seq}-{request.last_seq}:{digest}",
    )
