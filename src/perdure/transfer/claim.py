"""Claims a move in the store that the agent has left, if it can be reached, so that it arrives only once.

The destination is recorded there, in the agent's own stream, before anything is imported. A later import of the same
move elsewhere is refused; an interrupted import can be repeated.
"""

from __future__ import annotations

import os
from contextlib import closing

from perdure import records as r
from perdure.errors import AgentExists, StoreUnavailable, WrongValue
from perdure.journal.departures import departure
from perdure.kernel.engine import Engine
from perdure.run.answers import find_current_user
from perdure.store import file_of
from perdure.store.base import Rows, Script, Statement
from perdure.store.rows import first_number
from perdure.transfer.check import VerifiedExport
from perdure.transfer.export import LeaveStore

_PAGE = 100


def claim(engine: Engine, file: VerifiedExport, url: str) -> None:
    """Record in the store that the agent has left that it continues in the store of `engine`."""
    if not file.header.move:
        raise WrongValue("origin= is for an agent that has moved: a copy does not replace its original")
    with closing(Engine(file.agent, store=url)) as origin:
        path = file_of(origin.url)
        if path is not None and not os.path.exists(path):
            raise StoreUnavailable(f"there is no store at {path}", hint="origin= is the store that the agent has left")
        if origin.store.identity != file.header.store:
            raise StoreUnavailable(f"{origin.shown_url} is not the store that the agent in {file.path} has left")
        origin.store.submit(ClaimArrival(origin, file, engine))


class ClaimArrival(LeaveStore):
    """Records the destination of an agent that has left. Repeated for the same destination, it changes nothing."""

    def __init__(self, origin: Engine, file: VerifiedExport, there: Engine) -> None:
        arrived = r.AgentLeft(
            "moved",
            os.path.abspath(file.path),
            find_current_user(),
            "",
            file.end.sha256,
            there.store.identity,
            there.shown_url,
        )
        super().__init__(origin, arrived)
        self._arrived = arrived
        self._head = file.head

    def script(self) -> Script[bool]:
        name = self._engine.name
        [found, left] = yield [Statement("get_agent", (name,)), departure(name)]
        [rows] = yield [Statement("journal_page", (first_number(found), self._head[0], _PAGE))]
        if not left or not self._is_unchanged_since(rows):
            raise AgentExists(
                f"agent {name!r} has continued in {self._engine.shown_url} since then; nothing was imported",
                hint="the move was cancelled: export it again",
            )
        [(kind, _, body)] = left
        was = r.decode(kind, body)
        if isinstance(was, r.AgentLeft) and (was.file, was.store) == (self._arrived.file, self._arrived.store):
            return False
        return (yield from super().script())  # refuses a second destination

    def _is_unchanged_since(self, rows: Rows) -> bool:
        """Return whether the agent has done nothing but leave since the file was written."""
        heads = [(seq, link) for seq, _, _, _, link, _ in rows[:1]]
        return heads == [self._head] and all(kind == r.EntryKind.AGENT_LEFT for _, kind, *_ in rows)
