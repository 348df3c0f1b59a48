"""The output contract: spec/work-room B5's rules as a table, and what a rotation does with a layout that breaks one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.entries import Entry
from sessionlib.layout import Carried, Layout, RecordKind, make_record
from sessionlib.policies.contract import Consolidating, Rotated, RotationPlan
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.output_contract import layout_fault, new_fault
from sessionlib.transcript import Transcript
from tests.sessionlib.rotating import CHARACTERS, Driven, budgets_of, keeping, message, planned, transcript

USER, ANSWER = Entry.user("Fix it."), Entry.assistant("Done.")
REASONING = Entry.opaque("{}", "p/m")


def call(call_id: str) -> Entry:
    return Entry.tool_call(call_id, "{}", "look")


def result(call_id: str) -> Entry:
    return Entry.tool_result(call_id, "seen", "look")


OPENING = make_record(CHARACTERS, "A fresh window.", 1, 9, show_span=False, kind=RecordKind.OPENING)
SUMMARY = make_record(CHARACTERS, "The pump was fixed.", 1, 9, show_span=False)


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([USER, ANSWER], ""),
        ([USER, call("a"), result("a")], ""),
        ([USER, ANSWER, call("a"), call("b"), result("b"), result("a"), ANSWER], ""),
        ([USER, call("a"), result("a"), call("b"), result("b")], ""),
        ([USER, REASONING, call("a"), result("a"), REASONING, ANSWER], ""),
        ([USER, call("a"), result("a"), USER, call("a"), result("a")], ""),
        ([result("a")], "a result has no call"),
        ([USER, result("a"), call("a"), result("a")], "a result has no call"),
        ([USER, call("a"), result("b"), result("a")], "a result has no call"),
        ([USER, call("a"), result("a"), result("a")], "a call is answered twice"),
        (
            [USER, call("a"), call("b"), result("a"), call("c"), result("c"), result("b")],
            "a call is not answered before",
        ),
        ([USER, call("a"), USER], "a call is not answered before"),
        ([USER, call("a"), call("b"), result("a"), ANSWER], "a call is not answered before"),
        ([USER, call("a")], "a call is not answered"),
        ([USER, call("a"), call("b"), result("b")], "a call is not answered"),
    ],
)
def test_b5_the_sequence_of_calls_and_results(entries: list[Entry], fault: str) -> None:
    """No result without its call, none twice, all of a batch before the next, none open at the end."""
    found = layout_fault(Layout(live=transcript(entries)))
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        (Layout(), "no message is left"),
        (Layout(live=Transcript(first_seq=9)), "no message is left"),
        (Layout(records=(OPENING,)), ""),
        (Layout(records=(SUMMARY,)), ""),
        (Layout(carried=Carried(1, USER, 5)), ""),
        (Layout(live=transcript([USER])), ""),
        (Layout(live=transcript([ANSWER])), ""),
        (Layout(live=transcript([REASONING])), "no message is left"),
        (Layout(live=transcript([REASONING, REASONING])), "no message is left"),
        (Layout(records=(OPENING,), live=transcript([REASONING])), ""),
        (Layout(live=transcript([REASONING, ANSWER])), ""),
    ],
)
def test_b5_something_must_be_left_to_send(layout: Layout, fault: str) -> None:
    """A record, a carried input or an entry: each is sent as a message. Instructions alone are no request, nor is an
    opaque item, which no other provider is sent."""
    assert layout_fault(layout) == fault


class Breaking(LogMerge):
    """Drops this many entries, and records nothing."""

    dropped: int

    def rotate(self, plan: RotationPlan) -> Consolidating:
        yield from ()
        _, live = plan.layout.live.split_at(self.dropped)
        return Rotated(layout=replace(plan.layout, records=(), live=live))


HISTORY = [message(200), call("a"), call("b"), result("b"), result("a"), ANSWER]


@pytest.mark.parametrize(
    ("dropped", "fault"), [(0, ""), (1, ""), (2, "a result has no call"), (5, ""), (6, "no message is left")]
)
def test_a_layout_that_breaks_the_contract_is_discarded(dropped: int, fault: str) -> None:
    """The session stays as it was, and the reason is told."""
    policy = Breaking(dropped=dropped)
    layout = Layout(live=transcript(HISTORY))
    outcome = Driven(keeping(0.1)).rotate(planned(layout, budgets_of(policy, 8_000)), policy)
    assert outcome.layout_fault == fault
    assert outcome.is_noop == (bool(fault) or dropped == 0)
    if outcome.is_noop:
        assert outcome.layout == layout
        assert outcome.dropped_count == 0


UNSOUND = [message(200), call("a"), message(200), result("b"), ANSWER, call("c"), result("c"), result("a"), ANSWER]


@pytest.mark.parametrize(
    ("dropped", "fault"),
    [
        *((dropped, "") for dropped in (1, 2, 3, 4, 5, 7, 8)),
        (6, "a result has no call"),
        (len(UNSOUND), "no message is left"),
    ],
)
def test_what_was_unsound_before_is_no_fault_of_the_policy(dropped: int, fault: str) -> None:
    """A conversation taken over from elsewhere is repaired when it is sent; it still rotates. What the policy itself
    broke of it, and that nothing is left, is a fault."""
    policy = Breaking(dropped=dropped)
    outcome = Driven(keeping(0.1)).rotate(planned(Layout(live=transcript(UNSOUND)), budgets_of(policy, 8_000)), policy)
    assert outcome.layout_fault == fault
    assert outcome.is_noop == bool(fault)


def test_a_rotation_that_changes_nothing_has_no_fault() -> None:
    """Of a session in which nothing was said yet."""
    outcome = Driven(keeping(0.1)).rotate(planned(Layout(), budgets_of(LogMerge(), 8_000)), LogMerge())
    assert outcome.layout_fault == ""
    assert outcome.is_noop


ENTRIES = st.lists(
    st.one_of(
        st.sampled_from([USER, ANSWER, REASONING]),
        st.sampled_from("ab").map(call),
        st.sampled_from("ab").map(result),
    ),
    max_size=12,
)


@given(entries=ENTRIES, dropped=st.integers(0, 12))
def test_no_fault_is_new_where_everything_before_the_cut_is_settled(entries: list[Entry], dropped: int) -> None:
    """However unsound the whole is: behind a user's message nothing waits for what was before it."""
    older, live = transcript([*entries[:dropped], USER, *entries[dropped:]]).split_at(len(entries[:dropped]))
    whole = older.append(live.entries, live.sizes)
    assert new_fault(Layout(live=whole), Layout(live=live)) == ""
    assert new_fault(Layout(live=live), Layout(live=live)) == ""
