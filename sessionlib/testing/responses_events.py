"""A response of the fake server as a stream of events, in the order in which OpenAI's API sends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from sessionlib.testing.responses_checks import Item
from sessionlib.testing.wire import Event, deltas, event

_BEGUN: Mapping[str, Item] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
}
"""What an item has at its beginning, by its type."""


class Numbered:
    """Makes events, each with the next number."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self, kind: str, tokens: int = 0, **fields: Any) -> Event:
        return event({"type": kind, "sequence_number": next(self._numbers), **fields}, tokens, kind)


def events_of(response: Mapping[str, Any]) -> Iterator[Event]:
    """It begins without items; each comes in pieces; the last event has all of it."""
    made = Numbered()
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield made("response.created", response=begun)
    yield made("response.in_progress", response=begun)
    for index, item in enumerate(response["output"]):
        yield from _item_events(made, index, item)
    yield made(f"response.{response['status']}", response=response)


def _item_events(made: Numbered, index: int, item: Item) -> Iterator[Event]:
    first = {**item, **_BEGUN[item["type"]]}
    if "status" in item:
        first["status"] = "in_progress"
    yield made("response.output_item.added", output_index=index, item=first)
    place = {"item_id": item["id"], "output_index": index}
    match item["type"]:
        case "message":
            for part_index, part in enumerate(item["content"]):
                yield from _part_events(made, {**place, "content_index": part_index}, part)
        case "reasoning":
            for part_index, part in enumerate(item["summary"]):
                yield from _summary_events(made, {**place, "summary_index": part_index}, part)
        case _:
            for piece in deltas(item["arguments"]):
                yield made("response.function_call_arguments.delta", 1, **place, delta=piece)
            named = {"name": item["name"], "arguments": item["arguments"]}
            yield made("response.function_call_arguments.done", **place, **named)
    yield made("response.output_item.done", output_index=index, item=item)


def _part_events(made: Numbered, place: Mapping[str, Any], part: Item) -> Iterator[Event]:
    field = "text" if part["type"] == "output_text" else "refusal"
    kind = f"response.{part['type']}"
    further: Item = {"logprobs": []} if field == "text" else {}
    yield made("response.content_part.added", **place, part={**part, field: ""})
    for piece in deltas(part[field]):
        yield made(f"{kind}.delta", 1, **place, delta=piece, **further)
    yield made(f"{kind}.done", **place, **{field: part[field]}, **further)
    yield made("response.content_part.done", **place, part=part)


def _summary_events(made: Numbered, place: Mapping[str, Any], part: Item) -> Iterator[Event]:
    yield made("response.reasoning_summary_part.added", **place, part={**part, "text": ""})
    for piece in deltas(part["text"]):
        yield made("response.reasoning_summary_text.delta", 1, **place, delta=piece)
    yield made("response.reasoning_summary_text.done", **place, text=part["text"])
    yield made("response.reasoning_summary_part.done", **place, part=part)
