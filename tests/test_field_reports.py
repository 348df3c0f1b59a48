"""Public faults of comparable systems, each as the behaviour that is right here. Names carry the reports' numbers.

Others stand beside the code that they concern: `grep -r "def test_t[0-9]" tests`. `test_accounted_for.py` looks that
every report is one or the other, or has its reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from sessionlib.agent import Agent
from sessionlib.entries import EntryKind
from sessionlib.errors import CannotConverge, ProviderRejected, ProviderUnavailable
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.tiers import Tiers
from sessionlib.providers.contract import ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.session import Session
from sessionlib.stores.contract import DueItem
from sessionlib.stores.sqlite import SqliteStore
from sessionlib.summaries.purposes import Purpose
from sessionlib.workloads import ConsolidationWorkload
from tests.sessionlib.summarizing import summary
from tests.waiting import wait_for
from workers.app import app
from workers.dispatch import RUN_ROTATION
from workers.reaper import HINTS
from workers.settings import Settings
from workers.supervisor import worker_command

LONG = "The build of module alpha-7 failed with error 1234 in src/alpha.py. " * 12
BY_MODEL = ConsolidationWorkload(summarizer="model", provider="summaries")


def agent(**fields: object) -> Agent:
    return Agent(name="coder", **{"window_tokens": 4_000, **fields})


def summarized(
    summarize: Callable[[ModelRequest], str] = lambda request: "alpha-7 failed with error 1234",
    failures: Callable[[ModelRequest], Exception | None] = lambda request: None,
) -> dict[str, ScriptedProvider]:
    return {"default": ScriptedProvider(), "summaries": ScriptedProvider(summarize, failures=failures)}


def send_until(session: Session, condition: Callable[[], object]) -> int:
    """Send long messages until *condition*; how many."""
    count = 0
    while not condition():
        session.send(f"{count} {LONG}")
        count += 1
        assert count < 400, "the condition never came"
    return count


def test_t02_rotation_begins_long_before_the_window_is_full() -> None:
    """The rotation line is 70 % of the window; what waits for a rotation is nobody."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        send_until(session, lambda: session.view().rotation_id or session.view().epoch)
        assert session.view().conversation_tokens < 0.85 * 4_000


def test_t03_messages_are_taken_while_a_consolidation_runs() -> None:
    """Input is not frozen: turns of that time are in the history behind the record."""
    released, asked = threading.Event(), threading.Event()

    def summarize(request: ModelRequest) -> str:
        asked.set()
        assert released.wait(60)
        return "alpha-7 failed with error 1234"

    with Session(agent(consolidation=BY_MODEL), summarized(summarize)) as session:
        send_until(session, asked.is_set)
        session.send("sent meanwhile")
        released.set()
        wait_for(lambda: session.view().epoch, what="the rotation")
        assert "sent meanwhile" in [entry.text for entry in session.layout().live.entries]


def test_t04_consolidation_that_was_saved_is_used_when_the_rotation_runs_again(tmp_path: Path) -> None:
    """A rotation that was cut off after its first consolidations asks only for the rest."""
    is_down = threading.Event()
    is_down.set()
    asked: list[str] = []

    def summarize(request: ModelRequest) -> str:
        asked.append(request.entries[-1].text)
        if len(asked) > 1 and is_down.is_set():
            raise ProviderUnavailable("the summarizer is down")
        return summary(Purpose.CONTINUATION)

    small_window = BY_MODEL.model_copy(update={"window_tokens": 4_000})
    providers = summarized(summarize)
    with Session(agent(consolidation=small_window), providers, path=tmp_path / "s.db", grace_seconds=0.1) as session:
        send_until(session, lambda: len(asked) > 1)
    is_down.clear()
    with Session(agent(consolidation=small_window), providers, path=tmp_path / "s.db") as session:
        session.rotate(60)
        assert session.view().epoch >= 1
    assert asked.count(asked[0]) == 1


def test_t05_no_turn_asks_a_summarizer() -> None:
    """Every consolidation is asked for on the rotations' own thread; what comes of it is put in place by comparing."""
    threads: set[str] = set()

    def summarize(request: ModelRequest) -> str:
        threads.add(threading.current_thread().name)
        return "alpha-7 failed with error 1234"

    with Session(agent(consolidation=BY_MODEL), summarized(summarize)) as session:
        send_until(session, lambda: session.view().epoch >= 3)
    assert threads == {"rotations"}


def test_t06_queued_turns_drain_while_a_consolidation_runs() -> None:
    """Four callers send at once: all are answered before the summarizer is, and stand behind its record afterwards."""
    asked, released = threading.Event(), threading.Event()

    def summarize(request: ModelRequest) -> str:
        asked.set()
        assert released.wait(60)
        return "alpha-7 failed with error 1234"

    with Session(agent(consolidation=BY_MODEL), summarized(summarize)) as session:
        send_until(session, asked.is_set)
        with ThreadPoolExecutor(4) as callers:
            replies = list(callers.map(session.send, ("one", "two", "three", "four")))
        assert [reply.text for reply in replies] == [
            f"Acknowledged: {word}" for word in ("one", "two", "three", "four")
        ]
        assert session.view().epoch == 0
        released.set()
        wait_for(lambda: session.view().epoch, what="the rotation")
        assert {"one", "two", "three", "four"} <= {entry.text for entry in session.layout().live.entries}


def test_t07_rotations_run_in_no_process_that_answers() -> None:
    """Their queue is served by the background worker alone, in processes of their own."""
    queue = app.amqp.router.route({}, RUN_ROTATION)["queue"].name
    front, background = (worker_command(role, Settings()) for role in ("front", "background"))
    assert queue not in front[front.index("-Q") + 1].split(",")
    assert queue in background[background.index("-Q") + 1].split(",")
    assert background[background.index("-P") + 1] == "prefork"


def test_t08_summarizer_that_always_fails_costs_a_bounded_number_of_calls() -> None:
    """Above the line for ever: answers go on, the rotation is left alone for a while after it failed."""
    providers = summarized(failures=lambda request: ProviderRejected("never"))
    with Session(agent(consolidation=BY_MODEL), providers) as session:
        send_until(session, lambda: [e for e in session.audit() if e.kind == "rotation_failed"])
        for number in range(60):
            assert session.send(f"{number} {LONG}").text.startswith("Acknowledged")
        assert session.view().rotation_state.startswith("backing off")
        assert len(providers["summaries"].requests) == 1


def test_t21_epoch_and_layout_move_together() -> None:
    """No reader sees the new epoch with the old layout, or the reverse."""
    seen: list[tuple[int, int]] = []
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        for number in range(40):
            session.send(f"{number} {LONG}")
            snapshot = session.store.snapshot(session.session_id)
            seen.append((snapshot.epoch, max([r.last_seq for r in snapshot.layout.records], default=0)))
            assert snapshot.layout.live.first_seq == seen[-1][1] + 1
    assert seen == sorted(seen)


def test_t30_overhead_above_the_line_is_refused() -> None:
    """Instructions that fill the window would rotate for ever: refused at construction, with the arithmetic."""
    with pytest.raises(CannotConverge, match="it takes"):
        Session(agent(instructions=LONG * 20), {"default": ScriptedProvider()})


def test_t31_rotation_without_gain_is_not_repeated() -> None:
    """Asked to rotate what cannot be shortened, it says so; twice running it backs off."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        session.send("hello")
        for _ in range(2):
            event = session.rotate(30)
            assert event is not None
            assert event.data["code"] == "no_gain"
        assert session.view().rotation_state == "backing off: no_gain"


@pytest.mark.parametrize("policy", [LogMerge(), Tiers()])
def test_t32_rotation_lands_well_below_its_line(policy: LogMerge | Tiers) -> None:
    """Tokens after are at most 0.8 of the line, with a summarizer that hardly shortens."""
    providers = summarized(lambda request: request.entries[-1].text)
    with Session(agent(policy=policy, consolidation=BY_MODEL), providers) as session:
        send_until(session, lambda: session.view().epoch >= 4)
        figures = [event.data for event in session.audit() if event.kind == "rotated"]
    assert all(outcome["tokens_after"] <= 0.8 * 0.7 * 4_000 for outcome in figures)


def test_t33_each_rotation_costs_a_bounded_number_of_calls() -> None:
    """Far fewer summarizer calls than turns, whatever the summarizer answers."""
    providers = summarized(lambda request: "")
    with Session(agent(consolidation=BY_MODEL), providers) as session:
        turns = send_until(session, lambda: session.view().epoch >= 5)
        assert len(providers["summaries"].requests) <= turns


def test_t44_rotations_do_not_toggle_around_the_line() -> None:
    """Several turns lie between two rotations: the prompt's prefix is not broken all the time."""
    epochs: list[int] = []
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        while session.view().epoch < 6:
            session.send(LONG)
            wait_for(lambda: session.view().rotation_id is None, what="the rotation to end")
            epochs.append(session.view().epoch)
    changes = [turn for turn, (before, after) in enumerate(pairwise(epochs)) if before != after]
    assert min(later - earlier for earlier, later in pairwise(changes)) >= 3


def test_t51_request_to_the_summarizer_is_free_of_tool_messages() -> None:
    """Tool calls reach it as text in one user message: nothing there can be an orphan."""
    providers = summarized()
    with Session(agent(consolidation=BY_MODEL), providers) as session:
        send_until(session, lambda: session.view().epoch)
    for request in providers["summaries"].requests:
        assert [entry.kind for entry in request.entries] == [EntryKind.USER]
        assert request.tools == ()


def test_t68_everything_that_leaves_was_shown_to_the_summarizer() -> None:
    """Each message that is in no window any more stood in a consolidation request."""
    providers = summarized()
    with Session(agent(consolidation=BY_MODEL), providers) as session:
        send_until(session, lambda: session.view().epoch >= 2)
        first_live = session.layout().live.first_seq
        shown = "\n".join(request.entries[-1].text for request in providers["summaries"].requests)
    assert first_live > 1
    for number in range((first_live - 1) // 2):
        assert f"USER: {number} The build" in shown


def test_t75_record_is_stored_with_what_it_stands_for(tmp_path: Path) -> None:
    """After a restart records and their spans are there, and nothing between them and the live entries is missing."""
    with Session(agent(), {"default": ScriptedProvider()}, path=tmp_path / "s.db") as session:
        send_until(session, lambda: session.view().epoch >= 3)
    with Session(agent(), {"default": ScriptedProvider()}, path=tmp_path / "s.db") as session:
        layout = session.layout()
    spans = [(record.first_seq, record.last_seq) for record in layout.records]
    assert spans[0][0] == 1
    assert all(after[0] == before[1] + 1 for before, after in pairwise(spans))
    assert layout.live.first_seq == spans[-1][1] + 1


def test_t86_summarizer_tokens_are_accounted_apart() -> None:
    """A rotation's figures say what its consolidations cost; the turns' own usage does not hold them."""
    providers = summarized()
    with Session(agent(consolidation=BY_MODEL), providers) as session:
        send_until(session, lambda: session.view().epoch)
        (figures,) = [event.data for event in session.audit() if event.kind == "rotated"][:1]
        answer = session.send("after").answer
    assert figures["summarizer_prompt_tokens"] > 0
    assert answer.prompt_tokens <= 4_000


def test_t105_queues_are_separate_and_without_priorities() -> None:
    """Flower sees the length of each queue."""
    queues = {queue.name: queue.queue_arguments for queue in app.conf.task_queues}
    assert queues.keys() == {"turns", "rotations", "summaries", "upkeep"}
    assert not any(queues.values())
    assert app.conf.task_queue_max_priority is None


def test_t106_hints_carry_ids_only() -> None:
    """Every message that the reaper sends is a handful of ids."""
    for kind, hint in HINTS.items():
        _, ids = hint(DueItem(session_id="s", kind=kind, id="i"))
        assert set(ids) <= {"session_id", "turn_id", "rotation_id", "job_id", "orphan_id"}


def test_t119_figures_are_there_after_a_rotation() -> None:
    """A rotation leaves its outcome in the audit, and the view counts from it."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        send_until(session, lambda: session.view().epoch)
        (figures,) = [event.data for event in session.audit() if event.kind == "rotated"][:1]
        assert {"tokens_before", "tokens_after", "consolidation_count", "epoch", "reason"} <= figures.keys()
        assert session.view().archived_bytes > 0


def test_t120_policy_belongs_to_the_agent() -> None:
    """Two agents of one store age differently."""
    with (
        Session(agent(policy=LogMerge()), {"default": ScriptedProvider()}) as merging,
        Session(agent(policy=Tiers(), window_tokens=8_000), {"default": ScriptedProvider()}) as tiered,
    ):
        send_until(merging, lambda: merging.view().epoch)
        assert tiered.agent.policy.kind == "tiers"
        assert tiered.agent.digest != merging.agent.digest


def test_t121_interrupted_rotation_leaves_the_old_layout(tmp_path: Path) -> None:
    """Cut off in the middle of a consolidation: records, live entries and epoch are as before."""
    asked, released = threading.Event(), threading.Event()

    def summarize(request: ModelRequest) -> str:
        asked.set()
        released.wait(60)
        raise ProviderUnavailable("gone")

    providers = summarized(summarize)
    with Session(agent(consolidation=BY_MODEL), providers, path=tmp_path / "s.db", grace_seconds=0.1) as session:
        send_until(session, asked.is_set)
        before = session.layout()
    released.set()
    with SqliteStore(tmp_path / "s.db") as store:
        assert store.snapshot("session").layout == before
        assert store.view("session").epoch == 0
