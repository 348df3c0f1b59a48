"""What an archive takes in a store, beside the same uncompressed.

`python -m bench.archive` prints, for the demo session and each real transcript, bytes per 1,000 archived entries: the
entries as they are encoded, the same compressed in the chunks of rotations (64,000 characters each), the postings of a
search as rotations leave them, and both together as a share of the uncompressed. Real transcripts are looked for beside
the checkout, or where SESSIONLIB_DATA says.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.archives import MemoryArchive, data_sets
from bench.figures import print_json
from sessionlib.codec import encode_entries
from sessionlib.entries import Entry
from workers.demo import demo_session
from workers.replay.history import recorded_entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One data set; all bytes for 1,000 of its entries."""

    name: str
    entries: int
    chunks: int
    plain_bytes: int
    chunk_bytes: int
    postings_bytes: int
    ratio: float
    """Chunks and postings ÷ uncompressed."""


def rows(sets: Mapping[str, Sequence[Entry]]) -> Iterator[Row]:
    """A row for each data set."""
    for name, entries in sets.items():
        archive = MemoryArchive(entries)
        plain_bytes = len(encode_entries(entries).encode())
        yield Row(
            name=name,
            entries=len(entries),
            chunks=len(archive.windows()),
            plain_bytes=_per_thousand(plain_bytes, entries),
            chunk_bytes=_per_thousand(archive.chunk_bytes, entries),
            postings_bytes=_per_thousand(archive.postings_bytes, entries),
            ratio=(archive.chunk_bytes + archive.postings_bytes) / plain_bytes,
        )


def _per_thousand(size_bytes: int, entries: Sequence[Entry]) -> int:
    return round(1_000 * size_bytes / len(entries))


def print_report(found: Sequence[Row]) -> None:
    """The figures as a table."""
    print("bytes per 1,000 archived entries")
    print(f"{'':<26}{'entries':>8}{'chunks':>8}{'uncompressed':>14}{'chunks':>12}{'postings':>12}{'together':>10}")
    for row in found:
        print(
            f"{row.name:<26}{row.entries:>8,}{row.chunks:>8}{row.plain_bytes:>14,}{row.chunk_bytes:>12,}"
            f"{row.postings_bytes:>12,}{row.ratio:>10.0%}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.archive", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    chosen = parser.parse_args(arguments)
    found = list(rows({"demo": tuple(recorded_entries(demo_session().recording)), **data_sets()}))
    if chosen.json:
        print_json({"rows": found})
    else:
        print_report(found)


if __name__ == "__main__":
    main()
