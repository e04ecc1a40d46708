"""Old entries go into archives: which streams, how far, and the file before the removal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from . import archive
from .journal.folding import Fold, Moved, Plan, plan
from .journal.needs import Noted
from .journal.walk import all_streams

if TYPE_CHECKING:
    from .engine import Engine

Tell = Callable[[str, int, int], None]


class Stream(msgspec.Struct, frozen=True):
    """A stream that may be folded."""

    number: int
    kind: str
    name: str


def foldable(engine: Engine, horizon: int) -> list[Stream]:
    """The finished runs of an agent that are older than the horizon, and what its processes wrote in the open."""
    finished = {int(stream) for (stream,) in engine.store.read("finished_runs", (engine.name, horizon))}
    return [
        Stream(number, kind, name)
        for number, kind, name, at in all_streams(engine.store)
        if at < horizon and (number in finished or (kind == "process" and writer_of(name) == engine.name))
    ]


def writer_of(name: str) -> str:
    """The agent that a process wrote for."""
    return name.rpartition("/process ")[0]


def plans(engine: Engine, horizon: int, noted: Noted | None = None) -> Iterator[tuple[Stream, Plan]]:
    """What folding would do."""
    for stream in foldable(engine, horizon):
        found = plan(engine.store, stream.number, horizon, whole=stream.kind == "run", noted=noted)
        if found is not None:
            yield stream, found


class FoldedAway(msgspec.Struct, frozen=True):
    """What was folded: how many entries went, their bytes, and the files that have them."""

    entries: int = 0
    bytes: int = 0
    archives: tuple[str, ...] = ()


def fold(engine: Engine, horizon: int, folder: str, tell: Tell, noted: Noted | None = None) -> FoldedAway:
    """Fold what is older than the horizon. Interrupted, some streams are folded and the others as they were."""
    entries = taken = 0
    files: dict[str, None] = {}
    streams = foldable(engine, horizon)
    for number, stream in enumerate(streams):
        tell("folding", number, len(streams))
        whole = stream.kind == "run"
        while (found := plan(engine.store, stream.number, horizon, whole=whole, noted=noted)) is not None:
            try:
                path = fold_stream(engine, stream, found, folder)
            except Moved:
                break  # somebody folds it too
            if path:
                files[path] = None
            entries, taken = entries + found.gone, taken + found.bytes
    return FoldedAway(entries, taken, tuple(files))


def fold_stream(engine: Engine, stream: Stream, found: Plan, folder: str) -> str:
    """The archive first, durable; then the removal. Returns the file, if there is a new one."""
    store, old = engine.store, found.record
    path, name, digest = "", old.archive, old.digest
    if found.upto >= found.first:
        header = archive.Header(
            archive.FORMAT,
            store.identity,
            stream.number,
            stream.kind,
            stream.name,
            found.first,
            found.upto,
            found.before.hex(),
            found.head.hex(),
            old.archive,
        )
        path, digest = archive.write(store, folder, header)
        name = os.path.basename(path)
    signer = engine.signer
    assert signer is not None, "who has no key does not fold"
    store.submit(Fold(store, found, name, digest, signer))
    return path
