"""Assembly: takes what the readers find, in the file's order, and makes turns and rounds of it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NoReturn

from sessionlib.entries import require_encodable
from sessionlib.errors import InvalidInput
from sessionlib.providers.contract import CallRequest
from sessionlib.recordings.values import CONTINUE, NO_ANSWER, NO_RESULT, RecordedRound, RecordedTurn, Recording, Skip
from sessionlib.tokens import Usage


@dataclass(slots=True)
class _Call:
    request: CallRequest
    result: str | None = None


@dataclass(slots=True)
class _Round:
    message_id: str
    texts: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)


@dataclass(slots=True)
class _Turn:
    input: str
    rounds: list[_Round] = field(default_factory=list)


class Assembly:
    """The recording so far. Lives for one reading; `place` names where the reader is, for errors."""

    def __init__(self, source: str, format: str) -> None:
        self.source, self.format, self.place = source, format, ""
        self.instructions = ""
        self._turns: list[_Turn] = []
        self._inputs: list[str] = []
        self._open_calls: dict[str, tuple[_Round, deque[_Call]]] = {}
        self._call_ids: set[str] = set()
        self._uses: Counter[str] = Counter()
        self._usages: dict[str, Usage] = {}
        self._skipped: Counter[str] = Counter()

    def refuse(self, value: object, rule: str) -> NoReturn:
        """Raise InvalidInput naming the source and the place."""
        raise InvalidInput(f"{self.source}, {self.place}:", value, rule)

    def skip(self, reason: str, count: int = 1) -> None:
        self._skipped[reason] += count

    def system(self, text: str) -> None:
        """The first is the instructions."""
        if self.instructions:
            self.skip(Skip.SYSTEM)
        else:
            self.instructions = self.checked(text)

    def user(self, text: str) -> None:
        if text.strip():
            self._inputs.append(self.checked(text))
        else:
            self.skip(Skip.BLANK)

    def assistant(self, message_id: str, text: str) -> None:
        """A text of the API message *message_id*."""
        if text.strip():
            self._round(message_id).texts.append(self.checked(text))
        else:
            self.skip(Skip.BLANK)

    def call(self, message_id: str, call_id: str, name: str, arguments: str) -> None:
        """A tool call of the API message *message_id*."""
        request = CallRequest(
            call_id=self._unique(self.checked(call_id)), name=self.checked(name), arguments=self.checked(arguments)
        )
        call = _Call(request)
        asking = self._round(message_id)
        asking.calls.append(call)
        # An id that is used again belongs to the newer round; what an older one left open stays without result.
        owner, waiting = self._open_calls.get(call_id, (asking, deque()))
        if owner is not asking:
            waiting = deque()
        waiting.append(call)
        self._open_calls[call_id] = asking, waiting

    def result(self, call_id: str, text: str) -> None:
        """The result of the oldest open call that was recorded as *call_id*."""
        _, waiting = self._open_calls.get(call_id, (None, ()))
        if waiting:
            waiting.popleft().result = self.checked(text)
        else:
            self.skip(Skip.ORPHAN_RESULT)

    def usage(self, message_id: str, usage: Usage) -> None:
        """A report for the API message *message_id*; it may be repeated, and grows while the message is streamed."""
        known = self._usages.get(message_id)
        if known is not None:
            self.skip(Skip.REPEATED_USAGE)
        if known is None or usage.completion_tokens > known.completion_tokens:
            self._usages[message_id] = usage

    def finish(self) -> Recording:
        """The recording. Raises InvalidInput if it has no answered turn."""
        if self._inputs:
            self.skip(Skip.UNANSWERED, len(self._inputs))
        turns = tuple(self._turn(turn) for turn in self._turns)
        skipped = {str(reason): count for reason, count in sorted(self._skipped.items()) if count}
        if not turns:
            rule = f"must hold an answered turn; it was read as {self.format}, and this is all that it has"
            raise InvalidInput(self.source, skipped, rule)
        return Recording(
            source=self.source, format=self.format, turns=turns, instructions=self.instructions, skipped=skipped
        )

    def _round(self, message_id: str) -> _Round:
        """The round of *message_id*: the current one, or a new one, in a new turn if it answers something."""
        current = self._turns[-1].rounds[-1] if self._turns else None
        if current is not None and current.message_id == message_id:
            return current
        if self._inputs or current is None or not current.calls:
            self._turns.append(_Turn(self._take_input()))
        started = _Round(message_id)
        self._turns[-1].rounds.append(started)
        return started

    def _take_input(self) -> str:
        if not self._inputs:
            self.skip(Skip.MADE_INPUT)
            return CONTINUE
        if len(self._inputs) > 1:
            self.skip(Skip.JOINED_INPUT, len(self._inputs) - 1)
        text = "\n\n".join(self._inputs)
        self._inputs = []
        return text

    def _unique(self, call_id: str) -> str:
        unique = call_id
        while unique in self._call_ids:
            self._uses[call_id] += 1
            unique = f"{call_id}~{self._uses[call_id] + 1}"
        if unique != call_id:
            self.skip(Skip.RENAMED_CALL)
        self._call_ids.add(unique)
        return unique

    def checked(self, text: str) -> str:
        """*text* if UTF-8 can carry it."""
        try:
            require_encodable("text", text)
        except InvalidInput as exc:
            self.refuse(exc.args[1], exc.rule)
        return text

    def _turn(self, turn: _Turn) -> RecordedTurn:
        rounds = [self._recorded(played) for played in turn.rounds]
        if turn.rounds[-1].calls:
            self.skip(Skip.MADE_ANSWER)
            rounds.append(RecordedRound(text=NO_ANSWER))
        return RecordedTurn(input=turn.input, rounds=tuple(rounds))

    def _recorded(self, played: _Round) -> RecordedRound:
        self.skip(Skip.MADE_RESULT, sum(call.result is None for call in played.calls))
        return RecordedRound(
            text="\n\n".join(played.texts),
            calls=tuple(call.request for call in played.calls),
            results=tuple(
                (call.request.call_id, NO_RESULT if call.result is None else call.result) for call in played.calls
            ),
            usage=self._usages.get(played.message_id),
        )
