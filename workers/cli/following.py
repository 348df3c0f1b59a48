"""How commands follow a turn: its events as lines, its text as it comes, its answer."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sessionlib.deltas import DELTA, Delta, Shown
from sessionlib.errors import AnswerTimeout, SessionError
from workers.cli.common import Call
from workers.cli.printing import printable

if TYPE_CHECKING:
    from sessionlib.events import Reply
    from sessionlib.stores.contract import Event
    from workers.client import Turn

LOOK_SECONDS = 0.1
"""A signal that comes in the moment before a wait begins is noticed when the wait ends."""

Listener = Callable[["Event"], None]


class Following:
    """Tells a listener of a turn's events, on a thread of its own: waiting for the next one has no deadline."""

    def __init__(self, turn: Turn, listener: Listener) -> None:
        self._turn, self._listener = turn, listener
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._follow, name="events", daemon=True)
        self._is_begun = False

    def answer(self, timeout_seconds: float | None = None) -> Reply:
        """The answer, when the listener was told of all events. Raises TurnFailed, AnswerTimeout, and what the listener
        raised. Interrupted by Ctrl-C, it can be called again: the thread goes on."""
        if not self._is_begun:
            self._is_begun = True
            self._thread.start()
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self._thread.is_alive():
            if deadline is not None and time.monotonic() >= deadline:
                raise AnswerTimeout(self._turn.turn_id, timeout_seconds or 0.0)
            self._thread.join(LOOK_SECONDS)
        if self._error is not None:
            raise self._error
        return self._turn.answer(timeout_seconds)

    def _follow(self) -> None:
        try:
            for event in self._turn.events():
                self._listener(event)
        except SessionError:
            return  # whoever asks for the answer meets the same error, and reports it
        except Exception as exc:  # noqa: BLE001 - the listener's, raised where somebody can act on it
            self._error = exc


class Typing:
    """A listener that writes the text as it comes, each round's on lines of its own."""

    def __init__(self, call: Call) -> None:
        self._call, self._shown = call, Shown()
        self._round, self._is_in_line = 0, False

    def __call__(self, event: Event) -> None:
        for delta in self._shown.take(event.kind, event.data):
            self._write(delta)

    def echoed(self) -> None:
        """A terminal has shown a key that was pressed, such as ^C: its line is begun, if it was not."""
        self._is_in_line = self._is_in_line or sys.stdout.isatty()

    def end(self) -> None:
        """End the line that was begun."""
        if self._is_in_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._is_in_line = False

    def _write(self, delta: Delta) -> None:
        if delta.is_restart:
            self.end()
            self._call.say("  the model was interrupted; its answer begins anew:")
            return
        if delta.round != self._round:
            self.end()
        self._round = delta.round
        text = printable(delta.text) if sys.stdout.isatty() else delta.text
        sys.stdout.write(text)
        sys.stdout.flush()
        self._is_in_line = not text.endswith("\n")


def event_printer(call: Call) -> Listener:
    """Prints events as they come."""
    from workers.cli.figures import event_figures

    return lambda event: call.event(event_figures(event), f"{event.kind} {progress_text(event)}".rstrip())


def progress_teller(call: Call) -> Listener:
    """Tells of events as they come; pieces of the answer are not shown before it is whole."""

    def tell(event: Event) -> None:
        if event.kind != DELTA:
            call.say(f"  {event.kind} {progress_text(event)}".rstrip())

    return tell


def progress_text(event: Event) -> str:
    """The figures and names of an event: `round=2 tokens=812`. Text of any length is left out: it may be content."""
    return " ".join(
        f"{name}={value}"
        for name, value in event.data.items()
        if isinstance(value, int | float) or name in ("code", "tool", "name", "rotation_id")
    )


def reply_figures(reply: Reply) -> dict[str, object]:
    """A reply as plain values, its text included."""
    from dataclasses import asdict

    return {
        "turn_id": reply.turn_id,
        **asdict(reply.answer),
        "rotations": [dict(figures) for figures in reply.rotations],
    }


def tell_beside(call: Call, reply: Reply) -> None:
    """Tell of what came with an answer: calls that are left open, rotations since the last."""
    for open_call in reply.open_calls:
        call.say(f"open call {open_call.call_id}: {open_call.name}({open_call.arguments})")
    for rotation in reply.rotations:
        before, after = rotation.get("tokens_before", 0), rotation.get("tokens_after", 0)
        call.say(f"  rotated in the meantime: {before:,} to {after:,} tokens")
