"""Leases are renewed while they are held, by one thread, which ends with the last of them."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sessionlib.errors import LeaseLost, StoreCorrupt, StoreUnavailable
from sessionlib.layout import Layout
from sessionlib.leases import Leases
from sessionlib.stores.contract import AgentRef, Grant, Lane, Limits, SessionStore, Snapshot
from tests.waiting import wait_for

LIMITS = Limits(lease_seconds=0.06)


@dataclass
class Renewals:
    """The part of a store that leases talk to; answers with the error that a session is given."""

    limits: Limits = LIMITS
    errors: dict[str, Exception] = field(default_factory=dict)
    renewed: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def renew(self, grant: Grant) -> None:
        self.renewed.append(grant.session_id)
        if error := self.errors.get(grant.session_id):
            raise error

    def release(self, grant: Grant) -> None:
        if error := self.errors.get(grant.session_id):
            raise error
        self.released.append(grant.session_id)


def leases_of(store: Renewals) -> Leases:
    return Leases(cast(SessionStore, store))


def grant(session_id: str, **fields: Any) -> Grant:
    agent = AgentRef(name="a", digest="d")
    snapshot = Snapshot(session_id=session_id, agent=agent, epoch=0, layout=Layout(), layout_token="", tail_token="")
    return Grant(
        session_id=session_id,
        lane=Lane.TURN,
        token="token",
        work_id="t",
        deadline=1.0,
        now=0.0,
        attempt=1,
        snapshot=snapshot,
        **fields,
    )


def lease_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "leases"]


def test_held_lease_is_renewed_several_times_before_it_would_run_out() -> None:
    """For as long as the block lasts, and not after it."""
    store = Renewals()
    with leases_of(store).hold(grant("s")) as held:
        wait_for(lambda: len(store.renewed) >= 4)
        assert not held.is_lost
    wait_for(lambda: not lease_threads(), what="the thread to end")
    count = len(store.renewed)
    assert store.renewed == ["s"] * count


def test_one_thread_renews_all_leases() -> None:
    """Hundreds of turns in flight need no thread each; a later lease begins another."""
    store = Renewals()
    leases = leases_of(store)
    for _ in range(2):
        with leases.hold(grant("a")), leases.hold(grant("b")):
            store.renewed.clear()
            wait_for(lambda: {"a", "b"} <= set(store.renewed))
            assert len(lease_threads()) == 1
        wait_for(lambda: not lease_threads(), what="the thread to end")


def test_refused_lease_is_lost_and_not_renewed_again() -> None:
    """Its holder is told; the others are kept."""
    store = Renewals(errors={"a": LeaseLost("a", "turn")})
    leases = leases_of(store)
    with leases.hold(grant("a")) as lost, leases.hold(grant("b")) as kept:
        wait_for(lambda: store.renewed.count("b") >= 4)
        assert lost.is_lost
        assert not kept.is_lost
        assert store.renewed.count("a") == 1


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreCorrupt("damaged")])
def test_t91_lease_survives_a_store_that_fails(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again: who holds it goes on until the store refuses."""
    store = Renewals(errors={"s": error})
    with caplog.at_level(logging.WARNING), leases_of(store).hold(grant("s")) as held:
        wait_for(lambda: len(store.renewed) >= 2)
        store.errors.clear()
        wait_for(lambda: len(store.renewed) >= 4)
        assert not held.is_lost
    assert "not renewed" in caplog.text


def test_all_lanes_are_given_back_at_the_end_of_a_process() -> None:
    """Whatever is held; a store that is away ends it, for the leases run out by themselves."""
    store = Renewals()
    leases = leases_of(store)
    with leases.hold(grant("a")), leases.hold(grant("b")):
        assert leases.release_all() == 2
        assert sorted(store.released) == ["a", "b"]
        store.errors = {"a": StoreUnavailable("away"), "b": StoreUnavailable("away")}
        assert leases.release_all() == 2
