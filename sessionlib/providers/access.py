"""Where an API is, and the key to it: checked when they are read, and repeated in no error text."""

from __future__ import annotations

from urllib.parse import urlsplit

from sessionlib.errors import InvalidInput

UNSHOWN = "…"
"""Stands in an error text for what may hold a key."""


def require_base_url(value: str) -> str:
    """*value* without trailing slashes, if requests can be sent there. Raises InvalidInput without the value.

    A query or fragment would end up in the middle of each request's address; and there, as before the host, people put
    keys, which would then be shown wherever the address is.
    """
    try:
        url = urlsplit(value)
        is_address = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_address = False
    if not is_address or not value.isprintable() or " " in value:
        raise InvalidInput("base_url", UNSHOWN, "must be an http or https URL")
    if "@" in url.netloc or "?" in value or "#" in value:
        raise InvalidInput("base_url", UNSHOWN, "must have no user, password, query or fragment")
    return value.rstrip("/")


def require_key(field: str, source: str, key: str) -> str:
    """*key*, if a header can hold it. Raises InvalidInput that names its *source* and not the key."""
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise InvalidInput(field, source, "must give a key of one line, in visible ASCII characters")
    return key
