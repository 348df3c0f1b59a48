"""Archive chunks: what left the window at one rotation, compressed, each entry byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import zstandard

from sessionlib.codec import decode, decode_entries, encode_entries
from sessionlib.entries import Entry
from sessionlib.errors import StoreCorrupt
from sessionlib.stores.contract import Chunk

LEVEL = 3
"""zstd's own default: higher levels gain a few per cent and cost several times as long."""


def pack(entries: Sequence[Entry]) -> bytes:
    """Entries, at least one, as one compressed chunk. Its last 4 bytes are a checksum; older chunks have none."""
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(encode_entries(entries).encode())


def unpack(data: bytes) -> tuple[Entry, ...]:
    """The entries of a chunk. Raises StoreCorrupt."""
    return decode_entries(_text(data))


def _text(data: bytes) -> str:
    """The entries of a chunk as they are encoded, a line each. Raises StoreCorrupt."""
    try:
        text = zstandard.ZstdDecompressor().decompress(data).decode()
    except (zstandard.ZstdError, UnicodeDecodeError, MemoryError) as exc:  # a damaged head may name any size
        raise StoreCorrupt(f"an archive chunk cannot be read: {exc}") from exc
    if not text:  # a head that names none is not even compared with what follows
        raise StoreCorrupt("an archive chunk cannot be read: it holds nothing")
    return text


def _lines(chunk: Chunk) -> list[str]:
    """The entries of a chunk as they are encoded, as many as its span says. Raises StoreCorrupt."""
    lines, count = _text(chunk.data).split("\n"), chunk.last_seq - chunk.first_seq + 1
    if len(lines) != count:
        raise StoreCorrupt(f"an archive chunk of {count} entries holds {len(lines)}")
    return lines


def entries_of(chunks: Iterable[Chunk], first_seq: int, last_seq: int) -> tuple[Entry, ...]:
    """The archived entries `first_seq … last_seq`, as far as *chunks*, oldest first, hold them.

    No others are decoded. Raises StoreCorrupt.
    """
    found: list[Entry] = []
    for chunk in chunks:
        start, end = max(first_seq, chunk.first_seq), min(last_seq, chunk.last_seq)
        if start <= end:
            lines = _lines(chunk)[start - chunk.first_seq : end - chunk.first_seq + 1]
            found.extend(decode(Entry, line) for line in lines)
    return tuple(found)


def entries_at(chunk: Chunk, seqs: Iterable[int]) -> dict[int, Entry]:
    """Those of *seqs* that a chunk holds, by number. No others are decoded. Raises StoreCorrupt."""
    lines = _lines(chunk)
    return {
        seq: decode(Entry, lines[seq - chunk.first_seq]) for seq in seqs if chunk.first_seq <= seq <= chunk.last_seq
    }
