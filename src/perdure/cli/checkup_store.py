"""What `perdure doctor` looks at in an open store, and in others that programs may take for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from .. import keys
from ..engine import home_of
from ..errors import PerdureError, StoreUnavailable
from ..journal.departures import in_words
from ..leases import LEASE_MS
from ..process import Holder, proven_dead, this_process
from ..records import Status
from ..runs import RunSummary, list_runs
from ..store import DATABASE_NAME, FOLDER_NAME, file_of, is_postgres, locate, open_store, versions_of, without_password
from ..store.sqlite_mark import lost_in_words
from .checkup import Checked, Level
from .output import ago, counted
from .runs import Row, row_of

if TYPE_CHECKING:
    from ..store.base import Store

LISTED_MAX = 10
"""Runs of one kind; of the others only how many they are."""
LOOKED_AT_MAX = 500
"""Unfinished runs, the newest ones."""
SILENT_MS = 3_600_000
"""A run at work that has written nothing for that long hangs, or does something long."""
CLOCKS_APART_MS = 5_000
"""More than that between two clocks is told."""


def home(store: Store, path: str, options: str) -> Iterator[Checked]:
    """Whether this is the file that was used last time."""
    rows = store.read("last_home")
    if rows and rows[0] != home_of(path):
        text = "the store was last used on another host or as another file"
        fix = f"perdure adopt{options}  # when the other copy is not in use any more"
        yield Checked(Level.NOTE if store.read_only else Level.PROBLEM, "home", text, "" if store.read_only else fix)
    else:
        yield Checked(Level.OK, "home", "this is the file that was last used")


def losses(store: Store, options: str) -> Iterator[Checked]:
    """Whether everything is there that was acknowledged."""
    for one in store.losses():
        fix = f"perdure adopt{options}  # to go on without it; or put the newer database or its log back"
        yield Checked(Level.PROBLEM, "lost", lost_in_words(one), fix)


def holders(store: Store, options: str) -> Iterator[Checked]:
    """Processes that have runs open, and dead ones that left some behind."""
    alive, now = 0, store.clock.boot_ms()
    for _, boot, namespace, pid, started, host, _, left, leases in store.read("holders_at_work", (now,)):
        holder = Holder(boot, namespace, pid, started, host)
        if proven_dead(holder, store.one_host):
            text = f"{holder} is gone and left {counted(leases, 'run')} open: whoever resumes them has them at once"
            yield Checked(Level.NOTE, "holders", text, f"perdure runs --status crashed{options}")
        elif left <= 0:
            text = f"{holder} has not renewed its lease for {-left // 1000 + 1} s: it is stopped, hangs, or is gone"
            yield Checked(Level.NOTE, "holders", text, _look_at(holder))
        elif left > 2 * LEASE_MS:
            text = f"the lease of {holder} lasts {left // 1000} s more, which no renewal gives: a clock was set back"
            yield Checked(Level.NOTE, "holders", text, _look_at(holder))
        else:
            alive += 1
    dead = store.read("count_dead_holders", (this_process().boot, now))[0][0]
    if dead:
        text = f"{counted(dead, 'dead process', 'dead processes')} without runs, until the next heartbeat of any other"
        yield Checked(Level.OK, "holders", text)
    yield Checked(Level.OK, "holders", f"{counted(alive, 'process', 'processes')} at work")


def _look_at(holder: Holder) -> str:
    command = f"ps -o pid,stat,etime,args -p {holder.pid}"
    return command if holder.host == this_process().host else f"ssh {shlex.quote(holder.host)} {command}"


def agents(store: Store) -> Iterator[Checked]:
    """Those that have left: nobody goes on with their runs here."""
    for name, *_, gone in store.read("all_agents"):
        if gone:
            yield Checked(Level.OK, "agents", in_words(store, name))


def forgotten(store: Store, options: str) -> Iterator[Checked]:
    """Whether bytes of what was erased may still be in the file, because somebody was killed or kept from it."""
    from ..store.sqlite_scrub import OWED, left_behind

    if left := left_behind(store.read("facts_like", (OWED,)), asked=True):
        text = (
            f"{counted(len(left), 'time')} something was forgotten, and may still stand in the free space of the file"
        )
        yield Checked(
            Level.NOTE, "forgotten", text, f"perdure gc --vacuum --yes{options}  # nobody else can write then"
        )


# -- runs -------------------------------------------------------------------------------------------------------------


def runs(store: Store, options: str) -> Iterator[Checked]:
    """Runs that nobody goes on with; `options` lead a printed command to this store."""
    found, left_by = list_runs(store), {name for name, *_, gone in store.read("all_agents") if gone}
    going_on = [run for run in found if not run.status.over and run.agent not in left_by]
    left = going_on[:LOOKED_AT_MAX]
    now, rows = store.clock.wall_ms(), [row_of(store, run) for run in left]
    kinds = {
        f"--status {Status.CRASHED}": [_crashed(row, now, options) for row in rows if row.run.status == Status.CRASHED],
        f"--status {Status.FAILED}": [
            _in_doubt(row, now, options) for row in rows if row.in_doubt and row.run.status == Status.FAILED
        ],
        f"--status {Status.WAITING}": [_waits(row, now, options) for row in rows if row.run.status == Status.WAITING],
        f"--status {Status.PAUSED}": [_paused(row, options) for row in rows if row.run.status == Status.PAUSED],
        f"--status {Status.CANCELLING}": [
            _half_undone(row, options) for row in rows if row.run.status == Status.CANCELLING and not row.run.holder
        ],
        f"--status {Status.RUNNING}": [
            _silent(row, now, options)
            for row in rows
            if row.run.status == Status.RUNNING and now - row.last_entry_at > SILENT_MS
        ],
    }
    for which, checks in kinds.items():
        yield from checks[:LISTED_MAX]
        if len(checks) > LISTED_MAX:
            text = f"{len(checks) - LISTED_MAX} more like these"
            yield Checked(checks[0].level, "runs", text, f"perdure runs {which} --limit 0{options}")
    over = sum(run.status.over for run in found)
    yield Checked(Level.OK, "runs", f"{counted(len(found), 'run')}, {over} of them over")


def _show(run: RunSummary, options: str) -> str:
    return f"perdure show {shlex.quote(run.id)} --agent {shlex.quote(run.agent)}{options}"


def _crashed(row: Row, now: int, options: str) -> Checked:
    text = f"{row.run.id} of {row.run.agent} crashed {ago(row.last_entry_at, now)}, and nobody has resumed it"
    doubt = f"; {', '.join(row.in_doubt)} may have happened" if row.in_doubt else ""
    fix = f"{_show(row.run, options)}  # then start its program again: it goes on where it was"
    return Checked(Level.PROBLEM, "runs", text + doubt, fix)


def _in_doubt(row: Row, now: int, options: str) -> Checked:
    since = ago(row.last_entry_at, now).removesuffix(" ago")
    text = f"{row.run.id} of {row.run.agent} is in doubt since {since}: did {', '.join(row.in_doubt)} happen?"
    return Checked(Level.NOTE, "runs", text, _show(row.run, options))


def _waits(row: Row, now: int, options: str) -> Checked:
    since = ago(row.run.changed_at, now).removesuffix(" ago")
    what = "; ".join(row.waits_for) or row.note or "an answer"
    text = f"{row.run.id} of {row.run.agent} waits for an answer since {since}: {what}"
    if row.note:
        text = f"{row.run.id} of {row.run.agent} is {row.note}"
    return Checked(Level.NOTE, "runs", text, _show(row.run, options))


def _paused(row: Row, options: str) -> Checked:
    run = row.run
    fix = f"perdure resume {shlex.quote(run.id)} --agent {shlex.quote(run.agent)}{options}  # then start its program"
    return Checked(Level.NOTE, "runs", f"{run.id} of {run.agent} is paused {run.error}", fix)


def _half_undone(row: Row, options: str) -> Checked:
    run = row.run
    text = f"{run.id} of {run.agent} was cancelled, and its process is gone before it had cleaned up"
    again = f"perdure cancel {shlex.quote(run.id)} --agent {shlex.quote(run.agent)}{options}  # ends it as it is"
    return Checked(Level.PROBLEM, "runs", text, f"start its program again: it goes on cleaning up; or {again}")


def _silent(row: Row, now: int, options: str) -> Checked:
    wrote = f"last wrote something {ago(row.last_entry_at, now)}, and {row.run.holder} lives"
    text = f"{row.run.id} of {row.run.agent} {wrote}: it does something long, or hangs"
    return Checked(Level.NOTE, "runs", text, _show(row.run, options))


# -- clocks -----------------------------------------------------------------------------------------------------------


def clocks(store: Store) -> Iterator[Checked]:
    """Whether this host's clock agrees with what was written, and with the server's: sleeps and timeouts go by it."""
    now, fix = store.clock.wall_ms(), "timedatectl status; sudo timedatectl set-ntp true"
    newest = max((run.changed_at for run in list_runs(store)[:1]), default=0)
    if newest - now > CLOCKS_APART_MS:
        behind = f"{(newest - now) // 1000} s behind the newest entry"
        text = f"this host's clock is {behind}: it was set back, or that of another host is ahead"
        yield Checked(Level.PROBLEM, "clock", text, fix)
        return
    [(theirs,)] = store.read("clock_now")
    apart = theirs - store.clock.wall_ms()
    if abs(apart) > CLOCKS_APART_MS:
        text = f"this host's clock is {abs(apart) // 1000} s {'behind' if apart > 0 else 'ahead of'} the server's"
        yield Checked(Level.NOTE, "clock", text, fix)
    else:
        yield Checked(Level.OK, "clock", "agrees with the newest entry" + ("" if store.one_host else " and the server"))


# -- other stores -----------------------------------------------------------------------------------------------------


def namesakes(store: Store, chosen: bool) -> Iterator[Checked]:
    """Agents of the same name in stores that programs may take for this one; `chosen`: it was named with --store."""
    if chosen and _exists(usual := locate(None)) and not _same(usual, store.url):
        text = f"programs that are started here use another store: {_plain(usual)}"
        yield Checked(Level.NOTE, "store", text, f"export PERDURE_URL={shlex.quote(_plain(store.url))}")
    for url in _others(store.url):
        yield from _compared(store, _at_home(store), url)


def _at_home(store: Store) -> dict[str, bytes]:
    """The agents that have not left, and their keys."""
    return {name: key for name, _, key, _, gone in store.read("all_agents") if not gone}


def _others(url: str) -> list[str]:
    """Where a program looks for its store: the environment, the folders above, the home folder."""
    here = Path.cwd()
    folders = [folder / FOLDER_NAME for folder in (here, *here.parents, Path.home())]
    files = [f"sqlite:///{folder / DATABASE_NAME}" for folder in folders]
    given = [locate(os.environ["PERDURE_URL"])] if os.environ.get("PERDURE_URL") else []
    return [other for other in dict.fromkeys([*given, *files]) if _exists(other) and not _same(other, url)]


def _compared(store: Store, ours: dict[str, bytes], url: str) -> Iterator[Checked]:
    try:
        if versions_of(url).steps:
            return  # opening it would bring it forward: that is for its own programs to do
        with closing(open_store(url, create=False, wary=True)) as other:
            copy = other.identity == store.identity
            theirs = _at_home(other)
    except PerdureError as error:
        yield Checked(
            Level.NOTE,
            "other stores",
            f"{_plain(url)} cannot be read: {error.message}",
            f"perdure doctor --store {shlex.quote(_plain(url))}",
        )
        return
    twins = {name for name, key in ours.items() if key in theirs.values() and not copy}
    for name in sorted(twins):
        text = f"agent {name} is at home here and in {_plain(url)}: one moved file was imported twice"
        fix = "perdure verify  # in both: who arrived when, and under which number; then agent.retire() one of them"
        yield Checked(Level.PROBLEM, "other stores", text, fix)
    if shared := sorted(ours.keys() & theirs.keys() - twins):
        what = "a copy of this store" if copy else "another store"
        text = f"{_listed(shared)} also in {what}, {_plain(url)}: a program uses the one that it finds first"
        yield Checked(Level.NOTE, "other stores", text, f"perdure runs --store {shlex.quote(_plain(url))}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"agent {shown} is" if len(names) == 1 else f"agents {shown} are"


def _exists(url: str) -> bool:
    path = file_of(url)
    return path is None or (os.path.exists(path) and os.path.getsize(path) > 0)


def _same(a: str, b: str) -> bool:
    mine, theirs = file_of(a), file_of(b)
    if mine is None or theirs is None:
        return a == b
    return mine == theirs or (os.path.exists(theirs) and os.path.samefile(mine, theirs))


def _plain(url: str) -> str:
    return without_password(url) if is_postgres(url) else file_of(url) or url


# -- servers and keys -------------------------------------------------------------------------------------------------


def server(store: Store) -> Iterator[Checked]:
    """Whether a server keeps what it has acknowledged, and what we may do there."""
    from ..store.postgres import PostgresStore

    if not isinstance(store, PostgresStore):
        return
    it = store.server()
    yield Checked(Level.OK, "server", f"PostgreSQL {it.version}{', through a pooler' if it.pooled else ''}")
    for name, on in (("fsync", it.fsync), ("full_page_writes", it.full_page_writes)):
        if not on:
            text = f"{name} is off: what was acknowledged may be lost or damaged when the power fails"
            yield Checked(Level.PROBLEM, "durability", text, f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();")
    waits = f", and waits for {it.standbys}" if it.standbys else ""
    yield Checked(Level.OK, "durability", f"synchronous_commit is {it.synchronous_commit}{waits}")
    for (what,) in store.read("planted"):
        text = f"{what} is not Perdure's: the server may run it with what agents read and write"
        yield Checked(Level.PROBLEM, "schema", text, "drop it, or ask the owner of the schema who made it")
    if not it.may_migrate:
        text = "this role may use the schema and not change it"
        yield Checked(Level.NOTE, "role", text, "run the first program of a new version as the owner of the schema")


def signing(store: Store) -> Iterator[Checked]:
    """Whether the agents' keys are here: without them what they do stays unsigned."""
    folder = keys.folder_of(store)
    for name, _, public_key, *_ in store.read("all_agents"):
        try:
            key = keys.find(name, folder, None)
        except (ValueError, OSError, StoreUnavailable) as error:
            text = f"the key of {name} cannot be read: {error}"
            yield Checked(Level.PROBLEM, "keys", text, "restore the key file from a backup")
            continue
        if key is None:
            text = f"the key of {name} is not here: its runs stay unsigned"
            yield Checked(
                Level.NOTE, "keys", text, f"cp BACKUP/{name}.key {shlex.quote(folder or '')}/  # or set PERDURE_KEY"
            )
        elif key.public_key != public_key:
            text = f"the key at hand is not the one of {name}"
            yield Checked(Level.PROBLEM, "keys", text, "restore the key file from a backup, or unset PERDURE_KEY")
        else:
            yield Checked(Level.OK, "keys", f"{name} signs with its key")
