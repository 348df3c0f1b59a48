"""The scripted provider: every trait that it can be given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sessionlib.entries import Entry
from sessionlib.errors import (
    Cancelled,
    HandleForgotten,
    InvalidInput,
    ProviderRejected,
    ProviderUnavailable,
    WindowOverflow,
)
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Shape, ToolDeclaration
from sessionlib.providers.scripted import ScriptedProvider, late, unsplit
from sessionlib.tokens import Usage


def request_of(*entries: Entry, **fields: Any) -> ModelRequest:
    defaults: dict[str, Any] = {
        "model": "m",
        "instructions": "",
        "tools": (),
        "parameters": {},
        "session_id": "s",
        "turn_id": "t",
        "step": "model:0",
        "timeout_seconds": 5.0,
    }
    return ModelRequest(entries=entries or (Entry.user("Hello"),), **{**defaults, **fields})


def test_it_echoes_by_default() -> None:
    """Without a script the newest user message comes back."""
    assert ScriptedProvider().complete(request_of()).text == "Acknowledged: Hello"


def test_it_answers_from_a_function() -> None:
    """A function sees the whole request; a string is as good as a reply."""
    provider = ScriptedProvider(lambda request: f"{len(request.entries)} entries")
    assert provider.complete(request_of()).text == "1 entries"


def test_it_answers_from_a_recording() -> None:
    """A recording is dealt out in order, the same call gets the same answer, and its end is an error."""
    provider = ScriptedProvider(["a", ModelReply(text="b")])
    steps = ["model:0", "model:1", "model:0"]
    assert [provider.complete(request_of(step=step)).text for step in steps] == ["a", "b", "a"]
    with pytest.raises(ProviderRejected):
        provider.complete(request_of(step="model:2"))


def test_a18_17_a_reply_ends_with_the_answer_once() -> None:
    """A reply as entries is its text, then its calls; text that is empty beside calls is absent."""
    call = CallRequest(call_id="c", name="f", arguments="{}")
    entry = Entry.tool_call("c", "{}", "f")
    assert ModelReply(text="x").entries() == (Entry.assistant("x"),)
    assert ModelReply(text="").entries() == (Entry.assistant(""),)
    assert ModelReply(text="x", calls=(call,)).entries() == (Entry.assistant("x"), entry)
    assert ModelReply(text="", calls=(call,)).entries() == (entry,)


def test_latency_passes_in_the_given_sleep() -> None:
    """Waiting is the caller's to define."""
    slept: list[float] = []
    ScriptedProvider(latency_seconds=3.0, sleep=slept.append).complete(request_of())
    assert slept == [3.0]


def test_usage_is_counted() -> None:
    """Instructions, tools, entries and answer are counted, by the counter of the spec unless another is given."""
    tool = ToolDeclaration(name="f", description="", parameters={})
    usage = ScriptedProvider(["12345678"]).complete(request_of(instructions="1234", tools=(tool,))).usage
    assert usage == Usage(prompt_tokens=1 + 10 + 6, completion_tokens=6)


def test_usage_can_be_late_or_unsplit() -> None:
    """A provider may say nothing at first, or report one total."""
    provider = ScriptedProvider(usage=late(2))
    assert [provider.complete(request_of()).usage is None for _ in range(3)] == [True, True, False]
    usage = ScriptedProvider(["12345678"], usage=unsplit).complete(request_of()).usage
    assert usage == Usage(prompt_tokens=12, completion_tokens=0)


def test_above_its_window_it_refuses() -> None:
    """A request that its own counter puts above its window is refused, with the limit."""
    with pytest.raises(WindowOverflow) as caught:
        ScriptedProvider(window_tokens=5).complete(request_of())
    assert caught.value.limit_tokens == 5
    assert ScriptedProvider(window_tokens=6).complete(request_of()).text


def test_failures_are_raised_in_order() -> None:
    """A list of failures is used up, one a call; None lets a call pass."""
    provider = ScriptedProvider(failures=[ProviderUnavailable("a"), None, ProviderRejected("b")])
    with pytest.raises(ProviderUnavailable):
        provider.complete(request_of())
    provider.complete(request_of())
    with pytest.raises(ProviderRejected):
        provider.complete(request_of())
    provider.complete(request_of())


def test_failures_can_be_decided() -> None:
    """A function sees the request and may raise for it."""
    provider = ScriptedProvider(failures=lambda request: ProviderRejected("x") if request.turn_id == "bad" else None)
    provider.complete(request_of())
    with pytest.raises(ProviderRejected):
        provider.complete(request_of(turn_id="bad"))


@pytest.mark.parametrize("error", [ProviderUnavailable("x"), Cancelled("x")])
def test_a18_44_nothing_is_recorded_of_a_failed_or_cancelled_call(error: Exception) -> None:
    """Whether the call failed before the answer or within it, no answer and no handle exist."""

    def broken(request: ModelRequest) -> str:
        raise error

    for provider in (
        ScriptedProvider(broken, shape=Shape.HELD),
        ScriptedProvider(failures=[error], shape=Shape.HELD),
    ):
        with pytest.raises(type(error)):
            provider.complete(request_of())
        assert provider.answered == ()
        assert provider.handles == ()
        assert len(provider.requests) == 1


def test_a_held_conversation_goes_on_under_a_new_handle() -> None:
    """Each answer gives a new handle that holds all there was and the answer; the handle before it stays valid."""
    provider = ScriptedProvider(["one", "two"], shape=Shape.HELD)
    first = provider.complete(request_of())
    history = (Entry.user("Hello"), Entry.assistant("one"))
    entries = (*history, Entry.user("More"))
    second = provider.complete(request_of(*entries, handle=first.handle, held_count=2, step="model:1"))
    assert first.handle is not None
    assert second.handle is not None
    assert provider.held(first.handle) == history
    assert provider.held(second.handle) == (*entries, Entry.assistant("two"))
    assert provider.handles == (first.handle, second.handle)


def test_a_held_conversation_counts_whole() -> None:
    """What is held takes its place in the window, although it is not sent again."""
    provider = ScriptedProvider(["one", "two"], shape=Shape.HELD)
    handle = provider.complete(request_of()).handle
    entries = (Entry.user("Hello"), Entry.assistant("one"), Entry.user("More"))
    usage = provider.complete(request_of(*entries, handle=handle, held_count=2, step="model:1")).usage
    assert usage is not None
    assert usage.prompt_tokens == 6 + 5 + 5


def test_a_forgotten_handle_is_an_error() -> None:
    """What the provider lost it says it does not know."""
    provider = ScriptedProvider(shape=Shape.HELD)
    handle = provider.complete(request_of()).handle
    provider.forget()
    with pytest.raises(HandleForgotten):
        provider.complete(request_of(handle=handle, held_count=1))


def test_a_script_without_an_answer_is_an_error() -> None:
    """A function that returns None answered nothing: nothing is recorded, and no handle is made."""
    provider = ScriptedProvider(lambda _: None, shape=Shape.HELD)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidInput, match="text"):
        provider.complete(request_of())
    assert (provider.answered, provider.handles) == ((), ())


def test_a_disposed_handle_takes_no_call() -> None:
    """A conversation that was let go does not go on."""
    provider = ScriptedProvider(shape=Shape.HELD)
    handle = provider.complete(request_of()).handle
    assert handle is not None
    provider.dispose(handle)
    with pytest.raises(HandleForgotten):
        provider.complete(request_of(handle=handle, held_count=1))
    assert len(provider.answered) == 1


def test_disposing_twice_is_fine() -> None:
    """A handle is disposed once; again, or an unknown one, is no error."""
    provider = ScriptedProvider(shape=Shape.HELD)
    handle = provider.complete(request_of()).handle
    assert handle is not None
    provider.dispose(handle)
    provider.dispose(handle)
    provider.dispose("unknown")
    assert provider.disposed == (handle,)


def test_a18_18_a_throwing_disposal_lets_go_only_when_it_succeeds() -> None:
    """A disposal that failed is not done: the handle is held until one succeeds."""
    provider = ScriptedProvider(shape=Shape.HELD, disposal_failures=2)
    handle = provider.complete(request_of()).handle
    assert handle is not None
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            provider.dispose(handle)
        assert provider.handles == (handle,)
    provider.dispose(handle)
    assert provider.handles == ()


def test_a18_07_records_are_snapshots() -> None:
    """What was published before does not change, and is not a list to write through."""
    provider = ScriptedProvider(shape=Shape.HELD)
    before = provider.requests
    provider.complete(request_of())
    assert before == ()
    for published in (provider.requests, provider.answered, provider.handles, provider.disposed):
        assert isinstance(published, tuple)


def test_the_answer_is_told_on_its_way() -> None:
    """A caller that listens receives the text."""
    pieces: list[str] = []
    ScriptedProvider(["abc"]).complete(request_of(), pieces.append)
    assert pieces == ["abc"]


def test_a18_12_concurrent_calls_are_all_recorded() -> None:
    """Calls from many threads lose no record and share no handle."""
    provider = ScriptedProvider(shape=Shape.HELD)
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda n: provider.complete(request_of(turn_id=f"t{n}")), range(200)))
    assert len({reply.handle for reply in replies}) == len(provider.answered) == len(provider.requests) == 200
