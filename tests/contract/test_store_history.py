"""Contract, always: archive and live entries are everything that was committed, in order, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessionlib.entries import Entry
from sessionlib.stores.contract import Adoption, Grant, Lane
from tests.contract.arena import SESSION, SIZE_TOKENS, Arena
from tests.contract.conftest import MakeArena

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

OPERATIONS = st.one_of(
    st.tuples(st.just("begin_turn"), TEXTS.filter(str.strip)),
    st.tuples(st.just("commit_round"), TEXTS),
    st.tuples(st.just("answer"), TEXTS),
    st.tuples(st.sampled_from(["cancel_turn", "give_turn_back"]), st.none()),
    st.tuples(st.just("begin_rotation"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["adopt", "cancel_rotation"]), st.none()),
)


@dataclass
class Model:
    """A list of entries is all that a session's history has to be; lanes are tried whether or not they are free."""

    arena: Arena
    entries: list[Entry] = field(default_factory=list)
    turn: Grant | None = None
    rounds: int = 0
    turn_count: int = 0
    rotation: tuple[Grant, Adoption] | None = None

    def begin_turn(self, message: str) -> None:
        if self.turn is None:
            self.turn_count += 1
            self.arena.submit(f"t{self.turn_count}", message)
            self.turn, self.rounds = self.arena.begin(), 0

    def commit_round(self, text: str, *, is_last: bool = False) -> None:
        if self.turn is None:
            return
        commit = self.arena.round(self.turn, number=self.rounds, texts=(text,))
        if is_last:
            self.arena.finish(self.turn, number=self.rounds, texts=(text,))
            self.turn = None
        else:
            for _time in range(2):
                self.arena.store.commit(self.turn, commit)
        self.entries.extend(commit.entries)
        self.rounds += 1

    def answer(self, text: str) -> None:
        self.commit_round(text, is_last=True)

    def cancel_turn(self, _: None) -> None:
        if self.turn is not None:
            self.arena.store.cancel(SESSION, self.turn.work_id)
            self.turn = None

    def give_turn_back(self, _: None) -> None:
        if self.turn is not None:
            self.arena.store.release(self.turn)
            self.turn = self.arena.begin()
            assert self.turn.first_round == self.rounds

    def begin_rotation(self, count: int) -> None:
        if self.rotation is None:
            self.arena.store.request_rotation(SESSION, "test")
            grant = self.arena.begin(Lane.ROTATION)
            leaving = min(count, len(grant.snapshot.layout.live))
            self.rotation = grant, self.arena.adoption(grant, leaving)

    def adopt(self, _: None) -> None:
        if self.rotation is not None:
            for _time in range(2):
                assert self.arena.store.adopt(*self.rotation).is_adopted
            self.rotation = None

    def cancel_rotation(self, _: None) -> None:
        self.arena.store.cancel_rotation(SESSION)
        self.rotation = None

    def check(self) -> None:
        assert self.arena.history() == self.entries
        view = self.arena.store.view(SESSION)
        assert view.next_seq == len(self.entries) + 1
        assert view.live_tokens == (view.next_seq - view.live_from) * SIZE_TOKENS


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(operations=st.lists(OPERATIONS, min_size=5, max_size=25))
def test_nothing_is_lost_doubled_or_reordered(make_arena: MakeArena, operations: list[tuple[str, object]]) -> None:
    """Whatever turns and rotations do, in whatever order, each commit and adopt sent twice."""
    model = Model(make_arena())
    model.arena.open()
    for name, argument in operations:
        getattr(model, name)(argument)
        model.check()
