"""The estimate for where no tokenizer is at hand: by script and kind of run, on the high side."""

from __future__ import annotations

import math
import re
from collections import Counter as Occurrences
from dataclasses import dataclass

from sessionlib.tokens import SerializedCounter

ERROR_RATIO = 1.10
"""True tokens (o200k_base) are at most this multiple of the estimate, on every kind in bench/counters.py."""

_MIXED_RUN = re.compile(r"[A-Za-z0-9+/]{8,}")
"""Where hex and base64 are looked for."""

_HEX = frozenset("0123456789abcdef")
HEX_TOKENS_PER_CHARACTER = 0.60
BASE64_TOKENS_PER_CHARACTER = 0.72

BLOB_DIGIT_FRACTION = 0.06
"""Random base64 is 16 % digits, names of things hardly ever hold any: below this a run is words."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One kind of run of characters: *first* tokens for its first *free* characters, *each* for every further one."""

    pattern: re.Pattern[str]
    first: float
    free: int = 1
    each: float = 0.0

    def tokens(self, text: str) -> float:
        lengths = Occurrences(map(len, self.pattern.findall(text)))
        return sum(count * (self.first + self.each * max(0, length - self.free)) for length, count in lengths.items())


# Weights: fitted on bench.samples.fit_samples() against o200k_base with a margin of a few per cent, rounded up.
_ASCII_RUNS = (
    _Run(re.compile(r"[A-Z]?[a-z]+"), first=1.0, free=6, each=0.08),
    # no word of a language: a run that long is an identifier or padding
    _Run(re.compile(r"[a-z]{21,}"), first=0.0, free=20, each=0.47),
    _Run(re.compile(r"[A-Z]+(?![a-z])|[A-Z](?=[A-Z])"), first=1.0, free=2, each=0.40),
    # the encodings cut numbers into groups of three digits
    _Run(re.compile(r"[0-9]{1,3}"), first=1.0),
    _Run(re.compile(r"[!-/:-@\[-`{-~]+"), first=1.0, free=2, each=0.30),
    # a space belongs to the word or sign that follows it, but to no number
    _Run(re.compile(r"[\r\n]+| (?=[0-9])"), first=1.0, free=16, each=0.07),
    _Run(re.compile(r"[ \t]{2,}|\t"), first=1.0, free=64, each=0.02),
    _Run(re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"), first=1.0),
)

_OTHER_RUNS = (
    _Run(re.compile("[\u4e00-\u9fff]"), first=1.05),
    _Run(re.compile("[\u3040-\u30ff]"), first=0.85),
    _Run(re.compile("[\uac00-\ud7a3]"), first=0.93),
    _Run(re.compile("[\u3000-\u303f\uff00-\uffef]"), first=1.0),
    # rare ideographs, by their UTF-8 bytes
    _Run(re.compile("[\u3400-\u4dbf]"), first=3.0),
    _Run(re.compile("[\U00020000-\U0003ffff]"), first=4.0),
    # joiners and variation selectors between the parts of an emoji
    _Run(re.compile("[\u200d\ufe0f]"), first=1.0),
    # emoji and other signs beyond the basic plane
    _Run(re.compile("[\U00010000-\U0001ffff\U00040000-\U0010ffff]"), first=2.55),
    # arrows, mathematics, boxes, dingbats
    _Run(re.compile("[\u2100-\u2bff]"), first=2.0),
    # dashes, quotation marks and the like
    _Run(re.compile("[\u2000-\u200c\u200e-\u20ff]"), first=1.0),
    # alphabets of two bytes a letter: Latin with accents, Greek, Cyrillic, Hebrew, Arabic
    _Run(re.compile("[\u0080-\u07ff]"), first=0.75),
    # and of three: Indic scripts, Thai, Georgian, Ethiopic
    _Run(
        re.compile("[\u0800-\u1fff\u2c00-\u2fff\u3100-\u33ff\u4dc0-\u4dff\ua000-\uabff\ud7a4-\ufe0e\ufe10-\ufeff]"),
        first=1.4,
    ),
    _Run(re.compile("[\ufff0-\uffff]"), first=2.0),
)


class EstimateCounter(SerializedCounter):
    """Estimates tokens from the scripts and shapes in a text. Undercounts by less than its error ratio allows."""

    name = "estimate"
    error_ratio = ERROR_RATIO

    def text(self, text: str) -> int:
        if not text:
            return 0
        blob_tokens = 0.0

        def blob(match: re.Match[str]) -> str:
            nonlocal blob_tokens
            ratio = _tokens_per_character(match[0])
            blob_tokens += ratio * len(match[0])
            return "\x20" if ratio else match[0]

        words = _MIXED_RUN.sub(blob, text)
        runs = _ASCII_RUNS if words.isascii() else _ASCII_RUNS + _OTHER_RUNS
        return max(1, math.ceil(blob_tokens + sum(run.tokens(words) for run in runs)))


def _tokens_per_character(run: str) -> float:
    """Density of a run of letters and digits if it is hex or base64; 0.0 if it is words or a number."""
    digit_count = sum(map(run.count, "0123456789"))
    if digit_count < BLOB_DIGIT_FRACTION * len(run) or digit_count == len(run):
        return 0.0
    return HEX_TOKENS_PER_CHARACTER if _HEX.issuperset(run.lower()) else BASE64_TOKENS_PER_CHARACTER
