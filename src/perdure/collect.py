"""Taking away what no entry refers to any more."""

from __future__ import annotations

from . import trees
from .failpoints import Site
from .limits import UPLOAD_GRACE_SECONDS
from .objects import dropped_in, packed_in
from .records import decode
from .store.base import Script, Statement, Store, Unit


class Collect(Unit[int]):
    """Remove every object that no entry refers to; returns the bytes freed.

    Runs inside one transaction, so that no commit can begin to refer to an object that is about to go. What an upload
    has written stays while somebody goes on with it, and some time longer, for the next try.
    """

    site = Site.COLLECT
    long = True  # and what is gone is gone, however often it is done

    def __init__(self, store: Store, grace: float = UPLOAD_GRACE_SECONDS) -> None:
        self._store = store
        self._grace = grace

    def script(self) -> Script[int]:
        before = self._store.clock.wall_ms() - int(self._grace * 1000)
        # The order matters on a server, where others commit meanwhile: first the objects are locked, so that nobody
        # can begin to refer to one of them; then what uploads need is read, and then the journal, to which they go.
        *_, objects, pending, streams, checkpoints, artifacts = yield [
            Statement("drop_old_uploads", (before,)),
            Statement("drop_stray_pending"),
            Statement("all_objects"),
            Statement("all_pending"),
            Statement("all_streams"),
            Statement("all_checkpoints"),
            Statement("all_artifacts"),
        ]
        dropped = dropped_in(checkpoints, artifacts)
        roots: set[bytes] = set()
        for stream, *_ in streams:
            [rows] = yield [Statement("events_of", (stream, 0))]
            for _, kind, _, body, _, _ in rows:
                if body is not None:
                    roots.update(packed_in(decode(kind, body), dropped))
        used = yield from trees.reachable(self._store, roots)
        used.update(identity for (identity,) in pending)
        unused = [(identity, size) for identity, _, size in objects if identity not in used]
        yield [Statement("drop_object", (identity,)) for identity, _ in unused]
        return sum(size for _, size in unused)
