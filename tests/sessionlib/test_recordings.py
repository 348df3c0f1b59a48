"""Recorded sessions: every format, every rule of what becomes what, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.errors import InvalidInput
from sessionlib.recordings import (
    CONTINUE,
    NO_ANSWER,
    NO_RESULT,
    RecordedRound,
    RecordedTurn,
    Recording,
    Skip,
    read_recording,
)
from sessionlib.tokens import Usage

DATA = Path(os.environ.get("SESSIONLIB_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
CLAUDE_FILES = ("claude_code_258c7280.json", "claude_code_4d5611e5.json", "claude_code_8463c716.json")

Json = dict[str, Any]


def user(content: object) -> Json:
    return {"role": "user", "content": content}


def assistant(content: object, *calls: tuple[str, str]) -> Json:
    tool_calls = [
        {"id": call_id, "type": "function", "function": {"name": "run", "arguments": arguments}}
        for call_id, arguments in calls
    ]
    return {"role": "assistant", "content": content, **({"tool_calls": tool_calls} if calls else {})}


def tool(call_id: str, content: object) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def line(role: str, content: object, message_id: str | None = None, **more: object) -> Json:
    """A line of a Claude Code session file."""
    message: Json = {"role": role, "content": content, **({"id": message_id} if message_id else {})}
    if "usage" in more:
        message["usage"] = more.pop("usage")
    return {"type": role, "message": message, **more}


def use(call_id: str, **arguments: object) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": arguments}


def gave(call_id: str, content: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def chat(*messages: Json) -> Recording:
    return read_recording(json.dumps(messages).encode(), "chat.json")


def claude(*lines: Json) -> Recording:
    return read_recording("\n".join(map(json.dumps, lines)).encode(), "session.jsonl")


def data_file(name: str) -> bytes:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return path.read_bytes()


SIMPLE = (user("hi"), assistant("hello"))


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (json.dumps(SIMPLE), "openai_chat"),
        (json.dumps({"messages": SIMPLE}, indent=2), "openai_chat"),
        ("\n".join(map(json.dumps, SIMPLE)) + "\n\n", "openai_chat"),
        ("\r\n".join(map(json.dumps, SIMPLE)), "openai_chat"),
        ("\ufeff" + json.dumps(SIMPLE), "openai_chat"),
        ("\n".join(map(json.dumps, (line("user", "hi"), line("assistant", "hello")))), "claude_code"),
        (
            json.dumps({"events": [{"kind": "message", "role": m["role"], "blocks": m["content"]} for m in SIMPLE]}),
            "claude_code_events",
        ),
        (json.dumps({"system": "", "sessions": [{"id": "a", "episodes": [{"messages": SIMPLE}]}]}), "tau_bench"),
        (json.dumps({"conversations": [{"id": "a", "entries": SIMPLE}]}), "locomo"),
    ],
    ids=["list", "object", "jsonl", "jsonl crlf", "byte order mark", "claude code", "events", "tau", "locomo"],
)
def test_format_is_detected_from_what_the_file_holds(data: str, format: str) -> None:
    """The same two messages are the same turn in every format."""
    recording = read_recording(data.encode(), "somewhere")
    assert recording.format == format
    assert recording.turns == (RecordedTurn(input="hi", rounds=(RecordedRound(text="hello"),)),)


def test_tool_rounds_are_rounds_of_one_turn() -> None:
    """A turn reaches from its input to the first answer without calls; results stand in the order of the calls."""
    recording = chat(
        user("fix it"),
        assistant("looking", ("a", '{"x": 1}'), ("b", "not json")),
        tool("b", "second"),
        tool("a", [{"type": "text", "text": "first"}]),
        assistant(None, ("c", "{}")),
        tool("c", ""),
        assistant("done"),
    )
    (turn,) = recording.turns
    assert [played.text for played in turn.rounds] == ["looking", "", "done"]
    assert [call.arguments for played in turn.rounds for call in played.calls] == ['{"x": 1}', "not json", "{}"]
    assert turn.rounds[0].results == (("a", "first"), ("b", "second"))
    assert recording.skipped == {}


def test_first_system_message_becomes_the_instructions() -> None:
    """Later ones are dropped and counted; a developer message is a system message."""
    recording = chat({"role": "developer", "content": "be brief"}, {"role": "system", "content": "no"}, *SIMPLE)
    assert recording.instructions == "be brief"
    assert recording.skipped == {Skip.SYSTEM: 1}


def test_instructions_may_stand_beside_the_messages() -> None:
    """Anthropic's request shape is read like OpenAI's, its blocks too."""
    messages = [user("go"), assistant([use("a", path="x")]), user([gave("a", "ok")]), assistant("fine")]
    recording = read_recording(json.dumps({"system": "be brief", "messages": messages}).encode(), "request.json")
    assert recording.instructions == "be brief"
    assert recording.turns[0].rounds[0].calls[0].arguments == '{"path": "x"}'
    assert recording.tool_results() == {"a": "ok"}


def test_user_messages_in_a_row_are_one_input() -> None:
    """They are joined by a blank line and counted."""
    recording = chat(user("one"), user("two"), user("three"), assistant("yes"))
    assert recording.turns[0].input == "one\n\ntwo\n\nthree"
    assert recording.skipped == {Skip.JOINED_INPUT: 2}


def test_answer_without_input_gets_a_stated_one() -> None:
    """The first message of a recording, and an answer after an answer."""
    recording = chat(assistant("welcome"), assistant("still there?"), user("yes"), assistant("good"))
    assert [turn.input for turn in recording.turns] == [CONTINUE, CONTINUE, "yes"]
    assert recording.skipped == {Skip.MADE_INPUT: 2}


def test_unanswered_messages_at_the_end_are_dropped() -> None:
    """There is nothing to replay for them."""
    recording = chat(*SIMPLE, user("one more"), user("please"))
    assert len(recording.turns) == 1
    assert recording.skipped == {Skip.UNANSWERED: 2}


def test_turn_that_ends_in_calls_gets_a_stated_answer() -> None:
    """At the end of the recording, and where the user interrupts."""
    recording = chat(user("a"), assistant("", ("c", "")), tool("c", "r"), user("b"), assistant("", ("d", "")))
    assert [turn.rounds[-1].text for turn in recording.turns] == [NO_ANSWER, NO_ANSWER]
    assert recording.skipped == {Skip.MADE_ANSWER: 2, Skip.MADE_RESULT: 1, Skip.BLANK: 2}


def test_open_call_gets_a_stated_result() -> None:
    """A call without result keeps its place."""
    recording = chat(user("a"), assistant("x", ("c", "{}"), ("d", "{}")), tool("d", "r"), assistant("done"))
    assert recording.tool_results() == {"c": NO_RESULT, "d": "r"}
    assert recording.skipped == {Skip.MADE_RESULT: 1}


def test_result_without_a_call_is_dropped() -> None:
    """So is a second result of the same call."""
    recording = chat(
        user("a"), tool("lost", "?"), assistant("x", ("c", "")), tool("c", "1"), tool("c", "2"), assistant("y")
    )
    assert recording.tool_results() == {"c": "1"}
    assert recording.skipped == {Skip.ORPHAN_RESULT: 2}


def test_call_ids_used_again_are_made_unique() -> None:
    """Within a round and across turns; each keeps the result that was meant for it."""
    recording = chat(
        user("a"),
        assistant("x", ("c", "1"), ("c", "2")),
        tool("c", "one"),
        tool("c", "two"),
        assistant("y", ("c~2", "3"), ("open", "4")),
        tool("c~2", "three"),
        assistant("z", ("open", "5")),
        tool("open", "five"),
        assistant("end"),
    )
    results = recording.tool_results()
    assert list(results.values()) == ["one", "two", "three", NO_RESULT, "five"]
    assert recording.skipped == {Skip.RENAMED_CALL: 3, Skip.MADE_RESULT: 1}


def test_blank_messages_are_dropped() -> None:
    """A blank user message is no input, a blank assistant text no answer."""
    recording = chat(user("a"), user(" \n"), assistant("\n\n"), assistant("x"))
    assert recording.turns == (RecordedTurn(input="a", rounds=(RecordedRound(text="x"),)),)
    assert recording.skipped == {Skip.BLANK: 2}


def test_parts_that_are_not_text_are_counted() -> None:
    """Images leave a mark; thinking and unknown parts do not."""
    recording = chat(
        user([{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "what is it?"}]),
        assistant([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a dog"}, {"type": "audio"}]),
    )
    assert recording.turns[0].input == "[image]\nwhat is it?"
    assert recording.turns[0].rounds[0].text == "a dog"
    assert recording.skipped == {Skip.IMAGE: 1, Skip.THINKING: 1, "part of type audio": 1}


def test_calls_of_the_first_chat_api_are_read() -> None:
    """A function call has no id; its result comes under the function's name."""
    called: Json = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "[1]"}}
    one, two = ({"role": "function", "name": "add", "content": content} for content in ("one", "two"))
    recording = chat(user("a"), called, one, called, two, assistant("done"))
    assert recording.tool_results() == {"add": "one", "add~2": "two"}
    assert recording.turns[0].rounds[0].calls[0].arguments == "[1]"


def test_refusal_is_an_answer_and_reasoning_is_none() -> None:
    """Both stand beside the content of a chat message."""
    refused = {"role": "assistant", "content": None, "refusal": "I will not", "reasoning_content": "hm"}
    recording = chat(user("a"), refused)
    assert recording.turns[0].rounds[0].text == "I will not"
    assert recording.skipped == {Skip.THINKING: 1}


def test_unknown_roles_are_counted() -> None:
    """A message of another role is dropped under its name."""
    assert chat(*SIMPLE, {"role": "critic", "content": "hm"}).skipped == {"message of role critic": 1}


def test_lines_of_one_api_message_are_one_round() -> None:
    """However its results come in between; its usage counts once, with the largest completion."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 5}
    recording = claude(
        line("user", "go"),
        line("assistant", [{"type": "text", "text": "one"}], "m1", usage=usage),
        line("assistant", [use("a", command="ls")], "m1", usage=usage),
        line("user", [gave("a", "files")]),
        line("assistant", [use("b", command="pwd")], "m1", usage={**usage, "output_tokens": 50}),
        line("user", [gave("b", [{"type": "text", "text": "/"}])]),
        line("assistant", [{"type": "text", "text": "done"}], "m2"),
    )
    first, last = recording.turns[0].rounds
    assert first.results == (("a", "files"), ("b", "/"))
    assert first.usage == Usage(123, 50, 100)
    assert (last.text, last.usage) == ("done", None)
    assert recording.skipped == {Skip.REPEATED_USAGE: 2}


def test_texts_of_one_api_message_are_joined() -> None:
    """By a blank line."""
    recording = claude(line("user", "go"), line("assistant", "one", "m"), line("assistant", "two", "m"))
    assert recording.turns[0].rounds[0].text == "one\n\ntwo"


def test_message_that_comes_while_calls_run_waits_for_its_answer() -> None:
    """The running API message keeps its round; the next one answers."""
    recording = claude(
        line("user", "go"),
        line("assistant", [use("a")], "m1"),
        line("user", "hurry"),
        line("assistant", [use("b")], "m1"),
        line("user", [gave("a", "1"), gave("b", "2"), {"type": "text", "text": "now"}]),
        line("assistant", "done", "m2"),
    )
    assert [turn.input for turn in recording.turns] == ["go", "hurry\n\nnow"]
    assert recording.turns[0].rounds[0].results == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted"}, Skip.COMPACTION),
        (line("user", "This session is being continued", isCompactSummary=True), Skip.COMPACTION),
        (line("user", "caveat", isMeta=True), Skip.META),
        (line("assistant", "in a side chain", isSidechain=True), Skip.SIDECHAIN),
        (line("assistant", "API Error: 529", isApiErrorMessage=True), Skip.API_ERROR),
        ({"type": "system", "subtype": "turn_duration", "durationMs": 1}, Skip.NOTICE),
        ({"type": "summary", "summary": "title", "leafUuid": "x"}, "line of type summary"),
        ({"type": "file-history-snapshot", "snapshot": {}}, "line of type file-history-snapshot"),
        (line("user", "go", uuid="u1"), Skip.REPEATED_LINE),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_claude_code_lines_beside_the_conversation_are_counted(extra: Json, reason: str) -> None:
    """They may stand anywhere, in the middle of a turn too."""
    conversation = [
        line("user", "go", uuid="u1"),
        line("assistant", [use("a")], "m1"),
        line("user", [gave("a", "1")]),
        line("assistant", "done", "m2"),
    ]
    expected = claude(*conversation).turns
    for position in range(1, len(conversation) + 1):
        recording = claude(*conversation[:position], extra, *conversation[position:])
        assert (recording.turns, recording.skipped) == (expected, {reason: 1})


def test_unreadable_usage_is_no_usage() -> None:
    """A report that is not made of counts says nothing."""
    recording = claude(line("user", "go"), line("assistant", "done", "m", usage={"input_tokens": -1}))
    assert recording.turns[0].rounds[0].usage is None


def test_episodes_are_joined_to_one_session() -> None:
    """What the user says at the end of an episode opens the next, together with its first message."""
    episodes = [{"messages": [*SIMPLE, user("###STOP###")]}, {"messages": SIMPLE}]
    document = {"system": "policy", "sessions": [{"id": "s", "episodes": episodes}]}
    recording = read_recording(json.dumps(document).encode(), "tau.json")
    assert recording.instructions == "policy"
    assert [turn.input for turn in recording.turns] == ["hi", "###STOP###\n\nhi"]


def test_conversation_is_chosen_by_its_id() -> None:
    """The whole id or its end; the first if none is named; captions are kept."""
    second = [{**user("look"), "image_caption": "a dog"}, assistant("nice")]
    document = {"conversations": [{"id": "x/conv-1", "entries": SIMPLE}, {"id": "x/conv-2", "entries": second}]}
    data = json.dumps(document).encode()
    assert read_recording(data, "f").turns[0].input == "hi"
    assert read_recording(data, "f", "conv-2").turns[0].input == "look\n[image: a dog]"
    with pytest.raises(InvalidInput, match=r"must be one of \['x/conv-1', 'x/conv-2'\]"):
        read_recording(data, "f", "conv-3")


def test_choice_is_refused_where_there_is_none() -> None:
    """A file of one conversation."""
    with pytest.raises(InvalidInput, match="single conversation"):
        read_recording(json.dumps(SIMPLE).encode(), "f", "conv-2")


def test_provider_replies_and_tool_results_are_what_was_recorded() -> None:
    """A fake that gives them back plays the recording again."""
    recording = chat(user("a"), assistant("x", ("c", "{}")), tool("c", "r"), assistant("y"), *SIMPLE)
    replies = recording.provider_replies()
    assert [(place, reply.text) for place, reply in replies.items()] == [
        ((0, 0), "x"),
        ((0, 1), "y"),
        ((1, 0), "hello"),
    ]
    assert [call.call_id for call in replies[0, 0].calls] == ["c"]
    assert recording.tool_results() == {"c": "r"}
    assert [(tool.name, tool.parameters) for tool in recording.tool_declarations()] == [("run", {"type": "object"})]


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("data", "where", "rule"),
    [
        (b"", "f", "OpenAI chat messages"),
        (b" \n ", "f", "Claude Code"),
        (b"\x89PNG\r\n\x1a\n\x00", "f", "UTF-8 text, and is not at byte 0"),
        (b"\x00\x01\x02", "f", "must hold a recorded session"),
        (b"hello, world", "f", "must hold a recorded session"),
        (b"{}", "f", "must hold a recorded session"),
        (b"[]", "f", "must hold a recorded session"),
        (b"[1, 2]", "f", "must hold a recorded session"),
        (b'{"a": 1}\n{"b": 2}', "f", "must hold a recorded session"),
        (b'{"messages": []}', "f", "must hold an answered turn"),
        (b'{"messages": {}}', "f", "must hold a recorded session"),
        (b'{"type": "summary", "summary": "x"}', "f", "must hold an answered turn"),
        (json.dumps(SIMPLE).encode()[:-20], "f, line 1:", "is the file cut off?"),
        (b'{"role": "user", "content": "a"}\n{"role": "assis', "f, line 2:", "is the file cut off?"),
        (b'[{"role": "user", "content": NaN}]', "f, line 1:", "NaN is no JSON number"),
        (b'[{"role": "user", "content": -Infinity}]', "f, line 1:", "-Infinity is no JSON number"),
        (b'[{"role": "user", "content": 1e999}]', "f, line 1:", "beyond what a number can be"),
        (b'[{"role": "user", "content": %s}]' % (b"9" * 5_000), "f, line 1:", "must be JSON"),
        (DEEP.encode(), "f, line 1:", "nested too deeply"),
        (b'[{"role": "user", "content": "\\ud800"}]', "f, message 1:", "lone surrogate"),
        (b'[{"role": "user", "content": 5}]', "f, message 1:", "must have a list as content"),
        (b'[{"role": "user", "content": "a"}, 7]', "f, message 2:", "must have an object as message"),
        (b'[{"role": "user", "content": "a"}, {}]', "f, message 2:", "must have a string as type or role"),
        (b'[{"role": "tool", "content": "a"}]', "f, message 1:", "must have a string as tool_call_id"),
        (json.dumps([assistant("", (" ", ""))]).encode(), "f, message 1:", "call id that is not blank"),
        (b'{"type": "user", "uuid": 5}', "f, line 1:", "must have an object as message"),
        (b'{"type": "user"}\n7', "f, line 1:", "must have an object as message"),
        (b'{"type": "user", "message": {"content": [{"type": "tool_use"}]}}', "f, line 1:", "no tool_use in a user"),
        (b'{"conversations": [5]}', "f, conversations:", "must have an object as conversation"),
        (b'{"sessions": [{"episodes": 5}]}', "f, system:", "must have a list as episodes"),
    ],
)
def test_what_is_no_recording_is_refused(data: bytes, where: str, rule: str) -> None:
    """The error names the source, the place, and the rule or what is understood."""
    with pytest.raises(InvalidInput) as refused:
        read_recording(data, "f")
    assert refused.value.field == where
    assert rule in str(refused.value)


MESSAGES = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["", "u", "v"])),
        st.builds(
            lambda text, ids: assistant(text, *((call_id, "{}") for call_id in ids)),
            st.sampled_from(["", "x"]),
            st.lists(st.sampled_from("abc"), max_size=3),
        ),
        st.builds(tool, st.sampled_from("abc"), st.sampled_from(["", "r"])),
    ),
    max_size=12,
)


@given(messages=MESSAGES)
def test_any_order_of_messages_is_read_or_refused(messages: list[Json]) -> None:
    """Every text and call is in the turns or counted; the values check the shape of turns and rounds themselves."""
    try:
        recording = chat(*messages)
    except InvalidInput:
        assert not any(m["role"] == "assistant" and (m["content"] or m.get("tool_calls")) for m in messages)
        return
    skipped = recording.skipped
    rounds = [played for turn in recording.turns for played in turn.rounds]
    inputs = sum(turn.input != CONTINUE for turn in recording.turns)
    results = sum(m["role"] == "tool" for m in messages)
    calls = sum(len(m.get("tool_calls", ())) for m in messages)
    made, orphans = skipped.get(Skip.MADE_RESULT, 0), skipped.get(Skip.ORPHAN_RESULT, 0)
    assert inputs + skipped.get(Skip.JOINED_INPUT, 0) + skipped.get(Skip.UNANSWERED, 0) == sum(
        m["role"] == "user" and m["content"] != "" for m in messages
    )
    assert sum(len(played.calls) for played in rounds) == calls
    assert calls - made == results - orphans


WORDS = (
    "role",
    "type",
    "content",
    "message",
    "messages",
    "events",
    "kind",
    "blocks",
    "uuid",
    "id",
    "tool_calls",
    "text",
)
SCALARS = st.sampled_from([None, True, 0, -1.5, "", "user", "assistant", "tool_use", "text", "message", "\ud800"])
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)


@given(value=ANY_JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    """No shape of a file raises anything but InvalidInput, and the error can be printed."""
    try:
        recording = read_recording(json.dumps(value).encode(), "f")
        " ".join(recording.skipped).encode()
    except InvalidInput as refused:
        str(refused).encode()


@given(cut=st.floats(0, 1))
def test_cut_off_file_is_refused(cut: float) -> None:
    """Anywhere before its end, a JSON document is no recording."""
    data = json.dumps([user("aé😀"), assistant("b", ("c", "{}")), tool("c", "d")], ensure_ascii=False).encode()
    with pytest.raises(InvalidInput):
        read_recording(data[: int(cut * (len(data) - 1))], "f")


@pytest.mark.parametrize("name", CLAUDE_FILES)
def test_everything_said_in_a_claude_code_session_is_read(name: str) -> None:
    """Byte for byte and in order: all inputs, texts, calls and results, except what is counted as left out."""
    data = data_file(name)
    recording = read_recording(data, name)
    events = [e for e in json.loads(data)["events"] if e["kind"] == "message" and not e.get("compact_summary")]
    blocks = [(event["role"], block) for event in events for block in event["blocks"]]
    rounds = [played for turn in recording.turns for played in turn.rounds]
    texts = [(role, block["text"]) for role, block in blocks if block["type"] == "text" and block["text"].strip()]
    said = [text for role, text in texts if role == "assistant"]
    results = {block["tool_use_id"]: block["content"] for _, block in blocks if block["type"] == "tool_result"}
    calls = [block for _, block in blocks if block["type"] == "tool_use"]
    assert "\n\n".join(turn.input for turn in recording.turns) == "\n\n".join(t for role, t in texts if role == "user")
    assert "\n\n".join(p.text for p in rounds if p.text not in ("", NO_ANSWER)) == "\n\n".join(said)
    assert [(c.call_id, json.loads(c.arguments)) for p in rounds for c in p.calls] == [
        (call["id"], call["input"]) for call in calls
    ]
    assert list(recording.tool_results().items()) == [(call["id"], results[call["id"]]) for call in calls]
    assert recording.skipped[Skip.COMPACTION] == 2


def test_everything_said_in_the_episodes_is_read() -> None:
    """Byte for byte and in order; the last message of the last episode has no answer."""
    name = "tau_airline_gpt4o.json"
    data = data_file(name)
    recording = read_recording(data, name)
    document = json.loads(data)
    messages = [m for episode in document["sessions"][0]["episodes"] for m in episode["messages"]]
    rounds = [played for turn in recording.turns for played in turn.rounds]

    def contents(role: str) -> Iterator[str]:
        return (m["content"] for m in messages if m["role"] == role and m["content"])

    inputs = list(contents("user"))
    assert recording.instructions == document["system"]
    assert "\n\n".join(turn.input for turn in recording.turns) == "\n\n".join(inputs[:-1])
    assert recording.skipped[Skip.UNANSWERED] == 1
    assert [p.text for p in rounds if p.text not in ("", NO_ANSWER)] == list(contents("assistant"))
    assert [text for p in rounds for _, text in p.results] == [m["content"] for m in messages if m["role"] == "tool"]
    assert [c.arguments for p in rounds for c in p.calls] == [
        call["arguments"] for m in messages for call in m.get("tool_calls") or ()
    ]


@pytest.mark.parametrize("index", range(5))
def test_everything_said_in_a_dialogue_is_read(index: int) -> None:
    """Every entry's text stands in its turn, in order, on both sides."""
    data = data_file("locomo5.json")
    dialogue = json.loads(data)["conversations"][index]
    recording = read_recording(data, "locomo5.json", dialogue["id"])
    unanswered = recording.skipped.get(Skip.UNANSWERED, 0)
    asked = [e["content"] for e in dialogue["entries"] if e["role"] == "user"]
    answered = [e["content"] for e in dialogue["entries"] if e["role"] == "assistant"]
    for expected, found in (
        (asked[: len(asked) - unanswered], "".join(turn.input for turn in recording.turns)),
        (answered, "".join(turn.rounds[0].text for turn in recording.turns)),
    ):
        position = 0
        for text in expected:
            position = found.index(text, position) + len(text)
