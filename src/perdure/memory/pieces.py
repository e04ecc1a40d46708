"""What makes a memory found: its index, which is written by the commit of the memory.

First version: there is no index, and recall reads what it looks among.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from .. import records as r
from ..store.base import Statement

if TYPE_CHECKING:
    from ..engine import Engine


class Pieces(msgspec.Struct, frozen=True):
    """A text cut for the index, before the commit: models may take their time."""


def cut(engine: Engine, text: str) -> Pieces:
    """Prepare a text."""
    return Pieces()


def indexed(kept: r.MemoryKept, pieces: Pieces) -> list[Statement]:
    """What writes it, once its place is decided."""
    return []


def unindexed(owner: int, ids: Iterable[str]) -> list[Statement]:
    """What erases it."""
    return []
