"""The reset of a used-up window, done by the turn's own worker between its rounds."""

from __future__ import annotations

import logging
from dataclasses import replace

from sessionlib.errors import StoreUnavailable
from sessionlib.running.engine import Engine
from sessionlib.running.rotations import run_rotation
from sessionlib.stores.contract import Committed

log = logging.getLogger(__name__)


def reset_window(engine: Engine, session_id: str, committed: Committed) -> Committed:
    """Begin a fresh window, as the commit requested; what is still due afterwards.

    Asks no model and waits for nobody: if another worker is at it, the store is away, or it fails, the turn goes on in
    the window that there is, and the reset stays due.
    """
    try:
        ran = run_rotation(engine, session_id)
    except StoreUnavailable:
        log.warning("reset put off", extra={"session_id": session_id})
        return committed
    if ran.status != "adopted":
        return committed
    return replace(committed, rotation_id=ran.rotation_id, disposal=committed.disposal or ran.disposal)
