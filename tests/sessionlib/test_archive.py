"""Archive chunks: what went in comes out, and a damaged one is an error, never other entries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zstandard

from sessionlib.archive import LEVEL, entries_at, entries_of, pack, unpack
from sessionlib.codec import encode_entries
from sessionlib.entries import Entry
from sessionlib.errors import StoreCorrupt
from sessionlib.stores.contract import Chunk

ENTRIES = (Entry.user("hello there\n"), Entry.assistant("one"), Entry.tool_result("c", "42 43 44"))


def packed_without_checksum(*entries: Entry) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL).compress(encode_entries(entries).encode())


def chunk_of(data: bytes, last_seq: int) -> Chunk:
    return Chunk(first_seq=5, last_seq=last_seq, epoch=1, data=data)


@pytest.mark.parametrize("count", [1, 3])
def test_a_changed_byte_gives_no_other_entries(count: int) -> None:
    """An error, or what was there where the byte carries nothing; some heads name any size, or none."""
    entries = ENTRIES[:count]
    data = pack(entries)
    error_count = 0
    for place in range(len(data)):
        for change in range(1, 256):
            damaged = data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]
            try:
                assert unpack(damaged) == entries
            except StoreCorrupt:
                error_count += 1
    assert error_count > 0.99 * 255 * len(data)


@pytest.mark.parametrize("length", [0, 1, 4, 12, -5, -4, -1])
def test_a_cut_chunk_is_an_error(length: int) -> None:
    """Wherever it is cut, its checksum included."""
    with pytest.raises(StoreCorrupt):
        unpack(pack(ENTRIES)[:length])


def test_a_checksum_takes_four_bytes() -> None:
    """Per chunk, whatever it holds."""
    for entries in (ENTRIES[:1], ENTRIES * 500):
        assert len(pack(entries)) == len(packed_without_checksum(*entries)) + 4


def test_chunks_without_a_checksum_are_read() -> None:
    """As stores have them from before there was one."""
    data = packed_without_checksum(*ENTRIES)
    assert unpack(data) == ENTRIES
    assert entries_of([chunk_of(data, 7)], 6, 9) == ENTRIES[1:]
    assert entries_at(chunk_of(data, 7), [4, 7]) == {7: ENTRIES[2]}


@pytest.mark.parametrize("last_seq", [6, 8])
@pytest.mark.parametrize(
    "read", [lambda chunk: entries_of([chunk], 1, 9), lambda chunk: entries_at(chunk, [5, 8])], ids=["span", "singly"]
)
def test_a_chunk_holds_as_many_entries_as_it_spans(read: Callable[[Chunk], object], last_seq: int) -> None:
    """Else an entry would be found under another's number."""
    with pytest.raises(StoreCorrupt, match=r"of [24] entries holds 3"):
        read(chunk_of(pack(ENTRIES), last_seq))
