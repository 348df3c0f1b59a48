"""A turn as its caller sees it: its events and its text as they come, its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sessionlib.deltas import Delta, Shown
from sessionlib.errors import AnswerTimeout, InvalidInput
from sessionlib.events import EVENTS_PAGE, FINAL_KINDS, Reply, reply_of
from sessionlib.inputs import require_timeout
from sessionlib.stores.checks import check_event_id
from sessionlib.stores.contract import Event, TurnState, TurnView
from workers.client_parts import Connection
from workers.keys import ENDED
from workers.waiting import Waiting


class Turn:
    """A turn that was accepted. Whoever knows its id can ask for it, from any process."""

    def __init__(self, connection: Connection, session_id: str, turn_id: str) -> None:
        self._connection, self.session_id, self.turn_id = connection, session_id, turn_id

    def answer(self, timeout_seconds: float | None = None, *, is_new: bool = False) -> Reply:
        """Wait for the answer, through an outage of the store too.

        One that *is_new*, accepted a moment ago, is not looked for before there was news of it. Raises TurnFailed,
        AnswerTimeout (the turn goes on), InvalidInput (a forgotten turn), and StoreUnavailable if the store is away
        when the timeout has passed, or without a timeout for OUTAGE_SECONDS (30): ask again later.
        """
        waiting = Waiting(require_timeout(timeout_seconds))
        if is_new:
            self._await_end(waiting)
        while True:
            with waiting.through_outages():
                reply = self.reply()
                if reply is not None:
                    return reply
                if waiting.is_over:
                    raise AnswerTimeout(self.turn_id, waiting.waited_seconds)
            self._await_end(waiting)

    def _await_end(self, waiting: Waiting) -> None:
        """Wait for the hint that the turn ended, or until it is time to look again."""
        self._connection.hints.wait(self.session_id, self.turn_id + ENDED, waiting.pause_seconds)

    def reply(self) -> Reply | None:
        """The reply if there is one now. Raises TurnFailed, InvalidInput (a forgotten turn)."""
        view = self._view()
        return reply_of(view) if view.state.is_finished else None

    def is_finished(self) -> bool:
        """Whether the turn ended. Raises InvalidInput (a forgotten turn)."""
        return self._view().state.is_finished

    def _view(self) -> TurnView:
        view = self._connection.store.turn(self.session_id, self.turn_id)
        if view is None:
            raise InvalidInput("turn_id", self.turn_id, "is not known: never submitted, or forgotten since it ended")
        return view

    def events(self, after: str = "") -> Iterator[Event]:
        """What the turn reports, from the event *after* on, up to its last event.

        Raises InvalidInput for a forgotten turn and for what is no event's id, and StoreUnavailable if the store is
        away for OUTAGE_SECONDS (30): go on later from the last event's id.
        """
        check_event_id("after", after)
        waiting, is_news, is_over = Waiting(None), False, False
        while True:
            found: Sequence[Event] = ()
            with waiting.through_outages():
                found = self._connection.store.events(self.session_id, self.turn_id, after, EVENTS_PAGE)
            for event in found:
                after = event.id
                yield event
                if event.kind in FINAL_KINDS:
                    return
            if len(found) == EVENTS_PAGE:
                continue
            if not found and is_over:
                return
            if not found and not is_news:  # nobody said that there is something: does it go on at all?
                with waiting.through_outages():
                    is_over = self.is_finished()
            if not is_over:
                is_news = self._connection.hints.wait(self.session_id, self.turn_id, waiting.pause_seconds)

    def deltas(self, after: str = "") -> Iterator[Delta]:
        """The text of a turn submitted with `stream=True` as it comes, of another turn when it is answered.

        Follows `events`, from *after* on: what it yields since the last restart is the text in the end, but for what
        was shown up to *after*. Pieces are gone once the turn has ended: who comes back later is told that what was
        shown is void (`is_restart`), then the whole answer. A turn that fails just ends: `answer` says why.
        """
        shown = Shown(is_resumed=bool(after))
        for event in self.events(after):
            yield from shown.take(event.kind, event.data)

    def cancel(self) -> TurnState:
        """End the turn if it is not finished; its committed rounds stay. A second call is harmless."""
        return self._connection.store.cancel(self.session_id, self.turn_id)
