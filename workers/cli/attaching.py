"""`--attach`: images and files that go with a message, from the disk or by their URL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sessionlib.errors import InvalidInput

if TYPE_CHECKING:
    from sessionlib.media import Media


def read_attachments(places: Sequence[str]) -> tuple[Media, ...]:
    """What *places* name, each a file or a URL. Raises InvalidInput: not there, empty, too large together."""
    from sessionlib.media import require_media

    return require_media([_attachment(place) for place in places])


def _attachment(place: str) -> Media:
    from sessionlib.attachments import media_from_bytes, media_from_url

    if place.startswith(("https://", "http://")):
        return media_from_url(place)
    return media_from_bytes(_content(Path(place)), Path(place).name)


def _content(path: Path) -> bytes:
    """A file's bytes, read no further than where they are too many."""
    from sessionlib.media import MEDIA_LIMIT_BYTES

    try:
        with path.open("rb") as file:
            content = file.read(MEDIA_LIMIT_BYTES + 1)
    except OSError as exc:
        raise InvalidInput("--attach", str(path), f"cannot be read ({exc.strerror})") from None
    if not content:
        raise InvalidInput("--attach", str(path), "must not be empty")
    if len(content) > MEDIA_LIMIT_BYTES:
        raise InvalidInput("--attach", str(path), f"must have at most {MEDIA_LIMIT_BYTES:,} bytes")
    return content
