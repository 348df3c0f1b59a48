"""What travels between the typed store and its scripts: values as text, replies as values.

Lua carries entries, inputs and answers without reading them. What it must compare or cut off stands before a newline,
which no JSON of ours holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sessionlib.codec import decode, decode_step, encode, restore
from sessionlib.entries import Entry
from sessionlib.layout import Carried, Layout, Record
from sessionlib.providers.contract import CallRequest
from sessionlib.stores.contract import (
    JOB_LANES,
    Adoption,
    AgentRef,
    Answer,
    Chunk,
    ChunkRef,
    Event,
    Grant,
    Handle,
    Lane,
    PostingsRef,
    Room,
    SessionState,
    SessionView,
    Snapshot,
    Trim,
    TurnInput,
    TurnState,
    TurnView,
    UnsavedStep,
)
from sessionlib.transcript import Transcript
from sessionlib.window_facts import LearnedWindow

Fields = Mapping[str, str]


def fields_of(flat: Sequence[bytes]) -> dict[str, str]:
    """A hash as scripts return it: field, value, field, value."""
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def seconds(value: float | None) -> str:
    """A time or a number of seconds, exactly; "" for none."""
    return "" if value is None else repr(float(value))


def json_text(data: Any) -> str:
    """Raises ValueError for NaN and infinities."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def call_ids(ids: Iterable[str]) -> str:
    """A set of call ids as one text, so that Lua can compare it; "" for none."""
    ordered = sorted(ids)
    return json.dumps(ordered) if ordered else ""


def element(entry: Entry, tokens: int, commit_token: str) -> str:
    """An entry as it lies in the live list: encoded once, when it is recorded."""
    return f"{tokens}\n{commit_token}\n{encode(entry)}"


def read_element(raw: bytes) -> tuple[Entry, int]:
    tokens, _, text = raw.split(b"\n", 2)
    return decode(Entry, text), int(tokens)


def lines(values: Iterable[object]) -> str:
    return "\n".join(encode(value) for value in values)


def read_calls(text: str) -> tuple[CallRequest, ...]:
    return tuple(decode(CallRequest, line) for line in text.split("\n")) if text else ()


def step(name: str, result: object) -> str:
    return f"{json.dumps(name)}\n{encode(result)}"


def step_arguments(unsaved: UnsavedStep) -> tuple[int, str, str]:
    """Position, step and handle, as the script takes them."""
    return unsaved.position, step(unsaved.name, unsaved.result), handle_line(unsaved.handle)


def handle_arguments(handle: Handle | None) -> tuple[str, str, str]:
    """Name, handle, and the parent's name, all JSON, so that none holds a tab or a line's end; "" for none."""
    if handle is None:
        return "", "", ""
    return json.dumps(handle.handle), encode(handle), json.dumps(handle.parent) if handle.parent else ""


def handle_line(handle: Handle | None) -> str:
    return "\t".join(handle_arguments(handle)) if handle else ""


def postings_arguments(adoption: Adoption) -> tuple[str | int | bytes, ...]:
    """Where the postings begin ("" without any), their level, how many they take the place of, their parts."""
    postings = adoption.postings
    if postings is None:
        return "", "", 0
    return postings.first_seq, postings.level, adoption.merged_count, *postings.parts


def known_arguments(session_id: str, known: Snapshot | None) -> tuple[str, int, int, str]:
    """What a worker has already: layout token, first and next sequence number (0: none), token of the last entry."""
    if known is None or known.session_id != session_id:
        return "none", 0, 0, ""
    live = known.layout.live
    return known.layout_token, live.first_seq, live.next_seq if live else 0, known.tail_token


def read_snapshot(session_id: str, head: Fields, parts: Sequence[Any], known: Snapshot | None) -> Snapshot:
    """A snapshot from its head, the other parts of a script's reply, and what the worker has already."""
    layout, first_seq, elements = parts
    if layout is None and known is not None:
        records, carried = known.layout.records, known.layout.carried
    else:
        records, carried = _records(layout[0]), _carried(layout[1])
    return Snapshot(
        session_id=session_id,
        agent=_agent(head),
        epoch=int(head["epoch"]),
        layout=Layout(records, carried, _live(int(head["live_from"]), int(first_seq), elements, known)),
        layout_token=head.get("layout_token", ""),
        tail_token=head.get("tail_token", ""),
        calibration=float(head["calibration"]),
        window=_window(head),
        trim=_trim(head),
        handle=decode(Handle, head["handle"]) if head.get("handle") else None,
        room=_room(head),
        open_calls=read_calls(head.get("open_calls", "")),
        abandoned=head.get("abandoned", ""),
        sized_from_seq=int(head["sized_from_seq" if head.get("sized_by") == head["agent_digest"] else "next_seq"]),
    )


def _live(live_from: int, first_seq: int, elements: Sequence[bytes], known: Snapshot | None) -> Transcript:
    """What is known from *live_from* on, and after it the entries that were sent, *first_seq* the first of them."""
    kept = Transcript(first_seq=live_from)
    if known is not None and first_seq > live_from:
        cached = known.layout.live
        kept = cached if cached.first_seq == live_from else cached.split_at(live_from - cached.first_seq)[1]
    newer = [read_element(raw) for raw in elements]
    return kept.append([entry for entry, _ in newer], [tokens for _, tokens in newer])


def _records(raw: bytes | None) -> tuple[Record, ...]:
    return tuple(decode(Record, line) for line in raw.split(b"\n")) if raw else ()


def _carried(raw: bytes | None) -> Carried | None:
    if not raw:
        return None
    seq, _, rest = raw.partition(b"\n")
    return Carried(int(seq), *read_element(rest))


def _agent(head: Fields) -> AgentRef:
    return AgentRef(name=head["agent_name"], digest=head["agent_digest"], is_pinned=head.get("pinned") == "1")


def _trim(head: Fields) -> Trim:
    return decode(Trim, head["trim"]) if head.get("trim") else Trim()


def _window(head: Fields) -> LearnedWindow | None:
    return decode(LearnedWindow, head["window"]) if head.get("window") else None


def _room(head: Fields) -> Room:
    return decode(Room, head["room"]) if head.get("room") else Room()


def read_grant(session_id: str, lane: Lane, reply: Sequence[Any], known: Snapshot | None) -> Grant:
    _, now, parts, steps, work_flat = reply
    head = fields_of(parts[0])
    is_rotation = lane is Lane.ROTATION
    work, prefix = (head, "rotation:") if is_rotation else (fields_of(work_flat), "")
    span = work if lane in JOB_LANES else {}
    return Grant(
        session_id=session_id,
        lane=lane,
        token=head[f"{lane}:token"],
        work_id=head["rotation" if is_rotation else f"{lane}:work"],
        deadline=float(work[f"{prefix}deadline"]),
        now=float(now),
        attempt=int(work[f"{prefix}attempts"]),
        snapshot=read_snapshot(session_id, head, parts[1:], known),
        steps=tuple(_read_step(raw) for raw in steps),
        step_base=count(work, f"{prefix}step_base"),
        input=decode(TurnInput, work["input"]) if lane is Lane.TURN else None,
        first_round=count(work, "rounds"),
        input_seq=count(work, "input_seq"),
        boundary_seq=count(work, "rotation:boundary"),
        reason=work.get(f"{prefix}reason", ""),
        request=work.get("request", ""),
        first_seq=count(span, "first_seq"),
        last_seq=count(span, "last_seq"),
        is_streamed=lane is Lane.TURN and work.get("is_streamed") == "1",
    )


def count(fields: Fields, name: str) -> int:
    """A number that a hash has, or 0: scripts clear a field with ""."""
    return int(fields.get(name) or 0)


def _read_step(raw: bytes) -> tuple[str, Any]:
    name, _, text = raw.partition(b"\n")
    return json.loads(name), decode_step(text)


def read_turn(turn_id: str, turn: Fields) -> TurnView:
    answer = turn.get("answer")
    return TurnView(
        turn_id=turn_id,
        state=TurnState(turn["state"]),
        answer=restore(Answer, json.loads(answer)) if answer else None,
        error_code=turn.get("error_code", ""),
        error=turn.get("error", ""),
        rotations=tuple(json.loads(turn.get("rotations") or "[]")),
        attempt=count(turn, "attempts"),
        round_count=count(turn, "rounds"),
        first_seq=count(turn, "first_seq"),
        last_seq=count(turn, "last_seq"),
        submitted_at=float(turn["submitted"]),
        finished_at=float(turn.get("finished", 0.0)),
    )


def read_view(session_id: str, reply: Sequence[Any]) -> SessionView:
    now, flat, queued = reply
    head = fields_of(flat)
    return SessionView(
        session_id=session_id,
        state=SessionState(head["state"]),
        agent=_agent(head),
        epoch=int(head["epoch"]),
        next_seq=int(head["next_seq"]),
        live_from=int(head["live_from"]),
        live_tokens=int(head["live_tokens"]),
        record_tokens=int(head["record_tokens"]),
        carried_tokens=int(head["carried_tokens"]),
        calibration=float(head["calibration"]),
        window=_window(head),
        trim=_trim(head),
        queued=tuple(raw.decode() for raw in queued),
        running=head.get("turn:work") or None,
        rotation_id=head.get("rotation") or None,
        rotation_state=_rotation_state(head, float(now)),
        open_calls=read_calls(head.get("open_calls", "")),
        created_at=float(head["created"]),
        updated_at=float(head["updated"]),
        archived_bytes=count(head, "archived_bytes"),
        room=_room(head),
    )


def _rotation_state(head: Fields, now: float) -> str:
    if head.get("rotation"):
        return "running" if float(head.get("rotation:lease") or 0) > now else "pending"
    is_backing_off = float(head.get("backoff_until") or 0) > now
    return f"backing off: {head.get('backoff_reason', '')}" if is_backing_off else ""


def read_handles(head: Fields) -> tuple[Handle, ...]:
    """Handles that wait for no turn, oldest first, each with the parent at which its disposal stops."""
    parts = [line.split("\t") for line in head.get("disposals", "").split("\n") if line]
    return tuple(
        replace(decode(Handle, text), parent=json.loads(parent[0]) if parent and parent[0] else "")
        for waits_for, _, text, *parent in parts
        if not waits_for
    )


def read_turn_events(streams: Sequence[Sequence[tuple[bytes, Sequence[bytes]]]], limit: int) -> list[Event]:
    """The first *limit* entries of several streams in the order of their ids, as a script returns them."""
    entries = [(event_id, dict(zip(flat[::2], flat[1::2], strict=True))) for part in streams for event_id, flat in part]
    return read_events(sorted(entries, key=lambda entry: _event_number(entry[0]))[:limit])


def _event_number(event_id: bytes) -> tuple[int, int]:
    milliseconds, _, count = event_id.partition(b"-")
    return int(milliseconds), int(count)


def read_events(stream: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> list[Event]:
    """Entries of a stream. Its ids begin with the server's time in milliseconds."""
    return [
        Event(
            id=event_id.decode(),
            kind=fields[b"kind"].decode(),
            data=json.loads(fields[b"data"]),
            at=int(event_id.partition(b"-")[0]) / 1_000,
        )
        for event_id, fields in stream
    ]


def read_chunk_ref(raw: bytes) -> ChunkRef:
    first_seq, last_seq, epoch = map(int, raw.split(b"\n"))
    return ChunkRef(first_seq=first_seq, last_seq=last_seq, epoch=epoch)


def read_postings_ref(raw: bytes) -> PostingsRef:
    first_seq, last_seq, level, part_count = map(int, raw.split(b" "))
    return PostingsRef(first_seq=first_seq, last_seq=last_seq, level=level, part_count=part_count)


def read_chunk(raw: bytes) -> Chunk:
    first_seq, last_seq, epoch, data = raw.split(b"\n", 3)
    return Chunk(first_seq=int(first_seq), last_seq=int(last_seq), epoch=int(epoch), data=data)
