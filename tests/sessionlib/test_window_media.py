"""Images and files in the window: counted, kept beside shortened text, named where a trim reaches them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.agent import Agent
from sessionlib.attachments import media_from_bytes, media_from_url
from sessionlib.entries import Entry
from sessionlib.errors import InputTooLarge, InvalidInput
from sessionlib.inputs import turn_input
from sessionlib.layout import Layout
from sessionlib.projection import Projection, sent_size
from sessionlib.stores.contract import Trim, TurnInput
from sessionlib.tokens import CharactersCounter
from sessionlib.tools.history_lists import item_part
from sessionlib.tools.history_room import ResultRoom
from sessionlib.transcript import Transcript
from sessionlib.turn import first_pending
from sessionlib.window import Budgets, build_entries, fit, sent_sizes
from tests.sessionlib.pictures import png
from tests.sessionlib.test_turn import grant_of, snapshot_of

COUNTER = CharactersCounter()
SMALL = media_from_bytes(png(100, 100, padding_bytes=300), "small.png")
"""255 tokens by the larger rule, and 32 around them."""
LARGE = media_from_bytes(png(1_000, 1_000), "large.png")
CAP_TOKENS = 800
PROJECTION = Projection(COUNTER, CAP_TOKENS)


def budgets(limit_tokens: int) -> Budgets:
    return Budgets(
        window_tokens=limit_tokens * 2,
        fixed_tokens=50,
        line_tokens=limit_tokens,
        limit_tokens=limit_tokens,
        trim_tokens=limit_tokens * 4 // 5,
        tail_tokens=60,
        stretched_tail_tokens=100,
        record_tokens=60,
        result_cap_tokens=CAP_TOKENS,
    )


def layout_of(*entries: Entry) -> Layout:
    return Layout(live=Transcript(entries, sent_sizes(entries, budgets(1_000), COUNTER)))


def seen(call_id: str, text: str = "done") -> tuple[Entry, Entry]:
    return Entry.tool_call(call_id, "{}", "look"), Entry.tool_result(call_id, text, "look", (SMALL,))


def test_a_result_within_the_cap_is_sent_whole() -> None:
    """Text and picture."""
    result = seen("c")[1]
    assert PROJECTION.project(result, 7) == result


def test_a_long_text_is_shortened_beside_its_picture() -> None:
    """The picture leaves enough of the cap."""
    sent = PROJECTION.project(seen("c", "word " * 2_000)[1], 7)
    assert sent.media == (SMALL,)
    assert "characters left out; the whole is entry 7" in sent.text
    assert COUNTER.entry(sent) <= CAP_TOKENS


@pytest.mark.parametrize("text", ["done", "word " * 2_000])
def test_a_picture_above_the_cap_is_named(text: str) -> None:
    """It would leave no room for text."""
    result = Entry.tool_result("c", text, "look", (LARGE,))
    sent = PROJECTION.project(result, 7)
    assert sent.media == ()
    assert sent.text.endswith(LARGE.label)
    assert sent.text.startswith(text[:4])
    assert COUNTER.entry(sent) <= CAP_TOKENS


@given(
    text_characters=st.integers(0, 6_000),
    media=st.lists(st.sampled_from([SMALL, LARGE, media_from_url("https://example.org/" + "a" * 900)]), max_size=3),
    cap_tokens=st.integers(0, 3_000),
)
def test_a_result_is_never_sent_larger_than_its_size(
    text_characters: int, media: list[object], cap_tokens: int
) -> None:
    """Whatever it shows."""
    result = Entry.tool_result("c", "x" * text_characters, media=tuple(media))  # type: ignore[arg-type]
    projected = Projection(COUNTER, cap_tokens).project(result, 123_456)
    assert COUNTER.entry(projected) <= sent_size(result, cap_tokens, COUNTER)


def test_a_pointer_names_what_it_stands_for() -> None:
    """Text by its length and its entry, a picture by its name; of a message the text stays."""
    assert PROJECTION.pointer(seen("c", "x" * 900)[1], 7) == Entry.tool_result(
        "c",
        f"[900 characters left out to save room; the whole is entry 7, read it with history.read_item]\n{SMALL.label}",
        "look",
    )
    assert PROJECTION.pointer(Entry.user("look", (SMALL,)), 7) == Entry.user(f"look\n{SMALL.label}")


def test_a_trim_names_older_pictures_first() -> None:
    """Those of messages and results alike, oldest first, as far as it must; what was not answered yet stays."""
    entries = (
        *(Entry.user("see", (SMALL,)), Entry.assistant("seen")),
        *(Entry.user("go"), *seen("c1"), Entry.assistant("done")),
        Entry.user("and this?", (SMALL,)),
    )
    sent, trim = fit(layout_of(*entries), Trim(), budgets(800), PROJECTION)
    assert trim == Trim(pointers_before_seq=2)
    assert [len(entry.media) for entry in sent.entries] == [0, 0, 0, 0, 1, 0, 1]
    assert sent.entries[0].text == f"see\n{SMALL.label}"
    assert sent.tokens == sum(map(COUNTER.entry, sent.entries)) <= 800


def test_a_message_that_is_not_answered_keeps_its_pictures() -> None:
    """It is refused rather than answered without having been seen."""
    with pytest.raises(InputTooLarge):
        fit(layout_of(Entry.user("see", (SMALL, SMALL))), Trim(), budgets(500), PROJECTION)


@given(limit_tokens=st.integers(400, 3_000))
def test_the_limit_holds_with_pictures(limit_tokens: int) -> None:
    """At every limit that the input itself fits; a trim is the same for all that follows."""
    entries: tuple[Entry, ...] = (Entry.user("see", (SMALL,)),)
    for number in range(6):
        entries += (*seen(f"c{number}", "x" * 300 * number), Entry.assistant("ok"), Entry.user("next", (SMALL,)))
    sent, trim = fit(layout_of(*entries), Trim(), budgets(limit_tokens), PROJECTION)
    assert sent.tokens == sum(map(COUNTER.entry, sent.entries)) <= limit_tokens
    assert build_entries(layout_of(*entries), trim, PROJECTION) == sent


def test_reading_again_names_pictures_and_shows_no_reasoning() -> None:
    """What the agent may read of its history is words."""
    room = ResultRoom(PROJECTION, "c1")
    shown = item_part(7, Entry.user("see", (SMALL,)), 0, 4_000, room)
    assert shown.endswith(f"\nsee\n{SMALL.label}")
    assert "secret" not in item_part(8, Entry.opaque('{"thinking": "secret"}', "p/m"), 0, 4_000, room)


# --- what a turn begins with


def test_a_turn_begins_with_what_was_attached() -> None:
    """The message and its pictures are one entry."""
    given_input = TurnInput(message="see", media=(SMALL,))
    assert first_pending(grant_of(given_input, snapshot_of())) == (Entry.user("see", (SMALL,)),)


def test_attachments_count_before_anything_is_stored() -> None:
    """Too many for the window are refused with the arithmetic; results of open calls take none."""
    agent = Agent(name="a", window_tokens=8_000)
    assert turn_input(agent, "see", None, [LARGE]).media == (LARGE,)
    with pytest.raises(InputTooLarge):
        turn_input(agent, "see", None, [LARGE] * 8)
    with pytest.raises(InvalidInput):
        turn_input(agent, None, {"c1": "r"}, [SMALL])


def test_another_picture_is_another_input() -> None:
    """One turn id goes with one input; a message without any has the digest that it had before there were any."""
    bare = TurnInput(message="see")
    digests = {bare.digest, replace(bare, media=(SMALL,)).digest, replace(bare, media=(LARGE,)).digest}
    assert len(digests) == 3
