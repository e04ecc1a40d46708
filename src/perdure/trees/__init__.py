"""Values that come in versions: stored as trees whose parts are shared.

    tree = trees.pack(store, value, "state")             # and again, when it has changed
    trees.unpack(store, tree.packed)                     # the value as it was
    trees.diff(store, tree.packed, newer.packed)         # what changed, path by path

A value is written by `codec`, and its bytes are split by what they hold: lists, dicts, long texts and bytes, whatever
is around them. Each part is an object, addressed by its content and kept once (`objects.py`). So the next version
adds what has changed, and the few nodes above it.
"""

from __future__ import annotations

from .diff import Change, diff
from .growing import Memo, ids_of, pack_again
from .read import content, reachable, references, unpack
from .split import TREE, Tree, pack

__all__ = [
    "TREE",
    "Change",
    "Memo",
    "Tree",
    "content",
    "diff",
    "ids_of",
    "pack",
    "pack_again",
    "reachable",
    "references",
    "unpack",
]
