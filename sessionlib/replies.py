"""What a model answered, made fit to be history."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.entries import encodable
from sessionlib.providers.contract import CallRequest, ModelReply


def recordable(reply: ModelReply, first_seq: int, taken: set[str]) -> ModelReply:
    """*reply* with encodable texts, and with calls whose ids are unique and not among *taken*, which they join.

    Some models number their calls anew in each answer, or give no ids at all. A new id is made of the entry's sequence
    number, so a round that runs again makes the same; *first_seq* is the number of the reply's first entry.
    """
    text = encodable(reply.text)
    opaque = tuple(replace(item, data=encodable(item.data)) for item in reply.opaque)
    calls = []
    for position, call in enumerate(reply.calls, start=1 if text else 0):
        seq = first_seq + position + sum(1 for item in opaque if item.index <= position)
        call_id = _unique(encodable(call.call_id).strip(), seq, taken)
        taken.add(call_id)
        calls.append(CallRequest(call_id=call_id, name=encodable(call.name), arguments=encodable(call.arguments)))
    return replace(reply, text=text, calls=tuple(calls), opaque=opaque)


def _unique(call_id: str, seq: int, taken: set[str]) -> str:
    if call_id and call_id not in taken:
        return call_id
    made = f"{call_id or 'call'}_{seq}"
    while made in taken:
        made += "_"
    return made
