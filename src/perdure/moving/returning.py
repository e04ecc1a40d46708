"""An agent comes back to a store that it has left: what it had then is there, and only what is new is added.

What is there must be what it left with, by its hash, and its streams must be the first ones of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import records as r
from ..errors import AgentExists
from ..journal.walk import folded_in, pages
from ..store.base import Store
from .arriving import There
from .checking import Checked
from .gathering import OF_OTHERS, belongings
from .leaving import contents_of
from .lines import Stream, lines_of

if TYPE_CHECKING:
    from ..engine import Engine


def returning(engine: Engine, file: Checked) -> dict[int, There]:
    """The streams that the agent has here, by the numbers that they have in the file; raises when it is another one."""
    store = engine.store
    left = [it for it in file.arrivals if it.how == "moved" and it.store == store.identity]
    gone = store.read("departure_of", (engine.name,))
    [(_, public_key)] = store.read("get_agent", (engine.name,))
    known = f"the store has an agent {engine.name!r} already"
    if not gone or not left or not file.header.move or public_key != file.header.public_key:
        raise AgentExists(f"{known}; nothing was imported")
    its, arrived = (
        belongings(store, engine.name),
        [line for line in lines_of(file.path, file.end.sha256) if isinstance(line, Stream)],
    )
    pairs = list(zip(arrived, its.streams, strict=False))
    same = contents_of(engine).contents == left[-1].contents and len(pairs) == len(its.streams)
    if not same or any(line.name.endswith(OF_OTHERS) for line in arrived) or any(_folded_since(*it) for it in pairs):
        raise AgentExists(f"{known}, and what has arrived does not go on from it; nothing was imported")
    found = {}
    for line, own in pairs:
        ends = store.read("head_of", (own.number,))
        end, link = ends[0] if ends else (0, b"")
        found[line.number] = There(own.number, end, link, _told_in(store, own))
    return found


def _told_in(store: Store, own: Stream) -> frozenset[bytes]:
    """The salts of what the agent's own stream tells, which may be more than what it left with: where it went."""
    if own.kind != "agent":
        return frozenset()
    rows = (row for page in pages(store, own.number) for row in page)
    return frozenset(body[: r.SALT_BYTES] for _, _, _, body, _, _ in rows if body is not None)


def _folded_since(line: Stream, own: Stream) -> bool:
    return _upto(line) != _upto(own)


def _upto(stream: Stream) -> int:
    found = folded_in([(0, r.Kind.FOLDED, 0, stream.folded)]) if stream.folded is not None else None
    return found.upto if found is not None else 0
