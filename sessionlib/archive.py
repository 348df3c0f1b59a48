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
