"""What the policy `work_room` tells the model (spec/work-room B3): guidance, nudges, and how a fresh window opens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from sessionlib.fences import fenced
from sessionlib.stores.contract import THREAD_HINT, Limits
from sessionlib.tokens import Counter

HINT_BYTES = Limits().hint_bytes
"""A longer hint is left out, not cut (spec/work-room B6); a store refuses it where it is written."""

REMAINING = "{n_remaining}"
"""What stands for the figure in a reminder."""

ELLIPSIS = "…"

NUDGE = "[Context management] "
"""What every nudge begins with."""

WINDOWS_GUIDANCE = (
    "Context management: this conversation is longer than one context window. When a window is used up, it is archived "
    "and you go on in a fresh one, which shows the user's last message and little else of what was said before."
)

NOTES_GUIDANCE = (
    "What you wrote down reaches the fresh window: keep notes with the `notes` tools as you work (private; read, "
    f"append, write), and keep the note {THREAD_HINT} up to date with where you stand, for each fresh window begins "
    "with it."
)

HISTORY_GUIDANCE = (
    "Everything that was said and done stays readable, word for word, with the `history` tools (private; read only)."
)

DISCRETION = "Do not mention windows, notes or history to the user unless you are asked about them."


def guidance(*, has_notes: bool, has_history: bool) -> str:
    """What an agent's instructions end with: how windows end, and what survives them."""
    tools = (*((NOTES_GUIDANCE,) if has_notes else ()), *((HISTORY_GUIDANCE,) if has_history else ()))
    return "\n".join((WINDOWS_GUIDANCE, *tools, DISCRETION))


def reminder_template(*, has_notes: bool, has_history: bool) -> str:
    """What is said when little is left: what can be done about it with the tools that there are."""
    left = f"About {REMAINING} tokens of work room are left in this window."
    needed = "decisions, findings, what is done and what comes next"
    if has_notes:
        save = f"Save what you will need with the notes tools now: {needed}."
    elif has_history:
        save = f"Put into words now what you will need, for the history tools to show it later: {needed}."
    else:
        save = "Bring what you are at to a point from which it can be taken up again."
    return f"{NUDGE}{left} {save} Then go on with your task."


def fallback_prompt(*, has_notes: bool, has_history: bool) -> str:
    """What is said when the window is used up."""
    closing = "This window is used up and will be closed after your next step."
    where = "the task, what is done, what is open, the very next step, and where things are"
    if has_notes:
        last = (
            f"Write a handoff into the note {THREAD_HINT} now: {where}. The next window begins with it, if it has no "
            f"more than {HINT_BYTES:,} bytes."
        )
    elif has_history:
        last = f"Say now where you stand: {where}. The history tools show it to you in the next window."
    else:
        last = "Finish now what that step can finish: the next one shows the user's last message and little else."
    return f"{NUDGE}{closing} {last}"


def seed_message(*, has_notes: bool, has_history: bool) -> str:
    """What a fresh window's opening ends with: what the task is, and where to look for what is not shown."""
    task = (
        "You go on in a fresh window. Your current task is the user's newest message: the one right after this, or "
        "else the one above. Earlier ones are done with."
    )
    notes = (
        f"Read your notes first: {THREAD_HINT} says where you stood; if there is none, write one soon."
        if has_notes
        else ""
    )
    history = "Look into the history only for what is missing here." if has_history else ""
    again = "Do not read again what your notes cover." if has_notes else ""
    parts = (task, notes, history, again, "Go on directly, without greeting or summary.")
    return " ".join(part for part in parts if part)


@lru_cache
def default_texts(*, has_notes: bool, has_history: bool) -> Mapping[str, str]:
    """What the policy says by default to an agent with these tools, by the names of its fields."""
    makers = {
        "guidance_message": guidance,
        "reminder_template": reminder_template,
        "fallback_prompt": fallback_prompt,
        "seed_message": seed_message,
    }
    return MappingProxyType({name: made(has_notes=has_notes, has_history=has_history) for name, made in makers.items()})


REMINDER = reminder_template(has_notes=True, has_history=True)
FALLBACK = fallback_prompt(has_notes=True, has_history=True)
SEED = seed_message(has_notes=True, has_history=True)
GUIDANCE = guidance(has_notes=True, has_history=True)
"""What an agent with both kinds of tools is told: the policy's defaults."""


def reminder(template: str, remaining_tokens: int) -> str:
    """The nudge of a window that is nearly used up."""
    return template.replace(REMAINING, f"{remaining_tokens:,}")


def window_info(previous_window: int, window: int) -> str:
    """Which window this is, and which one went before it."""
    return f"<context_window>\nprevious: {previous_window:03d}\ncurrent: {window:03d}\n</context_window>"


def usable_hint(note: str | None) -> str:
    """The thread hint that a fresh window shows; "" if there is none, or it is too long."""
    hint = (note or "").strip()
    return hint if len(hint.encode()) <= HINT_BYTES else ""


def fenced_hint(hint: str) -> str:
    """The thread hint as an opening shows it."""
    return f"Your note {THREAD_HINT}:\n{fenced('thread_hint', hint)}"


def trail_text(message: str, cap_tokens: int, counter: Counter) -> str:
    """The user's last message, word for word, or its beginning and an ellipsis if it takes more than *cap_tokens*."""
    tokens, kept = counter.text(message), message
    while kept and tokens > cap_tokens:
        kept = kept[: min(len(kept) - 1, len(kept) * cap_tokens // tokens)]
        tokens = counter.text(kept)
    return message if kept == message else f"{kept}{ELLIPSIS}" if kept else ""


def opening_text(previous_window: int, seed: str, *, hint: str = "", trail: str = "") -> str:
    """How a fresh window opens. The parts that the model and the user wrote are fenced: they are data."""
    parts = [window_info(previous_window, previous_window + 1)]
    if hint:
        parts.append(fenced_hint(hint))
    if trail:
        parts.append(f"The user's last message before this window:\n{fenced('user', trail)}")
    return "\n".join((*parts, seed))
