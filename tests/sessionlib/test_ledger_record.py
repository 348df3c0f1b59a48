"""The ledger beside a policy's records: out of its sight, updated from what leaves, last, within its own quota."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlib.agent import Agent
from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import CannotConverge
from sessionlib.layout import Layout, Record, RecordKind, seeded_record
from sessionlib.ledger import LEDGER_CHARACTERS, Quota, updated_ledger
from sessionlib.ledger_record import ledger_after, ledger_tokens, without_ledger
from sessionlib.policies.contract import Consolidating, Policy, RotationPlan
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.tiers import Tiers
from sessionlib.policies.work_room import WorkRoom
from sessionlib.window import Budgets
from tests.sessionlib.rotating import CHARACTERS, Conversation, Driven, keeping, message, planned, room

QUOTA = ledger_tokens(CHARACTERS, show_span=False)
POLICIES: list[Policy] = [LogMerge(), Tiers(), Slots(verbatim_rounds=3), WorkRoom()]


def budgets_of(policy: Policy, window_tokens: int = 8_000) -> Budgets:
    return policy.budgets(room(window_tokens), CHARACTERS, show_span=False, ledger_tokens=QUOTA)


def worked(number: int) -> list[Entry]:
    """A round that reads a file."""
    return [
        message(60, f"q{number}"),
        Entry.tool_call(f"c{number}", f'{{"path": "src/module_{number}.py"}}', "read_file"),
        Entry.tool_result(f"c{number}", "code " * 40, "read_file"),
        Entry.assistant(f"Read module {number}."),
    ]


def ledger_of(layout: Layout) -> Record:
    """The ledger, which is the last of the records and the only one."""
    ledgers = [record for record in layout.records if record.kind is RecordKind.LEDGER]
    assert ledgers == [layout.records[-1]]
    return ledgers[0]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_every_policy_carries_a_ledger(policy: Policy) -> None:
    """It tells what left the window, is the last record, and stays within its quota and the window's line."""
    conversation = Conversation(policy, budgets_of(policy), keeping(0.1))
    for number in range(200):
        if conversation.say(worked(number)):
            ledger = ledger_of(conversation.layout)
            assert ledger.text == updated_ledger("", conversation.removed)
            assert ledger.tokens <= QUOTA
            assert ledger.tokens == CHARACTERS.entry(seeded_record(ledger, show_span=False))
            assert (ledger.first_seq, ledger.last_seq) == (1, conversation.layout.live.first_seq - 1)
            assert conversation.layout.conversation_tokens < conversation.budgets.line_tokens
    assert len(conversation.outcomes) >= 2


class Watching(LogMerge):
    """Remembers what it was shown."""

    def rotate(self, plan: RotationPlan) -> Consolidating:
        assert all(record.kind is not RecordKind.LEDGER for record in plan.layout.records)
        return (yield from super().rotate(plan))


def test_no_policy_sees_the_ledger() -> None:
    """It is taken out before one decides."""
    policy = Watching()
    conversation = Conversation(policy, budgets_of(policy), keeping(0.1))
    for number in range(150):
        conversation.say(worked(number))
    assert len(conversation.outcomes) >= 3


def test_the_ledger_is_carried_unchanged_when_nothing_leaves() -> None:
    """Records alone are merged: the very same record is put back."""
    policy = LogMerge()
    conversation = Conversation(policy, budgets_of(policy, 16_000), keeping(0.5))
    while len(conversation.outcomes) < 4:
        conversation.say(worked(len(conversation.removed) + len(conversation.layout.live)))
    small = budgets_of(LogMerge(record_tokens=200, tail_tokens=4_000), 16_000)
    before = conversation.layout
    outcome = Driven(keeping(0.1)).rotate(planned(before, small), policy)
    assert outcome.dropped_count == 0
    assert outcome.layout.records != before.records
    assert ledger_of(outcome.layout) is ledger_of(before)


def test_without_the_field_there_is_no_ledger() -> None:
    """Whoever rules it out loses it with the next rotation; what it told is archived."""
    policy = LogMerge()
    conversation = Conversation(policy, budgets_of(policy), keeping(0.1))
    while not conversation.outcomes:
        conversation.say(worked(len(conversation.layout.live)))
    assert ledger_of(conversation.layout)
    conversation.budgets = policy.budgets(room(8_000), CHARACTERS, show_span=False)
    while len(conversation.outcomes) < 2:
        conversation.say(worked(len(conversation.layout.live)))
    assert without_ledger(conversation.layout) == (conversation.layout, None)


def test_the_level_of_slots_is_that_of_its_own_records() -> None:
    """Not of the ledger, which stands after them."""
    policy = Slots(verbatim_rounds=3)
    conversation = Conversation(policy, budgets_of(policy), keeping(0.1))
    while not conversation.outcomes:
        conversation.say(worked(len(conversation.layout.live)))
    assert conversation.outcomes[0].level == "low"
    assert conversation.outcomes[0].figures()["level"] == "low"


def test_nothing_done_makes_no_ledger() -> None:
    """No record without text."""
    said = [message(50)] * 3
    assert updated_ledger("", said) == ""
    made = ledger_after(None, said, 1, counter=CHARACTERS, show_span=False)
    assert made is None


def test_a_script_that_costs_more_tokens_is_cut_to_the_quota() -> None:
    """Its oldest lines go first, and each is counted."""
    counter = counter_named("o200k_base")
    quota = ledger_tokens(counter, show_span=True)
    calls = [
        Entry.tool_call(f"c{number}", f'{{"path": "{chr(0x13000 + number) * 60}"}}', "read_file")
        for number in range(30)
    ]
    made = ledger_after(None, calls, 1, counter=counter, show_span=True)
    assert made is not None
    assert made.tokens <= quota
    assert chr(0x13000 + 29) in made.text
    assert chr(0x13000) not in made.text
    assert made.text.startswith(f"Done so far ({30 - made.text.count('- read ')} older ones left out):")


@pytest.mark.parametrize("counter", ["characters", "o200k_base", "estimate"])
def test_the_quota_holds_a_typical_ledger(counter: str) -> None:
    """1,200 characters of lines about files, framing included."""
    tokens = ledger_tokens(counter_named(counter), show_span=True)
    assert LEDGER_CHARACTERS / 4 < tokens < LEDGER_CHARACTERS / 2


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_an_agent_keeps_room_for_its_ledger(policy: Policy) -> None:
    """By default with work_room alone; a rotated layout converges with it."""
    agent = Agent(name="a", counter="characters", window_tokens=16_000, policy=policy)
    assert agent.has_ledger == (policy.kind == "work_room")
    kept = agent.model_copy(update={"ledger": True}).budgets(CHARACTERS)
    none = agent.model_copy(update={"ledger": False}).budgets(CHARACTERS)
    assert kept.ledger_tokens == ledger_tokens(CHARACTERS, show_span=True)
    assert none.ledger_tokens == 0
    if policy.kind == "work_room":
        assert kept.bands is not None
        assert none.bands is not None
        assert kept.bands.base_tokens == none.bands.base_tokens + kept.ledger_tokens
    else:
        assert kept.stretched_tail_tokens == none.stretched_tail_tokens - kept.ledger_tokens
        assert kept.record_tokens == none.record_tokens


def test_a_window_without_room_for_the_ledger_is_refused() -> None:
    """And says so."""
    tight = Tiers(tier_tokens=(2_000, 1_200, 900, 700), convergence_ratio=1.0)
    tight.budgets(room(6_975), CHARACTERS, show_span=False)
    with pytest.raises(CannotConverge, match=f"with a ledger of {QUOTA}"):
        tight.budgets(room(6_975), CHARACTERS, show_span=False, ledger_tokens=QUOTA)


COUNTERS = ["characters", "estimate", "o200k_base"]

actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["src/module_7.py", "漢字検索" * 12, "\U0001f680" * 60, "3f2a9c1b8d7e6f5a", '"))]}\\', "поиск " * 20]
        ),
        st.integers(0, 40),
        st.sampled_from(["", "Done.", "漢字" * 150, "word " * 60, "\U0001f680" * 200]),
    ),
    min_size=1,
    max_size=60,
)


def done(drawn: Sequence[tuple[str, int, str]]) -> list[Entry]:
    """A call of a tool that is not known, and what was said after it."""
    return [
        entry
        for what, number, said in drawn
        for entry in (Entry.tool_call("c", json.dumps({"q": f"{number} {what}"}), "lookup"), Entry.assistant(said))
    ]


@pytest.mark.parametrize("counter", COUNTERS)
@given(drawn=actions, parts=st.lists(st.integers(1, 30), max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_ledger_does_not_depend_on_when_entries_leave(
    counter: str, drawn: Sequence[tuple[str, int, str]], parts: Sequence[int]
) -> None:
    """At once or in many rotations: the same lines and the same count, within the quota, whatever the script."""
    counting, entries = counter_named(counter), done(drawn)
    once = ledger_after(None, entries, 1, counter=counting, show_span=True)
    stepwise: Record | None = None
    position = 0
    for size in [*parts, len(entries)]:
        leaving = entries[position : position + size]
        stepwise = ledger_after(stepwise, leaving, position + 1, counter=counting, show_span=True)
        position += len(leaving)
    assert once is not None
    assert stepwise == once
    assert once.tokens <= ledger_tokens(counting, show_span=True)


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize(
    "what", ["src/module.py", "漢字検索" * 12, "\U0001f680" * 60], ids=["ascii", "cjk", "pictures"]
)
def test_what_makes_room_in_the_quota_is_counted(counter: str, what: str) -> None:
    """Different actions are listed or counted, one by one, however the ledger is updated."""
    entries, ledger = done([(what, number, "漢字" * 150) for number in range(60)]), None
    for position in range(0, len(entries), 14):
        leaving = entries[position : position + 14]
        ledger = ledger_after(ledger, leaving, position + 1, counter=counter_named(counter), show_span=True)
    assert ledger is not None
    heading, *lines = ledger.text.split("\n")
    listed = sum(line.startswith("- ") for line in lines)
    assert listed >= 3
    assert heading == f"Done so far ({60 - listed} older ones left out):"
    assert lines[-1].startswith("Last said: 漢字")


def test_actions_that_no_quota_holds_are_counted() -> None:
    """Not even one has room: the count is all that is left."""
    entries = done([("\U00013000" * 20, number, "") for number in range(3)])
    quota = Quota(counted=len, actions_tokens=10, narration_tokens=10)
    assert updated_ledger("", entries, quota) == "Done so far (3 older ones left out):"
    assert updated_ledger("", [Entry.assistant("Hello there.")], quota) == ""
    quota = Quota(counted=len, actions_tokens=10, narration_tokens=len("Last said: Hel..."))
    assert updated_ledger("", [Entry.assistant("Hello there.")], quota) == "Last said: Hel..."


# --- carried along


def left_by(policy: Policy) -> Conversation:
    """A conversation that *policy* goes on with, and in which an earlier version of the agent left a ledger."""
    first = Conversation(LogMerge(), budgets_of(LogMerge()), keeping(0.1))
    while not first.outcomes:
        first.say(worked(len(first.layout.live)))
    budgets = policy.budgets(room(8_000), CHARACTERS, show_span=False)
    return replace(first, policy=policy, budgets=budgets, carries_ledger=True)


@pytest.mark.parametrize("policy", [LogMerge(), Tiers(), Slots(verbatim_rounds=3)], ids=lambda policy: policy.kind)
def test_a_ledger_that_is_there_is_carried_along(policy: Policy) -> None:
    """By an agent that keeps none by default: brought up to date at each rotation, and the layout converges with it."""
    conversation = left_by(policy)
    assert conversation.budgets.ledger_tokens == 0
    while len(conversation.outcomes) < 4:
        conversation.say(worked(len(conversation.removed) + len(conversation.layout.live)))
        assert ledger_of(conversation.layout).text == updated_ledger("", conversation.removed)
    landed = [outcome.layout.conversation_tokens for outcome in conversation.outcomes]
    assert max(landed) <= 0.8 * conversation.budgets.line_tokens


def test_the_tail_leaves_room_for_a_ledger_that_is_carried_along() -> None:
    """As much as for one that the agent keeps."""
    policy = LogMerge()
    kept, none = budgets_of(policy), policy.budgets(room(8_000), CHARACTERS, show_span=False)
    seen: list[Budgets] = []

    class Seeing(LogMerge):
        def rotate(self, plan: RotationPlan) -> Consolidating:
            seen.append(plan.budgets)
            return (yield from super().rotate(plan))

    layout = left_by(policy).layout
    for budgets, carries in ((none, True), (kept, True), (none, False)):
        Driven(keeping(0.1)).rotate(planned(layout, budgets, carries_ledger=carries), Seeing())
    assert seen == [kept, kept, none]


def test_a_ledger_is_not_carried_where_the_layout_could_not_converge() -> None:
    """In a window in which an agent that keeps one is refused."""
    tight = Tiers(tier_tokens=(2_000, 1_200, 900, 700), convergence_ratio=1.0)
    conversation = left_by(tight)
    conversation.budgets = tight.budgets(room(6_975), CHARACTERS, show_span=False)
    while len(conversation.outcomes) < 2:
        conversation.say(worked(len(conversation.layout.live)))
    assert without_ledger(conversation.layout) == (conversation.layout, None)


def test_no_ledger_is_begun_where_none_is_there() -> None:
    """To carry one along is not to keep one."""
    policy = LogMerge()
    budgets = policy.budgets(room(8_000), CHARACTERS, show_span=False)
    conversation = Conversation(policy, budgets, keeping(0.1), carries_ledger=True)
    while len(conversation.outcomes) < 2:
        conversation.say(worked(len(conversation.layout.live)))
    assert without_ledger(conversation.layout) == (conversation.layout, None)
