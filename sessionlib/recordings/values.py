"""Recording: a session as it was recorded, in turns and rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sessionlib.errors import InvalidInput
from sessionlib.providers.contract import CallRequest, ModelReply, ToolDeclaration
from sessionlib.tokens import Usage

CONTINUE = "(continue)"
"""The input of a turn whose recording has none."""
NO_ANSWER = "(no answer was recorded)"
"""The answer of a turn that the recording ends in calls."""
NO_RESULT = "(no result was recorded)"
"""The result of a call that the recording leaves open."""


class Skip(StrEnum):
    """Why something recorded is not in the turns as it was. Lines, roles and parts of unknown kinds are named as
    `line of type …`, `message of role …`, `part of type …`."""

    SYSTEM = "system lines after the first"
    NOTICE = "notices to the user"
    COMPACTION = "recorded compactions"
    SIDECHAIN = "side chain lines"
    META = "meta lines"
    REPEATED_LINE = "lines written twice"
    API_ERROR = "API error lines"
    THINKING = "thinking"
    IMAGE = "images"
    BLANK = "blank texts"
    ORPHAN_RESULT = "results without a call"
    REPEATED_USAGE = "repeated usage reports"
    UNANSWERED = "unanswered messages at the end"
    JOINED_INPUT = "user messages joined to the one before"
    RENAMED_CALL = "call ids made unique"
    MADE_INPUT = "inputs made up"
    MADE_ANSWER = "answers made up"
    MADE_RESULT = "results made up"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRound:
    """One model call: what was answered, and what its calls gave, in the order of the calls."""

    text: str
    calls: tuple[CallRequest, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    """(call id, text)"""
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if [call.call_id for call in self.calls] != [call_id for call_id, _ in self.results]:
            raise InvalidInput("results", self.results, "must be one for each call, in the order of the calls")
        if not self.text.strip() and not self.calls:
            raise InvalidInput("text", self.text, "must not be blank where nothing is called")

    def reply(self) -> ModelReply:
        """The round as a provider answers it. Its usage is that of the request that was recorded."""
        return ModelReply(text=self.text, calls=self.calls, usage=self.usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """An input and its rounds: all but the last have calls, the last is the answer."""

    input: str
    rounds: tuple[RecordedRound, ...]

    def __post_init__(self) -> None:
        if not self.input.strip():
            raise InvalidInput("input", self.input, "must not be blank")
        if not self.rounds or self.rounds[-1].calls or not all(played.calls for played in self.rounds[:-1]):
            raise InvalidInput("rounds", len(self.rounds), "must all have calls, except the last, which must have none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recorded session. `source` says where it came from, as the caller named it."""

    source: str
    format: str
    turns: tuple[RecordedTurn, ...]
    instructions: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """How often each reason of `Skip` applied."""

    def __post_init__(self) -> None:
        if not self.turns:
            raise InvalidInput(self.source, self.format, "must hold an answered turn")
        call_ids = [call.call_id for call in self._calls()]
        if len(set(call_ids)) < len(call_ids):
            raise InvalidInput(self.source, len(call_ids), "must not use a call id twice")

    @property
    def round_count(self) -> int:
        return sum(len(turn.rounds) for turn in self.turns)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools that were called, in the order of their first call."""
        return tuple(dict.fromkeys(call.name for call in self._calls()))

    def tool_declarations(self) -> tuple[ToolDeclaration, ...]:
        """A declaration for each tool that was called, taking any object: the recording has no schemas."""
        return tuple(
            ToolDeclaration(name=name, description="A recorded tool.", parameters={"type": "object"})
            for name in self.tool_names
        )

    def provider_replies(self) -> dict[tuple[int, int], ModelReply]:
        """What a provider has to answer, by (turn index, round index).

        A reply's usage belongs to the recorded request. Who sends another request must not report it as that one's.
        """
        return {place: played.reply() for place, played in self._rounds()}

    def tool_results(self) -> dict[str, str]:
        """What a tool has to give, by call id."""
        return {call_id: text for _, played in self._rounds() for call_id, text in played.results}

    def texts(self) -> Iterator[str]:
        """Everything that is said, in order: inputs, texts, arguments, results."""
        for turn in self.turns:
            yield turn.input
            for played in turn.rounds:
                yield played.text
                yield from (call.arguments for call in played.calls)
                yield from (text for _, text in played.results)

    def _rounds(self) -> Iterator[tuple[tuple[int, int], RecordedRound]]:
        for turn_index, turn in enumerate(self.turns):
            for round_index, played in enumerate(turn.rounds):
                yield (turn_index, round_index), played

    def _calls(self) -> Iterator[CallRequest]:
        for _, played in self._rounds():
            yield from played.calls
