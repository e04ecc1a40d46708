"""Where the demo is played: a folder and a store of its own, and the hosts that its processes are on."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from ..store import open_store, without_password
from ..store.postgres_url import SCHEMA, parse
from .host import why_not

HOSTS = ("host-a", "host-b", "host-c")
DROP_SECONDS_MAX = 20


class Stage(msgspec.Struct, frozen=True):
    """One of these is made for each time that the demo is played."""

    folder: Path
    url: str = ""
    """Of a schema in a server, that nobody else uses; empty for a file in the folder."""
    hosts: tuple[str, ...] = ()
    """Where the processes are; empty when all are processes of this machine."""
    no_hosts: str = ""
    """Why they all are, though the store is on a server."""

    @property
    def store(self) -> str:
        """The store to open."""
        return self.url or f"sqlite:///{self.folder / 'coder.db'}"

    @property
    def shown(self) -> str:
        """The store to show."""
        return without_password(self.url) if self.url else self.store

    def environment(self, kill: str) -> dict[str, str]:
        """For a process of the agent. What the user's shell has set for Perdure must not reach it."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        ours = {"PERDURE_FAILPOINT": kill} if kill else {}
        if self.url:
            # The keys of a store on a server are kept in the home folder; those of the demo go away with it.
            ours |= {"PERDURE_URL": self.url, "PERDURE_KEYS": str(self.folder / "keys")}
        return {**inherited, **ours}


def stage_in(folder: Path, url: str | None) -> Stage:
    """Make what is needed. A server gets a schema with a name of its own, made now: that it cannot be is told first."""
    if url is None:
        return Stage(folder)
    reason = why_not()
    stage = Stage(folder, _with_own_schema(url), () if reason else HOSTS, reason)
    open_store(stage.url).close()
    return stage


def _with_own_schema(url: str) -> str:
    address, _, query = url.partition("?")
    pairs = dict(parse_qsl(query, keep_blank_values=True))
    pairs["schema"] = f"{pairs.get('schema', SCHEMA)}_demo_{secrets.token_hex(4)}"
    return f"{address}?{urlencode(pairs, safe='/', quote_via=quote)}"


def drop(stage: Stage) -> None:
    """Remove the schema from the server."""
    if not stage.url:
        return
    import psycopg
    from psycopg import sql

    place = parse(stage.url)
    options: dict[str, Any] = {"connect_timeout": DROP_SECONDS_MAX, "target_session_attrs": "read-write"}
    with psycopg.connect(place.target, autocommit=True, **options) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(place.schema)))
