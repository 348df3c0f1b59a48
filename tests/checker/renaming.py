"""Tokens are compared for equality only, so stores that differ in their names are one: tokens are named in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sessionlib.stores.memory import World
from sessionlib.stores.rules.state import Head, Hold
from tests.checker.model import SESSION, Asking, RotationJob, TurnJob, Worker


def store_tokens(world: World) -> tuple[str, ...]:
    """Every token in a store, in the order of first appearance."""
    box = world.box(SESSION)
    if box.head is None:
        return ()
    found = [*(item.commit_token for item in box.live), *(turn.commit_token for _, turn in box.turns)]
    found += [box.head.tail_token, box.head.layout_token, box.head.hold.token]
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


def distinct(tokens: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(token for token in tokens if token))


def renamed_store(world: World, names: Mapping[str, str]) -> World:
    box = world.box(SESSION)
    if box.head is None:
        return world
    return world.with_box(
        SESSION,
        replace(
            box,
            head=_renamed_head(box.head, names),
            live=tuple(replace(item, commit_token=names[item.commit_token]) for item in box.live),
            turns=tuple((key, replace(turn, commit_token=names.get(turn.commit_token, ""))) for key, turn in box.turns),
        ),
    )


def _renamed_head(head: Head, names: Mapping[str, str]) -> Head:
    rotation = head.rotation
    if rotation is not None:
        requested_by = names.get(rotation.requested_by, "")
        rotation = replace(rotation, hold=_renamed_hold(rotation.hold, names), requested_by=requested_by)
    return replace(
        head,
        tail_token=names.get(head.tail_token, ""),
        layout_token=names.get(head.layout_token, ""),
        hold=_renamed_hold(head.hold, names),
        rotation=rotation,
    )


def _renamed_hold(hold: Hold, names: Mapping[str, str]) -> Hold:
    return replace(hold, token=names.get(hold.token, ""))


def renamed_worker(worker: Worker, names: Mapping[str, str]) -> Worker:
    """The same memory; tokens without a name become "?" (to compare workers before they are named)."""

    def name(token: str) -> str:
        return names.get(token, "?") if token else ""

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
