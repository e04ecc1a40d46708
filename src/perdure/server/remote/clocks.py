"""Leases by the server's clock: a client's clock says nothing here, and neither does its boot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.journal.leases import LEASE_MS
from perdure.platform.process import KEY, REMOTE, boot_id
from perdure.server.remote.rules import PARAMETERS
from perdure.store.base import Rows, Statement, Store

_HOLDERS = ("renew_holder", "ensure_holder")
_JUDGES = ("drop_dead_holders", "count_dead_holders", "drop_old_uploads", "live_upload_objects")
_READERS = {"read_lease": 2, "get_holder": 0, "holders_at_work": 1, "held_tasks": 5}
"""Queries that return holders, and the column of the boot id."""
_CLOCKED = frozenset({*_HOLDERS, *_JUDGES, *_READERS, "holder_time_left"})


def use_server_clock(store: Store, key_id: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with the server's time and boot in place of the client's; a boot is marked with its key."""
    if name not in _CLOCKED:
        return args
    given = dict(zip(PARAMETERS[name], args, strict=True))
    given["now"] = store.clock.boot_ms()
    if name in _JUDGES:
        given["boot"] = boot_id()
    elif name in _HOLDERS:
        given["ttl"] = min(int(given["ttl"]), LEASE_MS)
        machine = "" if given["boot"] == boot_id() else REMOTE  # another machine, not a past boot of this one
        given["boot"] = f"{KEY}{key_id} {machine}{given['boot']}"
    return tuple(given.values())


def hide_prefixes(statements: Sequence[Statement], rows: Sequence[Rows]) -> Sequence[Rows]:
    """Return rows with boot ids as their clients know them."""
    return [
        [_strip_prefix(row, _READERS[statement.name]) for row in found] if statement.name in _READERS else found
        for statement, found in zip(statements, rows, strict=True)
    ]


def _strip_prefix(row: tuple[Any, ...], column: int) -> tuple[Any, ...]:
    boot = row[column]
    if not isinstance(boot, str) or not boot.startswith(KEY):
        return row
    known = boot.removeprefix(KEY).partition(" ")[2].removeprefix(REMOTE)
    return (*row[:column], known, *row[column + 1 :])
