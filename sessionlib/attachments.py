"""Media from bytes and URLs: what they are, by content first and name second, and how large."""

from __future__ import annotations

import base64
import mimetypes
import re
import zlib
from collections.abc import Iterator
from io import BytesIO
from urllib.parse import unquote, urlsplit

import imagesize  # type: ignore[import-untyped]

from sessionlib.entries import encodable
from sessionlib.errors import InvalidInput
from sessionlib.media import IMAGE_TYPES, NAME_LIMIT_CHARACTERS, PDF, Media, MediaKind

UNKNOWN_TYPE = "application/octet-stream"

INFLATED_LIMIT_BYTES = 50_000_000
"""Of the compressed objects of a PDF: one that has more is counted by its bytes."""

INFLATED_STEP_BYTES = 1_000_000
"""So much is inflated at once, and a damaged stream counts for so much: how far it was inflated is not known."""

_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"%PDF-"), PDF),
)
"""How the formats begin, by their specifications."""

_NAMES = mimetypes.MimeTypes()  # the table of the language, not that of the machine
# What leads to nothing is passed over whole, up to the end of its dictionary: it is not tried again from its middle.
_OBJECT_STREAM = re.compile(rb"/ObjStm\b[^>]*+(>>\s*+stream\r?\n)?")
_STREAM_END = b"endstream"
_PAGE = re.compile(rb"/Type\s*+/Page\b")
_PAGE_TREE = re.compile(
    rb"/Type\s*+/Pages\b[^>/]*+(?:/(?!Count\s++\d)[^>/]*+)*+(?:/Count\s++(\d{1,6}))?"
    rb"|/Count\s++(\d{1,6})[^>/]*+(?:/(?!Type\s*+/Pages\b)[^>/]*+)*+(/Type\s*+/Pages\b)?"
)


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
    try:
        path = unquote(urlsplit(url).path)
    except ValueError as exc:
        raise InvalidInput("url", url[:40], "must name a host that can be read") from exc
    media_type = media_type or _NAMES.guess_type(path)[0] or "image/jpeg"
    kind = MediaKind.IMAGE if media_type in IMAGE_TYPES else MediaKind.FILE
    return Media(kind=kind, media_type=media_type, url=url, name=_short(path.rpartition("/")[2]))


def page_count(data: bytes) -> int:
    """Pages of a PDF as its page tree states them, compressed or not; 0 if it does not say.

    Also 0 if its compressed objects are more than INFLATED_LIMIT_BYTES. Time is linear in the length of *data*.
    """
    stated, counted, left_bytes = _stated_pages(data), _counted_pages(data), INFLATED_LIMIT_BYTES
    for stream in _object_streams(data):
        part, cost_bytes = _inflated(stream, left_bytes)
        left_bytes -= cost_bytes
        if left_bytes < 0:
            return 0
        stated, counted = max(stated, _stated_pages(part)), counted + _counted_pages(part)
    return max(stated, counted)


def _stated_pages(part: bytes) -> int:
    """The largest count that a node of a page tree states; 0 for none."""
    trees = _PAGE_TREE.finditer(part)
    return max((int(tree[1] or (tree[3] and tree[2]) or 0) for tree in trees), default=0)


def _counted_pages(part: bytes) -> int:
    return sum(1 for _ in _PAGE.finditer(part))


def _object_streams(data: bytes) -> Iterator[bytes]:
    """The compressed objects of a PDF (ISO 32000-2, 7.5.7), one after another; a cut file's last to the end."""
    start = 0
    while found := _OBJECT_STREAM.search(data, start):
        start = found.end()
        if found[1]:
            end = data.find(_STREAM_END, start)
            end = len(data) if end < 0 else end
            yield data[start:end]
            start = end


def _inflated(stream: bytes, limit_bytes: int) -> tuple[bytes, int]:
    """What a stream holds, up to the first step past *limit_bytes*, and how many bytes that counts for.

    A damaged one holds nothing.
    """
    inflater, steps, cost_bytes = zlib.decompressobj(), [], 0
    try:
        while cost_bytes <= limit_bytes and (step := inflater.decompress(stream, INFLATED_STEP_BYTES)):
            steps.append(step)
            cost_bytes += len(step)
            stream = inflater.unconsumed_tail
    except zlib.error:
        return b"", cost_bytes + INFLATED_STEP_BYTES
    return b"".join(steps), cost_bytes


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
