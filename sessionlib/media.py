"""Media: an image or a file beside the text of a message or tool result, by its bytes or by reference."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from sessionlib.errors import InvalidInput

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What both vendors take as an image (OpenAI guide, images and vision; Anthropic guide, vision)."""

PDF = "application/pdf"

NAME_LIMIT_CHARACTERS = 255
URL_LIMIT_CHARACTERS = 2_048
"""Both stand in the label, which is sent in the place of what is too large: it must be small itself."""

MEDIA_LIMIT_BYTES = 20_000_000
"""All media of one message or tool result together. As base64 that is 27 MB: requests take at most 32 MB (Anthropic API
reference, request size limits), and the conversation needs room too."""

_TYPE = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+-]{0,99}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_URL = re.compile(r"https?://[!-~]+")
_NAMED_URL = re.compile(r"(https?://)(?:[^/?#]*@)?([^?#]*)")
"""A URL without its user, query and fragment, where keys and signatures stand."""


class MediaKind(StrEnum):
    IMAGE = "image"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image or a file. Raises InvalidInput for bytes and reference both or neither, or what is no base64 or type.

    `sessionlib.attachments` makes them from bytes and URLs.
    """

    kind: MediaKind
    media_type: str
    """As in `image/png` (RFC 6838, without parameters)."""
    data: str = field(default="", repr=False)
    """Base64 (RFC 4648, section 4)."""
    url: str = ""
    """An http or https URL that the provider fetches by itself."""
    name: str = ""
    """Of the file, where it has one."""
    width: int = 0
    height: int = 0
    """Of an image, in pixels; 0 where it is not known."""
    page_count: int = 0
    """Of a file that has pages; 0 where it is not known."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, MediaKind):
            raise InvalidInput("kind", self.kind, "must be one of MediaKind")
        if not _TYPE.fullmatch(self.media_type):
            raise InvalidInput("media_type", self.media_type[:40], "must be a media type such as image/png")
        if self.kind is MediaKind.IMAGE and self.media_type not in IMAGE_TYPES:
            raise InvalidInput("media_type", self.media_type, f"must be one of {', '.join(sorted(IMAGE_TYPES))}")
        if bool(self.data) == bool(self.url):
            raise InvalidInput("data", self.data[:8], "must be given, or `url`, and not both")
        if self.data and (len(self.data) % 4 or not _BASE64.fullmatch(self.data)):
            raise InvalidInput("data", self.data[:8], "must be base64 with its padding, on one line")
        if self.url and not (_URL.fullmatch(self.url) and len(self.url) <= URL_LIMIT_CHARACTERS):
            rule = f"must be an http or https URL of at most {URL_LIMIT_CHARACTERS:,} ASCII characters"
            raise InvalidInput("url", self.url[:40], rule)
        if len(self.name) > NAME_LIMIT_CHARACTERS or not self.name.isprintable():
            rule = f"must be at most {NAME_LIMIT_CHARACTERS} printable characters"
            raise InvalidInput("name", self.name[:40], rule)
        if min(self.width, self.height, self.page_count) < 0:
            raise InvalidInput("width", (self.width, self.height, self.page_count), "must not be negative")

    @property
    def byte_count(self) -> int:
        """Bytes of `data` decoded; 0 for a reference."""
        return len(self.data) * 3 // 4 - self.data[-2:].count("=")

    @property
    def label(self) -> str:
        """What it is, in the words of `sessionlib.summaries.media`: `[media: image; image/png; 12,345 bytes]`.

        A URL is named without what may be a key: labels stand in records and evidence, which others read.
        """
        what = f"{self.byte_count:,} bytes" if self.data else "".join(_NAMED_URL.findall(self.url)[0])
        named = f"; {self.name}" if self.name else ""
        return f"[media: {self.kind}; {self.media_type}; {what}{named}]"


def require_media(media: object) -> tuple[Media, ...]:
    """*media* as one message or tool result may carry them. Raises InvalidInput for what is none, or too much."""
    items = tuple(media) if isinstance(media, list | tuple) else (media,)
    for item in items:
        if not isinstance(item, Media):
            raise InvalidInput("media", type(item).__name__, "must be a list of Media (see `media_from_bytes`)")
    total_bytes = sum(item.byte_count for item in items)
    if total_bytes > MEDIA_LIMIT_BYTES:
        rule = f"must have at most {MEDIA_LIMIT_BYTES:,} bytes in all, and have {total_bytes:,}"
        raise InvalidInput("media", ", ".join(item.name or item.media_type for item in items)[:80], rule)
    return items
