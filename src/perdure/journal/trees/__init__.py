"""Versioned values, stored as trees that share their parts.

    tree = trees.pack(store, value, "state")             # again after each change
    trees.unpack(store, tree.packed)                     # the value as it was
    trees.diff(store, tree.packed, newer.packed)         # the changes, path by path

`codec` writes a value, and its bytes are split along their structure: lists, dicts, long texts and bytes. Each part is
an object, addressed by its content and stored once (`objects.py`). So the next version adds only what has changed, and
the few nodes above it.
"""

from __future__ import annotations

from perdure.journal.trees.diff import Change, diff
from perdure.journal.trees.grown_list import TreeMemo, ids_of, pack_again
from perdure.journal.trees.read import content, reachable, references, unpack
from perdure.journal.trees.split import TREE, ObjectTree, pack

__all__ = [
    "TREE",
    "Change",
    "TreeMemo",
    "ObjectTree",
    "content",
    "diff",
    "ids_of",
    "pack",
    "pack_again",
    "reachable",
    "references",
    "unpack",
]
