"""Media from bytes and URLs: what they are, by content first and name second, and how large."""

from __future__ import annotations

import base64
import mimetypes
import re
import zlib
from io import BytesIO
from urllib.parse import unquote, urlsplit

import imagesize  # type: ignore[import-untyped]

from sessionlib.entries import encodable
from sessionlib.errors import InvalidInput
from sessionlib.media import IMAGE_TYPES, NAME_LIMIT_CHARACTERS, PDF, Media, MediaKind

UNKNOWN_TYPE = "application/octet-stream"

INFLATED_LIMIT_BYTES = 4_000_000
"""Of one compressed stream of a PDF, at most so much is looked at."""

_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"%PDF-"), PDF),
)
"""How the formats begin, by their specifications."""

_NAMES = mimetypes.MimeTypes()  # the table of the language, not that of the machine
_OBJECT_STREAM = re.compile(rb"/ObjStm\b[^>]*>>\s*stream\r?\n")
_PAGE = re.compile(rb"/Type\s*/Page\b(?!s)")
_PAGE_TREE = re.compile(rb"/Type\s*/Pages\b[^>]*?/Count\s+(\d{1,6})|/Count\s+(\d{1,6})[^>]*?/Type\s*/Pages\b")


def media_from_bytes(data: bytes, name: str = "") -> Media:
    """An image or file of *data*. *name*, where it has one, also tells its type if its content does not.

    Raises InvalidInput for no bytes.
    """
    if not data:
        raise InvalidInput("media", name, "must not be empty")
    media_type = _type_of(data, name)
    is_image = media_type in IMAGE_TYPES
    width, height = _size_of(data) if is_image else (0, 0)
    return Media(
        kind=MediaKind.IMAGE if is_image else MediaKind.FILE,
        media_type=media_type,
        data=base64.b64encode(data).decode(),
        name=_short(name),
        width=width,
        height=height,
        page_count=page_count(data) if media_type == PDF else 0,
    )


def media_from_url(url: str, media_type: str = "") -> Media:
    """A reference that the provider follows by itself. Its type is told by the URL's path unless it is given.

    A path that tells nothing is taken for an image's, since that is what is linked most. Raises InvalidInput.
    """
    path = unquote(urlsplit(url).path)
    media_type = media_type or _NAMES.guess_type(path)[0] or "image/jpeg"
    kind = MediaKind.IMAGE if media_type in IMAGE_TYPES else MediaKind.FILE
    return Media(kind=kind, media_type=media_type, url=url, name=_short(path.rpartition("/")[2]))


def page_count(data: bytes) -> int:
    """Pages of a PDF as its page tree states them, compressed or not; 0 if it does not say."""
    parts = [data, *(_inflated(data[found.end() :]) for found in _OBJECT_STREAM.finditer(data))]
    stated = [int(tree[1] or tree[2]) for part in parts for tree in _PAGE_TREE.finditer(part)]
    return max([*stated, sum(len(_PAGE.findall(part)) for part in parts)])


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(stream, INFLATED_LIMIT_BYTES)
    except zlib.error:
        return b""


def _type_of(data: bytes, name: str) -> str:
    for signature, media_type in _SIGNATURES:
        if signature.match(data):
            return media_type
    named = _NAMES.guess_type(name)[0] or UNKNOWN_TYPE
    if named in IMAGE_TYPES or named == PDF:
        return UNKNOWN_TYPE  # its content is something else
    if named == UNKNOWN_TYPE and _is_text(data):
        return "text/plain"
    return named


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _size_of(data: bytes) -> tuple[int, int]:
    """Width and height of an image, in pixels; zeros if it is damaged."""
    try:
        width, height = imagesize.get(BytesIO(data))
    except (ValueError, OSError, IndexError):
        return 0, 0
    return max(0, int(width)), max(0, int(height))


def _short(name: str) -> str:
    """*name* as media have one: printable, its end kept."""
    return "".join(character for character in encodable(name) if character.isprintable())[-NAME_LIMIT_CHARACTERS:]
