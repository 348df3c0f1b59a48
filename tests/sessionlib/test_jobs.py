"""Handoffs and digests of a Session: what they are made from, how they end, and that the session is left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sessionlib.agent import Agent, Journal
from sessionlib.entries import Entry
from sessionlib.errors import HandoffConflict, InvalidInput, ProviderRejected, ProviderUnavailable, SummaryFailed
from sessionlib.jobs import Job, digest_evidence, handoff_evidence, summarize
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider, echo
from sessionlib.session import Session
from sessionlib.steps import Captured, EffectResult, SummaryCall, drive
from sessionlib.stores.contract import Lane
from sessionlib.summaries.contract import Settlement, Workload
from sessionlib.summaries.evidence import Evidence, Item, Provenance
from sessionlib.summaries.purposes import HEADINGS, Purpose
from sessionlib.tools.declaration import Tool
from sessionlib.workloads import SummaryWorkload
from tests.waiting import wait_for

TASK = "write the tests"


def summary(purpose: Purpose, said: str = "the pump is blue") -> str:
    """A valid summary that says something under its first heading."""
    first, *rest = HEADINGS[purpose]
    empty = "- none" if purpose is Purpose.DIGEST else "- (none)"
    return "\n".join([f"## {first}\n- {said}", *(f"## {heading}\n{empty}" for heading in rest)])


EMPTY_DIGEST = "\n".join(f"## {heading}\n- none" for heading in HEADINGS[Purpose.DIGEST])


class Summaries:
    """A provider of summaries that keeps what it is asked, and answers as told."""

    def __init__(self, *answers: str | Exception | Callable[[ModelRequest], ModelReply]) -> None:
        self.asked: list[ModelRequest] = []
        self._answers = list(answers)
        self.provider = ScriptedProvider(self._answer)

    def _answer(self, request: ModelRequest) -> ModelReply | str:
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


BY_MODEL = SummaryWorkload(provider="summaries", model="s")


def agent_with(**fields: Any) -> Agent:
    return Agent(name="coder", window_tokens=64_000, counter="characters", handoff=BY_MODEL, **fields)


def session_of(summaries: Summaries, path: str | Path = ":memory:", **fields: Any) -> Session:
    providers = {"default": ScriptedProvider(echo), "summaries": summaries.provider}
    return Session(agent_with(**fields), providers, path=path)


def journal_of(**when: Any) -> Journal:
    return Journal(digest=BY_MODEL, **when)


# Handoffs -----------------------------------------------------------------------------------------------------------


def test_a_handoff_tells_what_its_model_made_of_the_session() -> None:
    """Its model is asked once, without tools, with the task and every entry; its text is validated and returned."""
    summaries = Summaries(summary(Purpose.HANDOFF))
    with session_of(summaries) as session:
        session.send("the pump is blue")
        handoff = session.handoff(TASK, guidance="only the pump")
    assert handoff.text == summary(Purpose.HANDOFF)
    assert (handoff.task, handoff.first_seq, handoff.last_seq) == (TASK, 1, 2)
    assert (handoff.provider, handoff.model, handoff.unsupported_values) == ("summaries", "s", ())
    (request,) = summaries.asked
    assert request.tools == ()
    document = request.entries[0].text
    assert TASK in document
    assert "only the pump" in document
    assert "provenance: user" in document


def test_a_handoff_leaves_the_session_as_it_was() -> None:
    """Neither its entries nor its layout change, and the next turn is a turn like any other."""
    with session_of(Summaries(summary(Purpose.HANDOFF))) as session:
        session.send("one")
        before, view = session.layout(), session.view()
        session.handoff(TASK)
        assert session.layout() == before
        assert session.view().next_seq == view.next_seq
        assert session.send("two").text


def test_a_turn_is_answered_while_a_handoff_is_made() -> None:
    """The lanes do not know each other."""
    asked, released = threading.Event(), threading.Event()

    def slow(_: ModelRequest) -> ModelReply:
        asked.set()
        assert released.wait(30.0)
        return ModelReply(text=summary(Purpose.HANDOFF))

    with session_of(Summaries(slow)) as session:
        session.send("one")
        making = threading.Thread(target=session.handoff, args=(TASK,))
        making.start()
        assert asked.wait(30.0)
        assert session.send("two").text
        released.set()
        making.join(30.0)
        assert not making.is_alive()


def test_the_same_handoff_is_asked_for_once(tmp_path: Path) -> None:
    """An id that is known answers with what it led to, in another process too, and another task is refused."""
    summaries = Summaries(summary(Purpose.HANDOFF))
    with session_of(summaries, tmp_path / "s.db") as session:
        session.send("one")
        first = session.handoff(TASK, handoff_id="h1")
    with session_of(summaries, tmp_path / "s.db") as session:
        assert session.handoff(TASK, handoff_id="h1") == first
        with pytest.raises(HandoffConflict, match="handoff h1"):
            session.handoff("another task", handoff_id="h1")
    assert len(summaries.asked) == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("nothing of the kind", "summary_validation"),
        ("", "summary_validation"),
        (summary(Purpose.CONTINUATION), "summary_validation"),
        (ProviderRejected("no such model"), "summary_provider"),
    ],
)
def test_a_handoff_that_fails_says_why_and_changes_nothing(answer: str | Exception, code: str) -> None:
    """Once: a refused answer is not asked for again, and the session is as it was."""
    summaries = Summaries(answer)
    with session_of(summaries) as session:
        session.send("one")
        before = session.layout()
        with pytest.raises(SummaryFailed) as failed:
            session.handoff(TASK, handoff_id="h1")
        assert failed.value.reason_code == code
        assert session.layout() == before
        with pytest.raises(SummaryFailed):
            session.handoff(TASK, handoff_id="h1")
    assert len(summaries.asked) == 1


def test_a_provider_that_is_away_is_asked_again() -> None:
    """A few times at once, as everywhere."""
    summaries = Summaries(ProviderUnavailable("overloaded"), summary(Purpose.HANDOFF))
    with session_of(summaries) as session:
        session.send("one")
        assert session.handoff(TASK).text == summary(Purpose.HANDOFF)
    assert [request.idempotency_key for request in summaries.asked] == [summaries.asked[0].idempotency_key] * 2


@pytest.mark.parametrize(
    ("task", "guidance", "field"),
    [
        ("", "", "task"),
        (" \n", "", "task"),
        ("x" * 16_001, "", "task"),
        ("t", "g" * 4_001, "guidance"),
        ("\0", "", "task"),
    ],
)
def test_a_bad_task_is_refused_before_anything_is_stored(task: str, guidance: str, field: str) -> None:
    """Naming the field; the session is usable afterwards."""
    with session_of(Summaries(summary(Purpose.HANDOFF))) as session:
        session.send("one")
        with pytest.raises(InvalidInput) as refused:
            session.handoff(task, guidance=guidance, handoff_id="h1")
        assert refused.value.field == field
        assert session.store.job(session.session_id, Lane.HANDOFF, "h1") is None
        assert session.handoff(TASK, handoff_id="h1").text


def test_a_session_without_entries_has_nothing_to_hand_off() -> None:
    """Said at once, and no model is asked."""
    summaries = Summaries(summary(Purpose.HANDOFF))
    with session_of(summaries) as session, pytest.raises(InvalidInput, match="entries"):
        session.handoff(TASK)
    assert summaries.asked == []


def test_instructions_that_a_tool_returned_are_handed_off_whole() -> None:
    """A tool declared `instructions=True`: its results are labelled, and no cap cuts them."""
    skill = "Always write the tests first. " * 2_000

    def load_skill() -> str:
        """Load the skill."""
        return skill

    summaries = Summaries(summary(Purpose.HANDOFF))
    call = CallRequest(call_id="c1", name="load_skill", arguments="{}")
    answers = [ModelReply(text="", calls=(call,)), ModelReply(text="read it")]
    agent = agent_with(tools=(Tool.from_function(load_skill, instructions=True),))
    agent = agent.model_copy(update={"window_tokens": 200_000})
    providers = {"default": ScriptedProvider(answers), "summaries": summaries.provider}
    with Session(agent, providers) as session:
        session.send("use your skill")
        session.handoff(TASK)
    document = summaries.asked[0].entries[0].text
    assert skill.strip() in document
    assert "provenance: skill-invocation" in document


def test_a_handoff_cuts_nothing_that_its_model_has_room_for() -> None:
    """All but the answer's reserve is used: what is longer than half of the window is no reason to cut."""
    agent = agent_with().model_copy(update={"handoff": BY_MODEL.model_copy(update={"window_tokens": 64_000})})
    summaries = Summaries(summary(Purpose.HANDOFF))
    history = [
        *[entry for _ in range(15) for entry in (Entry.user("u" * 4_800), Entry.assistant("a" * 4_800))],
        Entry.user("read it"),
        Entry.tool_call("c", "{}", "read"),
        Entry.tool_result("c", "r" * 7_900, "read"),
        Entry.assistant("done"),
    ]
    providers = {"default": ScriptedProvider(echo), "summaries": summaries.provider}
    with Session(agent, providers, history=history) as session:
        handoff = session.handoff(TASK)
    assert handoff.omitted_characters == 0
    assert "r" * 7_900 in summaries.asked[0].entries[0].text


# Digests and the journal --------------------------------------------------------------------------------------------


def test_a_closed_session_is_digested() -> None:
    """Leaving the block waits for it; the journal has it, and so has the agent's."""
    summaries = Summaries(summary(Purpose.DIGEST))
    with session_of(summaries, journal=journal_of(on_close=True)) as session:
        session.send("the pump is blue")
        session.close()
        wait_for(session.journal, what="the digest")
        (entry,) = session.journal()
        assert (entry.digest_id, entry.first_seq, entry.last_seq) == ("d1", 1, 2)
        assert entry.text == summary(Purpose.DIGEST)
        wait_for(lambda: session.store.recent_digests("coder"), what="the digest to be published")
        assert session.store.recent_digests("coder")[0].text == entry.text


def test_a_session_without_journal_settings_is_never_digested() -> None:
    """Off by default: no model is asked for what nobody wanted."""
    summaries = Summaries(summary(Purpose.DIGEST))
    with session_of(summaries, journal=journal_of()) as session:
        session.send("one")
        session.close()
    assert summaries.asked == []


def test_a_digest_is_made_on_request() -> None:
    """Of what is finished and was not digested before; then there is nothing more to digest."""
    summaries = Summaries(summary(Purpose.DIGEST))
    with session_of(summaries, journal=journal_of()) as session:
        assert session.digest() is None
        session.send("one")
        assert session.digest() == "d1"
        wait_for(session.journal, what="the first digest")
        assert session.digest() is None
        session.send("two")
        assert session.digest() == "d2"
        wait_for(lambda: len(session.journal()) == 2, what="the second digest")
        assert [(entry.first_seq, entry.last_seq) for entry in session.journal()] == [(1, 2), (3, 4)]
    assert "one" not in summaries.asked[1].entries[0].text


def test_an_idle_session_is_digested() -> None:
    """When nobody has spoken for as long as its agent says."""
    summaries = Summaries(summary(Purpose.DIGEST))
    with session_of(summaries, journal=journal_of(idle_seconds=0.05)) as session:
        session.send("one")
        wait_for(session.journal, what="the digest of an idle session")


def test_every_idle_session_of_a_file_is_digested(tmp_path: Path) -> None:
    """Whichever of their threads looks first: what it sees put off is not lost to the others."""
    summaries = Summaries(summary(Purpose.DIGEST))
    agent = agent_with(journal=journal_of(idle_seconds=0.05))
    providers = {"default": ScriptedProvider(echo), "summaries": summaries.provider}
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(Session(agent, providers, session_id=f"s{number}", path=tmp_path / "s.db"))
            for number in range(6)
        ]
        for session in sessions:
            session.send("one")
        wait_for(lambda: all(session.journal() for session in sessions), 10.0, "a digest of each")


def test_a_rotation_finishes_a_stretch() -> None:
    """With `on_rotation`, what is there when it is adopted is digested."""
    summaries = Summaries(summary(Purpose.DIGEST))
    with session_of(summaries, journal=journal_of(on_rotation=True)) as session:
        for number in range(12):
            session.send(f"message {number}: " + "the pump is blue. " * 300)
        session.rotate()
        wait_for(session.journal, what="the digest")
        assert session.journal()[0].first_seq == 1


def test_an_entirely_empty_digest_is_accepted_and_never_published() -> None:
    """It is not asked for again, and other sessions are not told."""
    summaries = Summaries(EMPTY_DIGEST)
    with session_of(summaries, journal=journal_of()) as session:
        session.send("one")
        session.digest()
        wait_for(session.journal, what="the digest")
        assert session.store.recent_digests("coder") == []
        assert session.digest() is None
    assert len(summaries.asked) == 1


def test_a_failed_digest_is_seen_in_the_audit_and_leaves_the_stretch() -> None:
    """Its reason is there; what it was about is digested by the next."""
    summaries = Summaries("no digest", summary(Purpose.DIGEST))
    with session_of(summaries, journal=journal_of()) as session:
        session.send("one")
        session.digest()
        wait_for(lambda: "digest_failed" in [event.kind for event in session.audit()], what="the failure")
        (failed,) = [event for event in session.audit() if event.kind == "digest_failed"]
        assert failed.data["code"] == "summary_validation"
        session.send("two")
        session.digest()
        wait_for(session.journal, what="the digest")
        assert (session.journal()[0].first_seq, session.journal()[0].last_seq) == (1, 4)


def test_recent_digests_enter_a_new_session_of_the_agent(tmp_path: Path) -> None:
    """On request, as evidence in the user's place."""
    path, summaries = tmp_path / "s.db", Summaries(summary(Purpose.DIGEST))
    with session_of(summaries, path, journal=journal_of(on_close=True)) as session:
        session.send("one")
        session.close()
    providers = {"default": ScriptedProvider(echo), "summaries": summaries.provider}
    agent = agent_with(journal=journal_of())
    with Session(agent, providers, session_id="next", path=path, recent_digests=True) as session:
        (entry,) = session.layout().live.entries
        assert "the pump is blue" in entry.text
    with Session(agent, providers, session_id="plain", path=path) as session:
        assert session.layout().live.entries == ()


# The generator ------------------------------------------------------------------------------------------------------


def test_saved_evidence_and_answers_are_not_made_again() -> None:
    """Fed with its steps, a job does nothing a second time; its call has the same name as before."""
    evidence = Evidence(items=(Item(Provenance.USER, "the pump is blue"),))
    captured = Captured(evidence=evidence, workload=Workload(model="s"), first_seq=1, last_seq=2)
    settlement = Settlement(text=summary(Purpose.HANDOFF))
    job = Job(purpose=Purpose.HANDOFF, name="a/h1", first_seq=1, last_seq=2, focus=TASK)
    performed: list[str] = []
    saved: dict[str, EffectResult] = {}

    def perform(effect: Any) -> EffectResult:
        performed.append(effect.name)
        return settlement if isinstance(effect, SummaryCall) else captured

    def save(name: str, result: EffectResult) -> None:
        saved[name] = result

    first = drive(summarize(job), perform, {}, save)
    assert drive(summarize(job), perform, saved, save) == first
    assert performed == ["capture:1-2", "summary:handoff"]


def turns(count: int, characters: int = 100) -> Sequence[Entry]:
    return [
        entry
        for number in range(count)
        for entry in (Entry.user(f"{number} " + "u" * characters), Entry.assistant("a" * characters))
    ]


def size(evidence: Evidence) -> int:
    return sum(len(item.text) for item in evidence.items)


def test_a_digest_takes_as_many_whole_turns_as_fit() -> None:
    """From the oldest on; the rest is for the next digest."""
    evidence, count = digest_evidence(turns(10), frozenset(), lambda evidence: size(evidence) <= 900)
    assert count == 8
    assert len(evidence.items) == 8


def test_a_digest_takes_one_turn_at_least() -> None:
    """A turn too large for any window is refused by its size, not skipped in silence."""
    _, count = digest_evidence(turns(3), frozenset(), lambda _: False)
    assert count == 2


def test_a_turn_that_is_too_large_is_digested_by_its_rounds() -> None:
    """Hours of work on one message: no call is parted from its result, and the rest is for the next digest."""
    rounds = [
        entry
        for number in range(100)
        for entry in (
            Entry.assistant("a" * 50),
            Entry.tool_call(f"c{number}", "{}", "read"),
            Entry.tool_call(f"d{number}", "{}", "read"),
            Entry.tool_result(f"c{number}", "r" * 60, "read"),
            Entry.tool_result(f"d{number}", "r" * 60, "read"),
        )
    ]
    evidence, count = digest_evidence(
        [Entry.user("go"), *rounds], frozenset(), lambda evidence: size(evidence) <= 10 * 190 + 10
    )
    assert count == 1 + 10 * 5
    assert size(evidence) <= 10 * 190 + 10


def test_caps_give_way_before_a_handoff_is_too_large() -> None:
    """Tool results are cut further, with what was left out counted."""
    entries = [Entry.tool_call("c", "{}", "read"), Entry.tool_result("c", "r" * 7_900, "read")]
    whole = handoff_evidence((), entries, frozenset(), lambda _: True)
    assert whole.omitted_characters == 0
    cut = handoff_evidence((), entries, frozenset(), lambda evidence: size(evidence) < 3_000)
    assert cut.omitted_characters >= 5_900
