"""Contract of the journal: a session's digests, what is published of them, and what an agent's sessions find again."""

from __future__ import annotations

from typing import Any

import pytest

from sessionlib.errors import InvalidInput
from sessionlib.stores.contract import DueKind, JournalEntry
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena
from tests.contract.jobs import digest, journal, talk

AGENT_NAME = "coder"


def entry(arena: Arena, digest_id: str = "d1", **fields: Any) -> JournalEntry:
    defaults: dict[str, Any] = {
        "session_id": SESSION,
        "digest_id": digest_id,
        "first_seq": 1,
        "last_seq": 2,
        "text": f"digest {digest_id}",
        "at": arena.now(),
    }
    return JournalEntry(**{**defaults, **fields})


def publish(arena: Arena, digest_id: str = "d1", agent_name: str = AGENT_NAME, **fields: Any) -> JournalEntry:
    given = entry(arena, digest_id, **fields)
    arena.store.publish(agent_name, given)
    return given


def recent(arena: Arena, limit: int = 5, agent_name: str = AGENT_NAME) -> list[str]:
    return [found.text for found in arena.store.recent_digests(agent_name, limit)]


def digest_turns(arena: Arena, *turn_ids: str, **fields: Any) -> None:
    for turn_id in turn_ids:
        arena.answer(turn_id)
        digest(arena, f"digest of {turn_id}", **fields)


def texts(arena: Arena, limit: int = 1_000) -> list[str]:
    return [found.text for found in journal(arena, limit)]


def unpublished(arena: Arena) -> list[str]:
    return [found.digest_id for found in arena.store.unpublished(SESSION)]


def test_journal_has_every_digest_oldest_first(arena: Arena) -> None:
    """Or the newest of them."""
    digest_turns(arena, "t1", "t2", "t3")
    assert texts(arena) == ["digest of t1", "digest of t2", "digest of t3"]
    assert texts(arena, limit=2) == ["digest of t2", "digest of t3"]
    assert texts(arena, limit=0) == []


def test_journal_of_an_unknown_session(arena: Arena) -> None:
    """It has none."""
    assert list(arena.store.journal("never")) == []
    assert list(arena.store.unpublished("never")) == []
    arena.store.published("never", "d1")


def test_journal_is_limited(make_arena: MakeArena) -> None:
    """The oldest go first, published or not."""
    arena = make_arena(journal_limit=2)
    arena.open()
    digest_turns(arena, "t1", "t2", "t3")
    assert texts(arena) == ["digest of t2", "digest of t3"]
    assert unpublished(arena) == ["d2", "d3"]


def test_old_digests_are_gone(make_arena: MakeArena) -> None:
    """They are not read any more, whatever was added since."""
    arena = make_arena(journal_seconds=400.0)
    arena.open()
    digest_turns(arena, "t1")
    arena.advance(300.0)
    digest_turns(arena, "t2")
    arena.advance(200.0)
    assert texts(arena) == ["digest of t2"]
    assert unpublished(arena) == ["d2"]


def test_digests_to_publish(arena: Arena) -> None:
    """All that are not marked, oldest first; with the last of them the due publication goes."""
    digest_turns(arena, "t1", "t2")
    assert unpublished(arena) == ["d1", "d2"]
    for _ in range(2):
        arena.store.published(SESSION, "d1")
    assert unpublished(arena) == ["d2"]
    assert [found.is_published for found in journal(arena)] == [True, False]
    assert arena.swept(DueKind.PUBLICATION) == [""]
    arena.store.published(SESSION, "d2")
    assert unpublished(arena) == []
    digest_turns(arena, "t3", is_empty=True)
    assert arena.swept(DueKind.PUBLICATION) == []


def test_publication_is_swept_until_it_is_done(make_arena: MakeArena) -> None:
    """A worker that died after the digest was accepted costs nothing but time."""
    arena = make_arena(sweep_first_seconds=0.05, sweep_last_seconds=0.05)
    arena.open()
    digest_turns(arena, "t1")
    for _ in range(2):
        assert arena.swept(DueKind.PUBLICATION) == [""]
        arena.advance(0.06)
    arena.store.published(SESSION, "d1")
    assert arena.swept(DueKind.PUBLICATION) == []


def test_publication_of_an_unknown_digest(arena: Arena) -> None:
    """It changes nothing."""
    digest_turns(arena, "t1")
    arena.store.published(SESSION, "d9")
    assert unpublished(arena) == ["d1"]
    assert arena.swept(DueKind.PUBLICATION) == [""]


def test_publication_of_what_grew_too_old_is_over(make_arena: MakeArena) -> None:
    """Who looks for something to publish and finds nothing is not sent again."""
    arena = make_arena(journal_seconds=0.1)
    arena.open(retention_seconds=0.0)
    digest_turns(arena, "t1")
    arena.store.close(SESSION)
    arena.advance(0.15)
    assert unpublished(arena) == []
    assert [item.kind for item in arena.sweep()] == [DueKind.RETENTION]


def test_published_digests_are_found_by_the_agent(arena: Arena) -> None:
    """Whichever session they are of, as they were given; no other agent finds them."""
    first = publish(arena, "d1", figures={"model": "m"}, at=arena.now() - 2)
    publish(arena, "d1", session_id="other", text="of another session", at=arena.now() - 1)
    assert recent(arena) == ["digest d1", "of another session"]
    [found, _] = arena.store.recent_digests(AGENT_NAME)
    assert (found.session_id, found.digest_id, found.first_seq, found.last_seq) == (SESSION, "d1", 1, 2)
    assert (found.figures, found.is_published) == ({"model": "m"}, True)
    assert found.at == pytest.approx(first.at, abs=1e-5)
    assert recent(arena, agent_name="critic") == []


def test_published_twice_is_once(arena: Arena) -> None:
    """A worker that is not sure publishes again."""
    given = publish(arena)
    arena.store.publish(AGENT_NAME, given)
    assert recent(arena) == ["digest d1"]


def test_newest_published_digests(arena: Arena) -> None:
    """By their time, whatever the order in which they came; oldest first."""
    now = arena.now()
    for age in (3, 1, 2, 4):
        publish(arena, f"d{age}", at=now - age)
    assert recent(arena, limit=2) == ["digest d2", "digest d1"]
    assert recent(arena, limit=0) == []


def test_published_digests_are_limited(make_arena: MakeArena) -> None:
    """The oldest go first."""
    arena = make_arena(journal_limit=2)
    now = arena.now()
    for age in (3, 1, 2):
        publish(arena, f"d{age}", at=now - age)
    assert recent(arena) == ["digest d2", "digest d1"]


def test_old_published_digests_are_gone(make_arena: MakeArena) -> None:
    """They are not read, and not taken either."""
    arena = make_arena(journal_seconds=400.0)
    publish(arena, "d1")
    arena.advance(300.0)
    publish(arena, "d2")
    publish(arena, "d0", at=arena.now() - 1_000)
    assert recent(arena) == ["digest d1", "digest d2"]
    arena.advance(200.0)
    assert recent(arena) == ["digest d2"]


def test_what_is_published_outlives_its_session(arena: Arena) -> None:
    """A purge takes the session's journal alone."""
    digest_turns(arena, "t1")
    [found] = arena.store.unpublished(SESSION)
    arena.store.publish(AGENT_NAME, found)
    while not arena.store.purge(SESSION):
        pass
    assert journal(arena) == []
    assert recent(arena) == ["digest of t1"]


def test_session_of_the_same_name_counts_from_one(arena: Arena) -> None:
    """After a purge its first digest takes the place of the other first one."""
    publish(arena, text="of the old session", at=arena.now() - 1)
    publish(arena, text="of the new session")
    assert recent(arena) == ["of the new session"]


@pytest.mark.parametrize(
    "bad",
    [
        {"session_id": "a b"},
        {"digest_id": ""},
        {"text": " "},
        {"text": "\ud800"},
        {"first_seq": -1},
        {"at": float("nan")},
        {"figures": {"x": float("inf")}},
    ],
    ids=["session", "digest", "blank", "surrogate", "span", "time", "figures"],
)
def test_bad_entries(arena: Arena, bad: dict[str, Any]) -> None:
    """Nothing of them is published."""
    with pytest.raises(InvalidInput):
        publish(arena, **bad)
    assert recent(arena) == []


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "é"])
def test_bad_names(arena: Arena, bad: str) -> None:
    """They never reach a key."""
    with pytest.raises(InvalidInput):
        publish(arena, agent_name=bad)
    with pytest.raises(InvalidInput):
        arena.store.recent_digests(bad)
    with pytest.raises(InvalidInput):
        arena.store.published(SESSION, bad)
    for read in (arena.store.journal, arena.store.unpublished):
        with pytest.raises(InvalidInput):
            read(bad)


def test_bad_limits(arena: Arena) -> None:
    """A number of digests is not negative."""
    with pytest.raises(InvalidInput):
        arena.store.journal(SESSION, -1)
    with pytest.raises(InvalidInput):
        arena.store.recent_digests(AGENT_NAME, -1)


@pytest.mark.parametrize("text", ["\x00 NUL", "好 🙂", "x" * 16_384], ids=["nul", "wide", "16KB"])
def test_odd_but_good_digests(arena: Arena, text: str) -> None:
    """They come back as they were, from either journal."""
    talk(arena)
    digest(arena, text)
    [found] = arena.store.unpublished(SESSION)
    arena.store.publish(AGENT_NAME, found)
    assert (texts(arena), recent(arena)) == ([text], [text])
