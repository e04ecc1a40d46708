"""The store that an agent has left is told where it arrives, if it can be reached: then it arrives nowhere else.

That is written down there before anything is imported, in the agent's own stream. Who comes later with the same file,
or with another one of the same move, is refused; who was killed in between does the same again.
"""

from __future__ import annotations

import os
from contextlib import closing

from .. import records as r
from ..answers import whoever
from ..engine import Engine
from ..errors import AgentExists, StoreUnavailable
from ..journal.departures import departure
from ..store import file_of
from ..store.base import Rows, Script, Statement
from .checking import Checked
from .leaving import Leave

_PAGE = 100


def claim(engine: Engine, file: Checked, url: str) -> None:
    """Write down, in the store that the agent in a file has left, that it goes on in that of `engine`."""
    if not file.header.move:
        raise ValueError("origin= is for an agent that has moved: a copy takes nobody's place")
    with closing(Engine(file.agent, store=url)) as origin:
        path = file_of(origin.url)
        if path is not None and not os.path.exists(path):
            raise StoreUnavailable(f"there is no store at {path}", hint="origin= is the store that the agent has left")
        if origin.store.identity != file.header.store:
            raise StoreUnavailable(f"{origin.shown_url} is not the store that the agent in {file.path} has left")
        origin.store.submit(Claim(origin, file, engine))


class Claim(Leave):
    """It stays away, and is said to arrive in one store; for the same one once more, nothing is changed."""

    def __init__(self, origin: Engine, file: Checked, there: Engine) -> None:
        arrived = r.AgentLeft(
            "moved", os.path.abspath(file.path), whoever(), "", file.end.sha256, there.store.identity, there.shown_url
        )
        super().__init__(origin, arrived)
        self._arrived = arrived
        self._head = file.head

    def script(self) -> Script[bool]:
        name = self._engine.name
        [found, left] = yield [Statement("get_agent", (name,)), departure(name)]
        [rows] = yield [Statement("events_page", (found[0][0] if found else 0, self._head[0], _PAGE))]
        if not left or not self._goes_on_from(rows):
            raise AgentExists(
                f"agent {name!r} has gone on in {self._engine.shown_url} since then; nothing was imported",
                hint="the move was taken back: export it again",
            )
        was = r.decode(left[0][0], left[0][2])
        if isinstance(was, r.AgentLeft) and (was.file, was.store) == (self._arrived.file, self._arrived.store):
            return False
        return (yield from super().script())  # which refuses, if it is said to arrive elsewhere

    def _goes_on_from(self, rows: Rows) -> bool:
        """Since the file was written, the agent has only been said to be away."""
        heads = [(seq, link) for seq, _, _, _, link, _ in rows[:1]]
        return heads == [self._head] and all(kind == r.Kind.AGENT_LEFT for _, kind, *_ in rows)
