"""Garbage collection of large values that no journal entry refers to any more.

First it marks everything that is referenced, while agents continue to work. Then it removes the rest in batches. Each
batch is a short transaction that first marks what was appended since: an object that a commit has started to reference
in the meantime stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from perdure.journal import trees
from perdure.journal.objects import ID_BYTES, DroppedVersion, DroppedVersions, iterate_packed, reference
from perdure.platform.failpoints import Site
from perdure.platform.process import identify_this_process
from perdure.records import decode
from perdure.store.base import Row, Script, Statement, Store, UnitOfWork, read_through
from perdure.store.rows import EntryRow, first_number, upto
from perdure.values.limits import GC_BATCH, UPLOAD_GRACE_SECONDS

CollectProgress = Callable[[int, int], None]
"""Called now and then with the amount done and the total."""

IsErased = Callable[[int, int], bool]
"""Whether an entry, by stream and number, is skipped."""

PAGE_ENTRIES = 500
_WORDS = 4
_FILTER_BITS_MIN = 1 << 20
_BITS_PER_OBJECT = 32


class Collected(msgspec.Struct, frozen=True):
    """How many objects were removed, and their stored bytes."""

    objects: int = 0
    bytes: int = 0


class BloomFilter:
    """A Bloom filter of ids, four bytes each. It may report false positives, never false negatives.

    An id is already a hash, so its own words select the bits.
    """

    def __init__(self, ids: int) -> None:
        bits = _FILTER_BITS_MIN
        while bits < ids * _BITS_PER_OBJECT:
            bits *= 2
        self._mask = bits - 1
        self._bits = bytearray(bits // 8)

    def add(self, identity: bytes) -> None:
        """Add an id."""
        for place in self._places(identity):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, identity: bytes) -> bool:
        return all(self._bits[place >> 3] >> (place & 7) & 1 for place in self._places(identity))

    def _places(self, identity: bytes) -> Iterator[int]:
        for word in range(_WORDS):
            yield int.from_bytes(identity[8 * word : 8 * word + 8], "big") & self._mask


class ExactFilter:
    """An exact set of ids from a given selection; all others are ignored."""

    def __init__(self, ids: Iterable[bytes]) -> None:
        self._watched = frozenset(ids)
        self._seen: set[bytes] = set()

    def add(self, identity: bytes) -> None:
        """Add an id, if it is in the selection."""
        if identity in self._watched:
            self._seen.add(identity)

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._seen


class LiveObjects:
    """The referenced objects, and how far each stream was read to find them."""

    def __init__(
        self, store: Store, dropped: Iterable[DroppedVersion], grace: float, watched: ExactFilter | None = None
    ) -> None:
        self._store = store
        self._used = watched or BloomFilter(first_number(store.read("count_objects")))
        self._opened: set[bytes] = set()
        """Tree nodes that were opened. Exact, because what is below a node is marked only through it."""
        self._heads: dict[int, int] = {}
        self._dropped = DroppedVersions(store, dropped)
        self._pending = {
            identity for (identity,) in store.read("live_upload_objects", _find_stale_limits(store, grace))
        }
        """Objects that uploads have written and no entry refers to yet."""

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._used or identity in self._pending

    def catch_up(
        self,
        heads: Sequence[Row],
        forgotten: IsErased | None = None,
        progress: CollectProgress | None = None,
    ) -> Script[None]:
        """Mark what was appended since the last call. Entries in `forgotten` are skipped."""
        [kept] = yield [Statement("all_replay_snapshots")]
        yield from self._refer({packed for (packed,) in kept if reference(packed)})
        for number, (stream, head) in enumerate(heads):
            seq, last = self._heads.get(stream, 0), head or 0
            while seq < last:
                [page] = yield [Statement("journal_page", (stream, seq + 1, PAGE_ENTRIES))]
                entries = [EntryRow(*row) for row in upto(page, last)]
                if not entries:
                    break
                yield from self._mark([entry for entry in entries if not (forgotten and forgotten(stream, entry.seq))])
                seq = entries[-1].seq
            self._heads[stream] = max(last, self._heads.get(stream, 0))
            if progress is not None and number % 100 == 0:
                progress(number, len(heads))

    def _mark(self, entries: Iterable[EntryRow]) -> Script[None]:
        roots: set[bytes] = set()
        for entry in entries:
            if entry.body is not None:
                roots.update(iterate_packed(decode(entry.kind, entry.body), self._dropped))
        yield from self._refer(roots)

    def _refer(self, roots: set[bytes]) -> Script[None]:
        for identity in (yield from trees.reachable(self._store, roots, opened=self._opened)):
            self._used.add(identity)


def mark_live(
    store: Store,
    progress: CollectProgress | None = None,
    dropped: Iterable[DroppedVersion] = (),
    forgotten: IsErased | None = None,
    grace: float = UPLOAD_GRACE_SECONDS,
    watched: ExactFilter | None = None,
) -> LiveObjects:
    """Mark everything that is referenced now. For a dry run, some checkpoints and entries can be left out."""
    marks = LiveObjects(store, dropped, grace, watched)
    read_through(store, marks.catch_up(store.read("stream_heads"), forgotten, progress))
    return marks


def iterate_unused(store: Store, marks: LiveObjects) -> Iterator[list[Row]]:
    """Yield the unmarked objects with their sizes, in batches."""
    after = b""
    while page := store.read("objects_page", (after, GC_BATCH)):
        after = page[-1][0]
        found = [(identity, size) for identity, size in page if identity not in marks]
        if found:
            yield found


def collect(store: Store, progress: CollectProgress | None = None, *, grace: float = UPLOAD_GRACE_SECONDS) -> Collected:
    """Remove every object that no entry refers to. It can be interrupted at any time."""
    store.submit(_DropStaleUploads(store, grace))
    marks = mark_live(store, progress, grace=grace)
    objects = taken = 0
    for found in iterate_unused(store, marks):
        gone = store.submit(SweepObjects(marks, found))
        objects, taken = objects + gone.objects, taken + gone.bytes
    return Collected(objects, taken)


class _DropStaleUploads(UnitOfWork[None]):
    """Drops stale uploads whose process is gone, so that their objects can be collected."""

    site = Site.COLLECT

    def __init__(self, store: Store, grace: float) -> None:
        self._given_up = _find_stale_limits(store, grace)

    def script(self) -> Script[None]:
        yield [Statement("drop_old_uploads", self._given_up), Statement("drop_orphan_upload_objects")]


def _find_stale_limits(store: Store, grace: float) -> tuple[int, str, int]:
    """Return the limits for stale uploads: last activity before a time, and a holder that is not alive."""
    return store.clock.wall_ms() - int(grace * 1000), identify_this_process().boot, store.clock.boot_ms()


class SweepObjects(UnitOfWork[Collected]):
    """Removes objects, unless a commit has started to refer to them. Idempotent."""

    site = Site.COLLECT
    erases = long = True

    def __init__(self, marks: LiveObjects, found: Sequence[Row]) -> None:
        self._marks = marks
        self._found = found

    def script(self) -> Script[Collected]:
        unused = set((yield from select_unused(self._marks, [identity for identity, _ in self._found])))
        gone = [(identity, size) for identity, size in self._found if identity in unused]
        yield [Statement("drop_object", (identity,)) for identity, _ in gone]
        return Collected(len(gone), sum(size for _, size in gone))


def select_unused(marks: LiveObjects, ids: Sequence[bytes]) -> Script[list[bytes]]:
    """Return the objects among `ids` that nothing refers to, locked until the end of the transaction."""
    # Lock first, then read what is new. A commit that writes one of these objects again has then either ended, and is
    # visible; or holds its lock, and the object stays; or waits for this transaction and writes it anew.
    joined = b"".join(ids)
    [rows] = yield [Statement("lock_objects", (joined,))]
    # Uploads before the journal: objects move from the former to the latter.
    [pending, heads] = yield [Statement("upload_objects_among", (joined,)), Statement("stream_heads")]
    yield from marks.catch_up(heads)
    ours = {bytes(identity) for (identity,) in rows} - {bytes(identity) for (identity,) in pending}
    return [identity for identity in ids if identity in ours and identity not in marks]


assert ID_BYTES == 8 * _WORDS
