"""Taking away what no entry refers to any more."""

from __future__ import annotations

from . import trees
from .failpoints import Site
from .objects import packed_in
from .records import decode
from .store.base import Script, Statement, Store, Unit


class Collect(Unit[int]):
    """Remove every object that no entry refers to; returns the bytes freed.

    Runs inside one transaction, so that no commit can begin to refer to an object that is about to go.
    """

    site = Site.COLLECT
    long = True  # and what is gone is gone, however often it is done

    def __init__(self, store: Store) -> None:
        self._store = store

    def script(self) -> Script[int]:
        [streams, objects, marked] = yield [
            Statement("all_streams"),
            Statement("all_objects"),
            Statement("all_checkpoints"),
        ]
        dropped = {(owner, name, version) for owner, name, version, *_, gone in marked if gone}
        roots: set[bytes] = set()
        for stream, *_ in streams:
            [rows] = yield [Statement("events_of", (stream, 0))]
            for _, kind, _, body, _, _ in rows:
                if body is not None:
                    roots.update(packed_in(decode(kind, body), dropped))
        used = yield from trees.reachable(self._store, roots)
        unused = [(identity, size) for identity, _, size in objects if identity not in used]
        yield [Statement("drop_object", (identity,)) for identity, _ in unused]
        return sum(size for _, size in unused)
