"""Compacts old journal entries: selects streams and ranges, writes the archive, then removes the entries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from perdure.journal import archive
from perdure.journal.compaction import Compact, StreamCompactionPlan, StreamMoved, plan
from perdure.journal.needed_entries import RemovableEvents
from perdure.journal.stream_reader import iterate_streams
from perdure.work.threads.conversations import ThreadIndex, is_shown_turn

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

CompactionProgress = Callable[[str, int, int], None]


class CompactableStream(msgspec.Struct, frozen=True):
    """A stream that may be compacted."""

    number: int
    kind: str
    name: str


def compactable(engine: Engine, horizon: int) -> list[CompactableStream]:
    """Return the agent's finished runs older than the horizon, and the streams of its processes.

    The turns that a thread shows stay whole: a conversation is shortened by `threads.retain`.
    """
    finished = {int(stream) for (stream,) in engine.store.read("finished_runs", (engine.name, horizon))}
    known: dict[str, ThreadIndex] = {}
    return [
        CompactableStream(number, kind, name)
        for number, kind, name, at in iterate_streams(engine.store)
        if at < horizon
        and (
            (kind == "process" and writer_of(name) == engine.name)
            or (number in finished and not is_shown_turn(engine, name.removeprefix(f"{engine.name}/"), known))
        )
    ]


def writer_of(name: str) -> str:
    """Return the agent that a process wrote for."""
    return name.rpartition("/process ")[0]


def plans(
    engine: Engine, horizon: int, noted: RemovableEvents | None = None
) -> Iterator[tuple[CompactableStream, StreamCompactionPlan]]:
    """Yield what compaction would do."""
    for stream in compactable(engine, horizon):
        found = plan(engine.store, stream.number, horizon, whole=stream.kind == "run", noted=noted)
        if found is not None:
            yield stream, found


class CompactedEntries(msgspec.Struct, frozen=True):
    """The result of compaction: number of entries, their bytes, and the archives that hold them."""

    entries: int = 0
    bytes: int = 0
    archives: tuple[str, ...] = ()


def compact(
    engine: Engine, horizon: int, folder: str, tell: CompactionProgress, noted: RemovableEvents | None = None
) -> CompactedEntries:
    """Compact what is older than the horizon. If interrupted, each stream is either compacted or unchanged."""
    entries = taken = 0
    files: dict[str, None] = {}
    streams = compactable(engine, horizon)
    for number, stream in enumerate(streams):
        tell("compacting", number, len(streams))
        whole = stream.kind == "run"
        while (found := plan(engine.store, stream.number, horizon, whole=whole, noted=noted)) is not None:
            try:
                path = compact_stream(engine, stream, found, folder)
            except StreamMoved:
                break  # another process compacts it too
            if path:
                files[path] = None
            entries, taken = entries + found.gone, taken + found.bytes
    return CompactedEntries(entries, taken, tuple(files))


def compact_stream(engine: Engine, stream: CompactableStream, found: StreamCompactionPlan, folder: str) -> str:
    """Write the archive durably, then remove the entries. Returns the new archive, if any."""
    store, old = engine.store, found.record
    path, name, digest = "", old.archive, old.digest
    if found.upto >= found.first:
        header = archive.ArchiveHeader(
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
    assert signer is not None, "only the owner of the key compacts"
    store.submit(Compact(store, found, name, digest, signer))
    return path
