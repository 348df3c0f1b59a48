"""The token estimate of spec/work-room B1, by which the published figures of its policy are counted."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sessionlib.entries import Entry
from sessionlib.media import Media
from sessionlib.tokens import Declared

_CJK = re.compile("[\u4e00-\u9fff\u3400-\u4dbf\u3000-\u303f\uff00-\uffef\u3040-\u309f\u30a0-\u30ff\uac00-\ud7af]")


def estimate(text: str) -> int:
    """Tokens of *text*: a CJK character is two thirds of one, any other a quarter."""
    cjk_count = len(_CJK.findall(text))
    return math.ceil(cjk_count / 1.5 + (len(text) - cjk_count) / 4)


class SpecCounter:
    """Counts by that estimate; a message has no framing."""

    name = "spec"
    error_ratio = 1.0

    def text(self, text: str) -> int:
        return estimate(text)

    def entry(self, entry: Entry) -> int:
        return estimate(entry.text) + self.media(entry.media)

    def media(self, media: Sequence[Media]) -> int:
        """An image is its address, or its data at four characters a token and its type, and 85 more."""
        return sum(
            (estimate(item.url) if item.url else math.ceil(len(item.data) / 4) + estimate(item.media_type)) + 85
            for item in media
        )

    def fixed(self, instructions: str, tools: Sequence[Declared], parameters: Mapping[str, Any]) -> int:
        del tools, parameters
        return estimate(instructions)
