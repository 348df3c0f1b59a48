"""Tokens are compared for equality only, so stores that differ in their names are one: tokens are named in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sessionlib.stores.memory import World
from sessionlib.stores.rules.state import Head, Hold
from tests.checker.model import OPENED, SESSION, Asking, RotationJob, TurnJob, Worker


def store_tokens(world: World) -> tuple[str, ...]:
    """Every token in a store, in the order of first appearance."""
    box = world.box(SESSION)
    if box.head is None:
        return ()
    found = [*(item.commit_token for item in box.live), *(turn.commit_token for _, turn in box.turns)]
    found += [box.head.tail_token, box.head.layout_token, box.head.hold.token, box.head.lifted_under]
    if box.head.rotation:
        found += [box.head.rotation.hold.token, box.head.rotation.requested_by]
    return distinct(found)


def worker_tokens(worker: Worker) -> tuple[str, ...]:
    match worker:
        case None:
            return ()
        case Asking(token=token):
            return (token,)
        case TurnJob():
            return (worker.token, worker.pending)
        case RotationJob():
            return (worker.token, worker.pending, worker.old_layout_token, worker.tail_token)


def sent_tokens(worker: Worker) -> tuple[str, ...]:
    """What a worker may yet bring into a store: of the tokens that it knows, those that it made up itself."""
    match worker:
        case None:
            return ()
        case Asking(token=token):
            return (token,)
        case _:
            return distinct((worker.token, worker.pending))


def distinct(tokens: Iterable[str]) -> tuple[str, ...]:
    """The tokens as their makers know them, each once, in the order of first appearance."""
    return tuple(dict.fromkeys(token.partition(OPENED)[0] for token in tokens if token))


def renamed_token(token: str, names: Mapping[str, str], unknown: str = "") -> str:
    """A lane's token names the opening of its session too: that part keeps its name."""
    made_up, mark, opened = token.partition(OPENED)
    return names.get(made_up, unknown) + mark + opened if token else ""


def renamed_store(world: World, names: Mapping[str, str]) -> World:
    box = world.box(SESSION)
    if box.head is None:
        return world
    return world.with_box(
        SESSION,
        replace(
            box,
            head=_renamed_head(box.head, names),
            live=tuple(replace(item, commit_token=renamed_token(item.commit_token, names)) for item in box.live),
            turns=tuple(
                (key, replace(turn, commit_token=renamed_token(turn.commit_token, names))) for key, turn in box.turns
            ),
        ),
    )


def _renamed_head(head: Head, names: Mapping[str, str]) -> Head:
    rotation = head.rotation
    if rotation is not None:
        requested_by = renamed_token(rotation.requested_by, names)
        rotation = replace(rotation, hold=_renamed_hold(rotation.hold, names), requested_by=requested_by)
    return replace(
        head,
        tail_token=renamed_token(head.tail_token, names),
        layout_token=renamed_token(head.layout_token, names),
        hold=_renamed_hold(head.hold, names),
        lifted_under=renamed_token(head.lifted_under, names),
        rotation=rotation,
    )


def _renamed_hold(hold: Hold, names: Mapping[str, str]) -> Hold:
    return replace(hold, token=renamed_token(hold.token, names))


def renamed_worker(worker: Worker, names: Mapping[str, str]) -> Worker:
    """The same memory; tokens without a name become "?" (to compare workers before they are named)."""

    def name(token: str) -> str:
        return renamed_token(token, names, unknown="?")

    match worker:
        case None:
            return None
        case Asking(token=token):
            return Asking(name(token))
        case TurnJob():
            return worker._replace(token=name(worker.token), pending=name(worker.pending))
        case RotationJob():
            return worker._replace(
                token=name(worker.token),
                pending=name(worker.pending),
                old_layout_token=name(worker.old_layout_token),
                tail_token=name(worker.tail_token),
            )
