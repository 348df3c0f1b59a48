"""Orphans: provider sessions that no session has, since theirs was purged, or refused the step that brought them.

The id of its due member is all that is left to know of one.

Lua builds the same id, so it consists of texts that Lua has: where the disposal stops (JSON; "" for the whole chain), a
tab, and the handle as `codec.encode` gives it. JSON holds no tab.
"""

from __future__ import annotations

import json
from dataclasses import replace

from sessionlib.codec import decode, encode
from sessionlib.errors import StoreCorrupt
from sessionlib.stores.contract import Handle


def orphan_id(handle: Handle, until: str) -> str:
    """The id of a *handle* as it was committed, disposed of back to but without *until* ("": all of its chain)."""
    return f"{json.dumps(until) if until else ''}\t{encode(handle)}"


def orphan_of(orphan_id: str) -> Handle:
    """The handle of an orphan; its parent says where the disposal stops, as in `handles_to_dispose`.

    Raises StoreCorrupt for what is no such id.
    """
    until, _, handle = orphan_id.partition("\t")
    try:
        return replace(decode(Handle, handle), parent=str(json.loads(until)) if until else "")
    except ValueError:
        raise StoreCorrupt("an orphan's id is damaged") from None
