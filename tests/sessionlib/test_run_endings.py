"""Runs that do not go as they should: interrupted, refused, misinformed, or under a new version of their agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import ProviderUnavailable, StoreError, StoreUnavailable
from sessionlib.inputs import open_request, submit_request
from sessionlib.policies.log_merge import LogMerge
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, OnDelta, Provider, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import Engine, Held, run_disposals, run_rotation, run_turn, unobserved
from sessionlib.stores.contract import Committed, Grant, RoundCommit
from sessionlib.stores.sqlite import SqliteStore
from sessionlib.tokens import Usage

SESSION = "s"
LONG = "The build of module alpha-7 failed with error 1234 in src/alpha.py. " * 12
DENSE = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="


class Lease:
    """A lease that is lost when a test says so."""

    is_lost = False


class Clock:
    """A clock that moves when told."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """One session of one agent in memory, and an engine over it."""

    def __init__(self, agent: Agent, provider: Provider, store: SqliteStore | None = None) -> None:
        self.agent, self.clock, self.lease = agent, Clock(), Lease()
        self.store = store or SqliteStore(clock=self.clock)
        self.announced: list[Committed] = []
        catalog = Catalog({agent.name: agent}, {"default": provider})
        self.engine = Engine(self.store, catalog, self._hold, unobserved, self._announce)
        self.store.open(open_request(SESSION, agent, (), pin=False))

    @contextmanager
    def _hold(self, _grant: Grant) -> Iterator[Held]:
        yield self.lease

    def _announce(self, _session_id: str, committed: Committed) -> None:
        self.announced.append(committed)

    def run(self, turn_id: str, message: str = "hello") -> str:
        """Submit a turn and run it; how that ended."""
        self.store.submit(submit_request(SESSION, self.agent, message, None, turn_id=turn_id))
        return self.run_again()

    def run_again(self) -> str:
        return run_turn(self.engine, SESSION).status


def agent(**fields: Any) -> Agent:
    return Agent(name="coder", **({"window_tokens": 4_000} | fields))


def test_store_that_refuses_for_a_moment_ends_no_turn() -> None:
    """A round that could not be recorded is tried again; the turn is not failed for it, and its reply is kept."""

    class RefusesOnce(SqliteStore):
        has_refused = False

        def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
            if not self.has_refused:
                self.has_refused = True
                raise StoreError("refused")
            return super().commit(grant, commit)

    clock, provider = Clock(), ScriptedProvider()
    stage = Stage(agent(), provider, RefusesOnce(clock=clock))
    assert stage.run("t1") == "retried"
    clock.now += 60
    assert stage.run_again() == "answered"
    assert len(provider.requests) == 1


def test_step_that_cannot_be_saved_is_tried_again() -> None:
    """What the model asked for is made durable before a tool runs; a store that refuses it ends no turn."""

    class RefusesOnce(SqliteStore):
        has_refused = False

        def save_step(self, *args: Any, **named: Any) -> int:
            if not self.has_refused:
                self.has_refused = True
                raise StoreError("refused")
            return super().save_step(*args, **named)

    ran: list[str] = []

    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    call = ModelReply(text="", calls=(CallRequest(call_id="c", name="look", arguments="{}"),))
    clock = Clock()
    stage = Stage(agent(tools=(look,)), ScriptedProvider([call, "done"]), RefusesOnce(clock=clock))
    assert (stage.run("t1"), ran) == ("retried", [])
    clock.now += 60
    assert (stage.run_again(), ran) == ("answered", ["look"])


def test_interrupted_run_gives_its_lane_back() -> None:
    """After Ctrl-C the turn goes on at once, not when a lease has run out."""

    def interrupted_first(_: ModelRequest) -> str:
        if not provider.requests[1:]:
            raise KeyboardInterrupt
        return "done"

    provider = ScriptedProvider(interrupted_first)
    stage = Stage(agent(), provider)
    with pytest.raises(KeyboardInterrupt):
        stage.run("t1")
    assert stage.run_again() == "answered"


def test_a18_46_release_that_fails_does_not_take_the_place_of_what_came_before() -> None:
    """Interrupted while the store is away: the caller is told of the interruption, not of the lane that stays taken."""

    class Away(SqliteStore):
        def release(self, grant: Grant) -> None:
            raise StoreUnavailable("gone")

    def interrupted(_: ModelRequest) -> str:
        raise KeyboardInterrupt

    clock = Clock()
    stage = Stage(agent(), ScriptedProvider(interrupted), Away(clock=clock))
    with pytest.raises(KeyboardInterrupt):
        stage.run("t1")


def test_a18_21_message_and_answer_are_recorded_by_one_append() -> None:
    """One write a round holds all that the round adds: the history is not gone through once for each entry."""
    commits: list[RoundCommit] = []

    class Noting(SqliteStore):
        def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
            commits.append(commit)
            return super().commit(grant, commit)

    stage = Stage(agent(), ScriptedProvider(), Noting())
    assert stage.run("t1") == "answered"
    (commit,) = commits
    assert commit.entries == (Entry.user("hello"), Entry.assistant("Acknowledged: hello"))
    assert stage.store.snapshot(SESSION).layout.live.entries == commit.entries


def test_provider_that_returns_no_reply_ends_the_turn() -> None:
    """It is asked once: asking it again would not help. Nothing of the turn is recorded."""

    class Silent(ScriptedProvider):
        def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
            super().complete(request, on_delta)
            return None  # type: ignore[return-value]

    provider = Silent()
    stage = Stage(agent(), provider)
    assert (stage.run("t1"), len(provider.requests)) == ("failed", 1)
    view = stage.store.turn(SESSION, "t1")
    assert view is not None
    assert (view.error_code, view.error) == (
        "provider_rejected",
        "the provider returned NoneType in the place of a reply",
    )
    assert len(stage.store.snapshot(SESSION).layout.live) == 0


def test_tool_that_exits_gives_an_error_to_the_model() -> None:
    """`sys.exit` inside a tool ends the tool, not the worker, and not again and again."""

    def leave() -> None:
        """Leave."""
        raise SystemExit(3)

    call = ModelReply(text="", calls=(CallRequest(call_id="c", name="leave", arguments="{}"),))
    stage = Stage(agent(tools=(leave,)), ScriptedProvider([call, "done"]))
    assert stage.run("t1") == "answered"
    assert stage.store.snapshot(SESSION).layout.live.entries[2].text == "SystemExit: 3"


def test_provider_that_asks_for_a_long_wait_is_given_it() -> None:
    """Three tries within a second would only prolong a rate limit: the work is due when the provider said."""
    provider = ScriptedProvider(failures=[ProviderUnavailable("rate limit", retry_after_seconds=30.0)])
    stage = Stage(agent(), provider)
    assert (stage.run("t1"), len(provider.requests)) == ("retried", 1)
    stage.clock.now += 29
    assert stage.run_again() == "nothing"
    stage.clock.now += 2
    assert stage.run_again() == "answered"


def test_provider_is_not_asked_again_once_the_lease_is_lost() -> None:
    """A cancelled turn's worker stops with the call that it makes: nothing is tried again."""

    def cancelled_meanwhile(_: ModelRequest) -> ProviderUnavailable:
        stage.store.cancel(SESSION, "t1")
        stage.lease.is_lost = True
        return ProviderUnavailable("busy")

    provider = ScriptedProvider(failures=cancelled_meanwhile)
    stage = Stage(agent(), provider)
    assert (stage.run("t1"), len(provider.requests)) == ("lost", 1)


def test_each_attempt_of_a_call_ends_with_the_turn() -> None:
    """What was waited for the first try is not had again by the second."""
    provider = ScriptedProvider(failures=[ProviderUnavailable("busy"), None])
    assert Stage(agent(turn_timeout_seconds=60.0), provider).run("t1") == "answered"
    first, second = (request.timeout_seconds for request in provider.requests)
    assert second < first <= 60.0


def test_rotation_that_falls_due_inside_a_turn_is_announced_at_once() -> None:
    """A turn of many rounds does not keep the hint to itself until its end."""

    def work() -> str:
        """Do it."""
        return LONG * 4

    call = ModelReply(text="", calls=(CallRequest(call_id="c", name="work", arguments="{}"),))
    stage = Stage(agent(tools=(work,)), ScriptedProvider([call, call, call, call, "done"]))
    assert stage.run("t1") == "answered"
    assert [committed.rotation_id for committed in stage.announced if committed.rotation_id] == ["r1"]


def test_a18_35_provider_session_that_stays_is_not_told_as_let_go() -> None:
    """Each is tried, whatever became of the one before; what failed raises and stays due: attempted is not done."""
    provider = ScriptedProvider(shape=Shape.HELD, disposal_failures=1)
    stage = Stage(agent(), provider)
    for number in range(2):
        stage.run(f"t{number}", LONG)
        stage.run(f"u{number}", LONG)
        stage.store.request_rotation(SESSION, "asked")
        run_rotation(stage.engine, SESSION)
    with pytest.raises(ProviderUnavailable):
        run_disposals(stage.engine, SESSION)
    assert len(stage.store.handles_to_dispose(SESSION)) == 1
    assert run_disposals(stage.engine, SESSION) == 1


@pytest.mark.parametrize("factor", [10, 1_000])
def test_session_survives_reports_that_make_no_sense(factor: int) -> None:
    """A provider that reports many times what was sent makes requests smaller; it ends no session."""
    provider = ScriptedProvider(usage=lambda _, usage: Usage(usage.prompt_tokens * factor))
    stage = Stage(agent(instructions="You fix builds. " * 20), provider)
    for number in range(30):
        assert stage.run(f"t{number}", f"{number} {LONG[:400]}") == "answered"
    assert stage.store.view(SESSION).calibration > 1


@pytest.mark.parametrize("calibration", [0.5, 1.0, 3.0, 1_000_000.0])
@pytest.mark.parametrize("window_tokens", [2_000, 4_000, 128_000])
@pytest.mark.parametrize("policy", [LogMerge(), LogMerge(tail_tokens=300, record_tokens=400)], ids=["shares", "tokens"])
def test_whatever_was_learned_there_is_room(policy: LogMerge, window_tokens: int, calibration: float) -> None:
    """There are budgets at every calibration, and as far as it can be believed they keep to the window."""
    made = agent(window_tokens=window_tokens, policy=policy)
    budgets = made.session_budgets(counter_named("characters"), calibration)
    assert 0 < budgets.line_tokens <= budgets.limit_tokens
    assert (budgets.fixed_tokens + budgets.limit_tokens) * min(calibration, 3.0) <= window_tokens


def test_new_version_counts_older_entries_anew() -> None:
    """Another counter and another result cap: what stands in the window is sized as the new version sends it."""
    stage = Stage(agent(window_tokens=12_000, counter="characters"), ScriptedProvider())
    for number in range(9):
        assert stage.run(f"old{number}", f"{number} {DENSE * 30}") == "answered"
    new, counter = agent(window_tokens=6_000, counter="o200k_base"), counter_named("o200k_base")
    provider = ScriptedProvider(counter=counter, window_tokens=6_000)
    after = Stage(new, provider, stage.store)
    for number in range(3):
        assert after.run(f"new{number}", f"{number} {DENSE * 30}") == "answered"
        request = provider.requests[-1]
        assert request.counted_tokens == new.fixed_tokens(counter) + sum(map(counter.entry, request.entries))
    assert len(provider.requests) == 3


def test_rotation_after_a_new_version_leaves_what_the_new_one_may_hold() -> None:
    """The tail is chosen by the new version's sizes."""
    stage = Stage(agent(window_tokens=12_000, counter="characters"), ScriptedProvider())
    for number in range(12):
        stage.run(f"old{number}", f"{number} {DENSE * 10}")
    new, counter = agent(window_tokens=6_000, counter="o200k_base"), counter_named("o200k_base")
    after = Stage(new, ScriptedProvider(), stage.store)
    after.store.request_rotation(SESSION, "asked")
    assert run_rotation(after.engine, SESSION).status == "adopted"
    live = after.store.snapshot(SESSION).layout.live
    assert 0 < sum(map(counter.entry, live.entries)) <= new.budgets(counter).stretched_tail_tokens
