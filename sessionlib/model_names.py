"""Models by the beginning of their names: what a table of facts about families says of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Fact = TypeVar("Fact")


def known_of(table: Mapping[str, Fact], model: str) -> Fact | None:
    """What *table* says of *model*, None if nothing: the longest beginning counts, a vendor's prefix (`openai/…`)
    does not."""
    name = model.lower().rpartition("/")[2]
    beginnings = [beginning for beginning in table if name.startswith(beginning)]
    return table[max(beginnings, key=len)] if beginnings else None
