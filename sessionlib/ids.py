"""Session and turn ids: what may reach a key."""

from __future__ import annotations

import re

from sessionlib.errors import InvalidInput

_ID = re.compile(r"[A-Za-z0-9._:@/-]{1,128}", re.ASCII)


def require_id(field: str, value: object) -> str:
    """*value* if it may name a session, a turn or an agent. Raises InvalidInput."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InvalidInput(field, value, "must be 1 to 128 of the characters A-Z a-z 0-9 . _ : @ / -")
    return value
