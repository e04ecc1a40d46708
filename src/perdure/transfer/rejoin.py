"""Imports an agent into a store that it has left: only new entries are added.

The existing contents must match what it left with, by hash, and its streams must be the first ones of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import records as r
from perdure.errors import AgentExists
from perdure.journal.stream_reader import decoded_compaction, pages
from perdure.store.base import Store
from perdure.transfer.check import VerifiedExport
from perdure.transfer.collect import OF_OTHERS, belongings
from perdure.transfer.export import contents_of
from perdure.transfer.file_format import ExportStream, lines_of
from perdure.transfer.import_writes import ReturningStream

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


def find_returning_streams(engine: Engine, file: VerifiedExport) -> dict[int, ReturningStream]:
    """Return the agent's existing streams by their numbers in the file. Raises if it is another agent."""
    store = engine.store
    left = [arrival for arrival in file.arrivals if arrival.how == "moved" and arrival.store == store.identity]
    gone = store.read("departure_of", (engine.name,))
    [(_, public_key)] = store.read("get_agent", (engine.name,))
    known = f"the store has an agent {engine.name!r} already"
    if not gone or not left or not file.header.move or public_key != file.header.public_key:
        raise AgentExists(f"{known}; nothing was imported")
    its, arrived = (
        belongings(store, engine.name),
        [line for line in lines_of(file.path, file.end.sha256) if isinstance(line, ExportStream)],
    )
    pairs = list(zip(arrived, its.streams, strict=False))
    same = contents_of(engine).contents == left[-1].contents and len(pairs) == len(its.streams)
    if (
        not same
        or any(line.name.endswith(OF_OTHERS) for line in arrived)
        or any(_is_compacted_since(*pair) for pair in pairs)
    ):
        raise AgentExists(f"{known}, and the file does not continue it; nothing was imported")
    found = {}
    for line, own in pairs:
        ends = store.read("head_of", (own.number,))
        end, link = ends[0] if ends else (0, b"")
        found[line.number] = ReturningStream(own.number, end, link, _entry_salts(store, own))
    return found


def _entry_salts(store: Store, own: ExportStream) -> frozenset[bytes]:
    """Return the salts of the agent's own stream, which may include where it went after leaving."""
    if own.kind != "agent":
        return frozenset()
    rows = (row for page in pages(store, own.number) for row in page)
    return frozenset(body[: r.SALT_BYTES] for _, _, _, body, _, _ in rows if body is not None)


def _is_compacted_since(line: ExportStream, own: ExportStream) -> bool:
    return _find_last_seq(line) != _find_last_seq(own)


def _find_last_seq(stream: ExportStream) -> int:
    found = decoded_compaction(stream.compaction)
    return found.upto if found is not None else 0
