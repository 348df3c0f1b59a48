"""Run a lane's next work against a store: begin, compute, adopt. One flow for workers, `Session` and tests."""

from sessionlib.running.engine import Announce, Engine, Held, Hold, Observe, Ran, new_token, unannounced, unobserved
from sessionlib.running.rotations import run_disposals, run_orphan, run_rotation
from sessionlib.running.streams import Streams
from sessionlib.running.summaries import publish_digests, run_digest, run_handoff
from sessionlib.running.turns import TurnRun, run_turn

__all__ = [
    "Announce",
    "Engine",
    "Held",
    "Hold",
    "Observe",
    "Ran",
    "Streams",
    "TurnRun",
    "new_token",
    "publish_digests",
    "run_digest",
    "run_disposals",
    "run_handoff",
    "run_orphan",
    "run_rotation",
    "run_turn",
    "unannounced",
    "unobserved",
]
