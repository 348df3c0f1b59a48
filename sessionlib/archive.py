"""Archive chunks: what left the window at one rotation, compressed, each entry byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import zstandard

from sessionlib.codec import decode_entries, encode_entries
from sessionlib.entries import Entry
from sessionlib.errors import StoreCorrupt
from sessionlib.stores.contract import Chunk

LEVEL = 3
"""zstd's own default: higher levels gain a few per cent and cost several times as long."""


def pack(entries: Sequence[Entry]) -> bytes:
    """Entries as one compressed chunk."""
    return zstandard.ZstdCompressor(level=LEVEL).compress(encode_entries(entries).encode())


def unpack(data: bytes) -> tuple[Entry, ...]:
    """The entries of a chunk. Raises StoreCorrupt."""
    try:
        return decode_entries(zstandard.ZstdDecompressor().decompress(data).decode())
    except (zstandard.ZstdError, UnicodeDecodeError) as exc:
        raise StoreCorrupt(f"an archive chunk cannot be read: {exc}") from exc


def find(chunks: Iterable[Chunk], seq: int) -> Entry | None:
    """The archived entry with sequence number *seq*, if one of *chunks* holds it."""
    for chunk in chunks:
        if chunk.first_seq <= seq <= chunk.last_seq:
            return unpack(chunk.data)[seq - chunk.first_seq]
    return None


def entries_of(chunks: Iterable[Chunk], first_seq: int, last_seq: int) -> tuple[Entry, ...]:
    """The archived entries `first_seq … last_seq`, as far as *chunks*, oldest first, hold them."""
    found: list[Entry] = []
    for chunk in chunks:
        start, end = max(first_seq, chunk.first_seq), min(last_seq, chunk.last_seq)
        if start <= end:
            found.extend(unpack(chunk.data)[start - chunk.first_seq : end - chunk.first_seq + 1])
    return tuple(found)
