"""Where contenders meet: each gets a store of its own on the same disk, and a process in its own environment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from ..lab import Lab
from ..server import PORT, Server
from .companion import Companion
from .proxy import Proxy
from .standings import POSTGRES, SQLITE, Entrant


class Place(msgspec.Struct, frozen=True):
    """A store that nobody has used: a file in a folder, or a database of the server."""

    url: str
    folder: Path | None
    database: str


class Arena:
    """Stores and processes for a comparison. Without `peers` only what is in our own environment takes part."""

    def __init__(self, lab: Lab, server: Server | None, peers: Path | None) -> None:
        self._lab, self._server, self._peers = lab, server, peers

    def entrants(self) -> list[Entrant]:
        """Who can take part on this machine."""
        kinds = [("floor", "step"), ("perdure", "step"), ("perdure", "effect")]
        kinds += [("dbos", "step"), ("langgraph", "step")] if self._peers is not None else []
        stores = [SQLITE] + ([POSTGRES] if self._server is not None else [])
        return [Entrant(system, store, kind) for store in stores for system, kind in kinds]

    def place(self, entrant: Entrant) -> Place:
        """A new store."""
        if entrant.store == POSTGRES:
            assert self._server is not None
            database = self._server.new_database()
            return Place(self._server.url(database), None, database)
        folder = self.folder(entrant)
        return Place(f"sqlite:///{folder / 'store.db'}", folder, "")

    def folder(self, entrant: Entrant) -> Path:
        """A new folder for what it needs on disk."""
        return self._lab.new_folder(entrant.system)

    def python(self, entrant: Entrant) -> str:
        """The interpreter of its environment."""
        return sys.executable if entrant.ours else str(self._peers)

    def companion(self, entrant: Entrant, place: Place) -> Companion:
        """A process in which the run of this store is open, or resumed."""
        return self._companion(entrant, place.url, count=False)

    def start_counted(self, entrant: Entrant, place: Place, proxy: Proxy | None) -> Companion:
        """The same, but watched: never for times."""
        if proxy is not None:
            assert self._server is not None
            return self._companion(entrant, self._server.url(place.database, proxy.folder), count=True)
        return self._companion(entrant, place.url, count=True)

    def _companion(self, entrant: Entrant, url: str, *, count: bool) -> Companion:
        spec = {"system": entrant.system, "url": url, "kind": entrant.kind, "count": count}
        preload = count and self._lab.probe.name == "preload"
        environment = self._lab.probe.environment(self._lab.folder / "trace.txt", 0) if preload else {}
        return Companion(self.python(entrant), spec, environment)

    @contextmanager
    def proxy(self, entrant: Entrant) -> Iterator[Proxy | None]:
        """A counting proxy where there is something to count."""
        if entrant.store != POSTGRES:
            yield None
            return
        assert self._server is not None
        with closing(Proxy(self._server.sockets, PORT)) as proxy:
            yield proxy

    def server_cpu_ns(self, entrant: Entrant) -> int | None:
        """Processor time of the server, so far."""
        return self._server.cpu_ns() if entrant.store == POSTGRES and self._server is not None else None

    def server_syncs(self, entrant: Entrant) -> int | None:
        """Of the server, so far."""
        return self._server.syncs() if entrant.store == POSTGRES and self._server is not None else None

    def size(self, place: Place) -> int:
        """Bytes on disk."""
        if place.folder is None:
            assert self._server is not None
            return self._server.bytes_of(place.database)
        return sum(file.stat().st_size for file in place.folder.rglob("*") if file.is_file())
