"""Values as JSON: every stored type comes back as it was; what cannot be read says so, without its content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.codec import decode, decode_entries, decode_step, encode, encode_entries, entries_digest, plain, restore
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, StoreCorrupt
from sessionlib.layout import Carried, Method, Record
from sessionlib.providers.contract import CallRequest, ModelReply
from sessionlib.steps import ToolOutput
from sessionlib.stores.contract import (
    AgentRef,
    Answer,
    Handle,
    JobState,
    JournalRules,
    Lane,
    SessionState,
    Trim,
    TurnInput,
    TurnState,
)
from sessionlib.stores.rules.state import Disposal, Head, Hold, Job, JobLane, Rotation, StoredDigest, Tries, Turn
from sessionlib.summaries.contract import Consolidated
from sessionlib.tokens import Usage

CALL = CallRequest(call_id="c1", name="look", arguments='{"a": "\\u2028"}')
TRIM = Trim(pointers_before_seq=3, dropped_before_seq=2, records_dropped=True)
HANDLE = Handle(handle="h1", epoch=2, next_seq=9, trim=TRIM, provider="held")
ANSWER = Answer(
    text="fine\x00 — 好 🙂",
    open_calls=(CALL,),
    prompt_tokens=1,
    completion_tokens=2,
    cached_tokens=3,
    round_count=4,
    max_request_tokens=5,
)
TRIES = Tries(
    attempts=2, progress=True, not_before=1.5, deadline=1_764_450_000.123456, step_base=3, error_code="x", error="why"
)
HOLD = Hold(token="k1", lease=1_764_450_015.654321)
REPLY = ModelReply(text="I look", calls=(CALL,), usage=Usage(10, 5, 2), handle="h1")

STORED = [
    Entry.user("hello\r\n\u2028\x85 \x00"),
    Entry.assistant(""),
    Entry.tool_call("c1", "{not json", "look"),
    Entry.tool_result("c1", "", "look"),
    Entry.record("gist"),
    TurnInput(message="hello"),
    TurnInput(results=(("c1", "x"), ("c2", ""))),
    ANSWER,
    REPLY,
    ModelReply(text="only text"),
    ToolOutput("failed", is_error=True),
    Consolidated(text="gist", prompt_tokens=1, completion_tokens=2, model="m"),
    Record(
        first_seq=1, last_seq=9, text="gist", tokens=4, tier=2, rewrite_count=3, method=Method.TERSE, source_tokens=9
    ),
    Carried(3, Entry.user("the question"), 7),
    TRIM,
    HANDLE,
    Turn(
        turn_id="t1",
        state=TurnState.ANSWERED,
        digest="d",
        result_ids=("c1",),
        timeout_seconds=0.1,
        open_calls_seconds=1e6,
        tries=TRIES,
        rounds=2,
        commit_token="k",
        first_seq=1,
        last_seq=2,
        input_seq=1,
        answer=ANSWER,
        error_code="e",
        error="r",
        rotations=('{"a":1}',),
        submitted=1.25,
        finished=2.5,
    ),
    Head(
        agent=AgentRef(name="a", digest="d", is_pinned=True),
        state=SessionState.CLOSED,
        calibration=1.1,
        trim=TRIM,
        handle=HANDLE,
        disposals=(Disposal(handle=HANDLE, waits_for="t1"),),
        open_calls=(CALL,),
        abandoned="timeout",
        hold=HOLD,
        work="t1",
        rotation=Rotation(rotation_id="r1", reason="line", boundary_seq=4, hold=HOLD, tries=TRIES),
        outcomes=('{"a":1}',),
        retention_seconds=0.5,
        created=0.1,
    ),
    Head(agent=AgentRef(name="a", digest="d")),
    Head(
        agent=AgentRef(name="a", digest="d"),
        handoff=JobLane(hold=HOLD, work="h1"),
        digest=JobLane(hold=HOLD, work="d3"),
        digest_count=3,
        digested_seq=9,
        digest_failures=1,
        digest_settled="s2",
        journal=JournalRules(on_close=True, on_rotation=True, idle_seconds=0.1),
    ),
    Job(
        job_id="h1",
        lane=Lane.HANDOFF,
        state=JobState.DONE,
        request='{"task":"go on"}',
        digest="d",
        first_seq=1,
        last_seq=9,
        timeout_seconds=0.1,
        tries=TRIES,
        settle_token="s1",
        result="gist\x00 — 好 🙂",
        submitted=1.25,
        finished=2.5,
    ),
    StoredDigest(
        session_id="s", digest_id="d1", first_seq=1, last_seq=9, text="gist", at=0.1, is_published=True, figures="{}"
    ),
]


def named(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize("value", STORED, ids=named)
def test_t55_every_stored_type_comes_back(value: Any) -> None:
    """What is read back is the value itself, not something that looks like it."""
    assert decode(type(value), encode(value)) == value
    assert type(decode(type(value), encode(value).encode())) is type(value)


@pytest.mark.parametrize("value", STORED, ids=named)
def test_t55_plain_forms_come_back(value: Any) -> None:
    """Also through an event's JSON."""
    assert restore(type(value), json.loads(json.dumps(plain(value)))) == value


@pytest.mark.parametrize(
    "result",
    [REPLY, ModelReply(text="x"), ToolOutput("x"), Consolidated(text="x")],
    ids=["reply", "text", "tool", "gist"],
)
def test_t55_step_results_keep_their_type(result: Any) -> None:
    """Three types with a `text` each are not taken for one another."""
    decoded = decode_step(encode(result))
    assert (type(decoded), decoded) == (type(result), result)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    """Whatever UTF-8 can carry, one line each, so that runs of entries can be told apart."""
    entries = (Entry.user(text), Entry.tool_result("c1", text))
    assert decode_entries(encode_entries(entries)) == entries
    assert "\n" not in encode(entries[0])


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_any_time_comes_back(number: float) -> None:
    """Times and ratios keep every digit."""
    assert decode(Hold, encode(Hold(token="k", lease=number))).lease == number


def test_no_entries() -> None:
    """An empty run is an empty text."""
    assert decode_entries(encode_entries(())) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "null",
        "[1, 2]",
        '{"kind":"user","text":"x"}',
        '{"v":1,"type":"ToolOutput","value":{"text":"x","is_error":false}}',
        '{"v":1,"type":"Entry","value":{"kind":"user"}}',
        '{"v":1,"type":"Entry","value":{"kind":"emperor","text":"x"}}',
        '{"v":1,"type":"Entry","value":{"kind":"user","text":"x","unknown":1}}',
        '{"v":1,"type":"Entry","value":{"kind":"user","text":"x"',
        '{"v":1,"type":"Entry","value":{"kind":"tool_call","text":"x"}}',
    ],
)
def test_foreign_or_damaged_text(text: str) -> None:
    """Refused, whatever is wrong with it."""
    with pytest.raises(StoreCorrupt):
        decode(Entry, text)


@pytest.mark.parametrize("text", ["", "not json", '{"v":1,"type":"Entry","value":{}}', '{"type":"ModelReply"}'])
def test_foreign_step(text: str) -> None:
    """A step is one of three types."""
    with pytest.raises(StoreCorrupt):
        decode_step(text)


def test_newer_format_is_named() -> None:
    """The operator learns that the program is too old, not that the data is damaged."""
    newer = encode(Entry.user("x")).replace('"v":1', '"v":2')
    with pytest.raises(StoreCorrupt, match="newer"):
        decode(Entry, newer)
    with pytest.raises(StoreCorrupt, match="newer"):
        decode_step(newer)


def test_error_does_not_quote_content() -> None:
    """What is stored may be secret; error texts are logged."""
    with pytest.raises(StoreCorrupt) as caught:
        decode(Entry, '{"v":1,"type":"Entry","value":{"kind":"user","text":["hunter2"]}}')
    assert "hunter2" not in str(caught.value)


def test_lone_surrogate_is_refused() -> None:
    """It has no UTF-8 form; nothing is stored."""
    with pytest.raises(InvalidInput):
        encode(ToolOutput("\ud800"))


def test_digest_tells_histories_apart() -> None:
    """Kind, text and order count."""
    a, b = Entry.user("a"), Entry.user("b")
    digests = {entries_digest(run) for run in [(a,), (b,), (a, b), (b, a), (Entry.assistant("a"),), ()]}
    assert len(digests) == 6
    assert entries_digest((a, b)) == entries_digest([Entry.user("a"), Entry.user("b")])
