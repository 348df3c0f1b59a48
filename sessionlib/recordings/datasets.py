"""Two public data sets: tau-bench's trajectories and LoCoMo's dialogues. One conversation of a file is read."""

from __future__ import annotations

from typing import Any

from sessionlib.errors import InvalidInput
from sessionlib.recordings.assembly import Assembly
from sessionlib.recordings.chat import add_message
from sessionlib.recordings.content import Fields, fields, image, items, plain, string
from sessionlib.recordings.values import Recording, Skip


def read_tau_bench(source: str, document: Fields, conversation: str) -> Recording:
    """The episodes of a session as one long session."""
    assembly = Assembly(source, "tau_bench")
    session = _chosen(assembly, document["sessions"], conversation)
    assembly.place = "system"
    assembly.system(plain(assembly, document.get("system")))
    for episode_number, episode in enumerate(items(assembly, session.get("episodes"), "episodes"), 1):
        messages = items(assembly, fields(assembly, episode, "episode").get("messages"), "messages")
        for number, message in enumerate(messages, 1):
            assembly.place = f"episode {episode_number}, message {number}"
            add_message(assembly, assembly.place, fields(assembly, message, "message"))
    return assembly.finish()


def read_locomo(source: str, document: Fields, conversation: str) -> Recording:
    """A dialogue; what was said with a picture keeps the picture's caption."""
    assembly = Assembly(source, "locomo")
    dialogue = _chosen(assembly, document["conversations"], conversation)
    for number, entry in enumerate(items(assembly, dialogue.get("entries"), "entries"), 1):
        assembly.place = f"entry {number}"
        entry = fields(assembly, entry, "entry")
        text = string(assembly, entry.get("content"), "content")
        if entry.get("image_caption"):
            assembly.skip(Skip.IMAGE)
            text = f"{text}\n{image(entry['image_caption'])}"
        add_message(assembly, assembly.place, {"role": entry.get("role"), "content": text})
    return assembly.finish()


def _chosen(assembly: Assembly, value: object, conversation: str) -> Fields:
    """The conversation whose id is, or ends in, *conversation*; the first for ""."""
    assembly.place = "conversations"
    conversations = [fields(assembly, each, "conversation") for each in items(assembly, value, "list")]
    for each in conversations:
        if str(each.get("id", "")).endswith(conversation):
            return each
    ids: list[Any] = [each.get("id") for each in conversations]
    raise InvalidInput("conversation", conversation, f"must be one of {ids} in {assembly.source}")
