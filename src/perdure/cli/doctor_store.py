"""Checks of `perdure doctor` on an open store, and on other stores that programs could open instead."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.doctor_environment import CheckLevel, CheckResult
from perdure.cli.output import format_age, format_count
from perdure.cli.runs import ListedRun, row_of
from perdure.errors import PerdureError, StoreUnavailable
from perdure.journal import keys
from perdure.journal.departures import describe_departure
from perdure.journal.leases import LEASE_MS
from perdure.kernel.engine import home_of
from perdure.platform.process import Holder, identify_this_process, proven_dead
from perdure.records import RunStatus
from perdure.run.listing import RunSummary, list_runs, run_counts
from perdure.store import (
    DATABASE_NAME,
    FOLDER_NAME,
    file_of,
    hide_password,
    is_postgres,
    locate,
    open_store,
    versions_of,
)
from perdure.store.rows import first_number
from perdure.store.sqlite.mark import describe_lost

if TYPE_CHECKING:
    from perdure.store.base import Store

LISTED_MAX = 10
"""How many runs of a kind are listed; the rest are counted."""
LOOKED_AT_MAX = 500
"""How many unfinished runs are checked, newest first."""
SILENT_MS = 3_600_000
"""A running run that has written nothing for this long hangs, or has a long step."""
CLOCKS_APART_MS = 5_000
"""A larger difference between two clocks is reported."""


def home(store: Store, path: str, options: str) -> Iterator[CheckResult]:
    """Check that the store has not moved since it was last used."""
    rows = store.read("last_location")
    if rows and rows[0] != home_of(path):
        text = "the store was last used on another host or as another file"
        fix = f"perdure adopt{options}  # if the other copy is no longer in use"
        yield CheckResult(
            CheckLevel.NOTE if store.read_only else CheckLevel.PROBLEM, "home", text, "" if store.read_only else fix
        )
    else:
        yield CheckResult(CheckLevel.OK, "home", "this is the file that was last used")


def losses(store: Store, options: str) -> Iterator[CheckResult]:
    """Check that no acknowledged entry is missing."""
    for one in store.losses():
        fix = f"perdure adopt{options}  # to continue without them; or restore the newer database or its log"
        yield CheckResult(CheckLevel.PROBLEM, "lost", describe_lost(one), fix)


def holders(store: Store, options: str) -> Iterator[CheckResult]:
    """Check the processes that have runs open, and dead ones that left runs open."""
    alive, now = 0, store.clock.boot_ms()
    for _, boot, namespace, pid, started, host, _, left, leases in store.read("holders_at_work", (now,)):
        holder = Holder(boot, namespace, pid, started, host)
        if proven_dead(holder, store.one_host):
            text = f"{holder} died and left {format_count(leases, 'run')} open: they can be resumed at once"
            yield CheckResult(CheckLevel.NOTE, "holders", text, f"perdure runs --status crashed{options}")
        elif left <= 0:
            text = f"{holder} has not renewed its lease for {-left // 1000 + 1} s: it is stopped, hangs or is gone"
            yield CheckResult(CheckLevel.NOTE, "holders", text, _look_at(holder))
        elif left > 2 * LEASE_MS:
            text = f"the lease of {holder} lasts {left // 1000} s, longer than a renewal: a clock was set back"
            yield CheckResult(CheckLevel.NOTE, "holders", text, _look_at(holder))
        else:
            alive += 1
    dead = first_number(store.read("count_dead_holders", (identify_this_process().boot, now)))
    if dead:
        count = format_count(dead, "dead process", "dead processes")
        text = f"{count} without runs, until the next heartbeat of any other"
        yield CheckResult(CheckLevel.OK, "holders", text)
    yield CheckResult(CheckLevel.OK, "holders", f"{format_count(alive, 'process', 'processes')} at work")


def _look_at(holder: Holder) -> str:
    command = f"ps -o pid,stat,etime,args -p {holder.pid}"
    return command if holder.host == identify_this_process().host else f"ssh {shlex.quote(holder.host)} {command}"


def agents(store: Store) -> Iterator[CheckResult]:
    """Report agents that have moved or retired: their runs cannot continue here."""
    for name, *_, gone in store.read("all_agents"):
        if gone:
            yield CheckResult(CheckLevel.OK, "agents", describe_departure(store, name))


def check_forgotten(store: Store, options: str) -> Iterator[CheckResult]:
    """Check whether erased bytes may still be in the file because scrubbing was interrupted or blocked."""
    from perdure.store.sqlite.scrub import OWED, find_left_behind

    if left := find_left_behind(store.read("meta_with_prefix", (OWED,)), asked=True):
        text = f"{format_count(len(left), 'erasure')} may have left bytes in the free space of the file"
        yield CheckResult(
            CheckLevel.NOTE, "forgotten", text, f"perdure gc --vacuum --yes{options}  # blocks all writers"
        )


# -- runs -------------------------------------------------------------------------------------------------------------


def runs(store: Store, options: str) -> Iterator[CheckResult]:
    """Check for runs that no process continues. `options` is appended to printed commands."""
    counts, left_by = run_counts(store), {name for name, *_, gone in store.read("all_agents") if gone}
    here = sorted({agent for agent, status in counts if not status.over} - left_by)
    found = [run for agent in here for run in list_runs(store, agent, limit=LOOKED_AT_MAX, unfinished=True)]
    left = sorted(found, key=lambda run: run.changed_at, reverse=True)[:LOOKED_AT_MAX]
    now, rows = store.clock.wall_ms(), [row_of(store, run) for run in left]
    kinds = {
        f"--status {RunStatus.CRASHED}": [
            _report_crashed(row, now, options) for row in rows if row.run.status == RunStatus.CRASHED
        ],
        f"--status {RunStatus.FAILED}": [
            _report_in_doubt(row, now, options) for row in rows if row.in_doubt and row.run.status == RunStatus.FAILED
        ],
        f"--status {RunStatus.WAITING}": [
            _report_waiting(row, now, options) for row in rows if row.run.status == RunStatus.WAITING
        ],
        f"--status {RunStatus.PAUSED}": [
            _report_paused(row, options) for row in rows if row.run.status == RunStatus.PAUSED
        ],
        f"--status {RunStatus.CANCELLING}": [
            _half_undone(row, options) for row in rows if row.run.status == RunStatus.CANCELLING and not row.run.holder
        ],
        f"--status {RunStatus.RUNNING}": [
            _report_silent(row, now, options)
            for row in rows
            if row.run.status == RunStatus.RUNNING and now - row.last_entry_at > SILENT_MS
        ],
    }
    for which, checks in kinds.items():
        yield from checks[:LISTED_MAX]
        if len(checks) > LISTED_MAX:
            text = f"{len(checks) - LISTED_MAX} more like these"
            yield CheckResult(checks[0].level, "runs", text, f"perdure runs {which} --limit 0{options}")
    over = sum(count for (_, status), count in counts.items() if status.over)
    yield CheckResult(CheckLevel.OK, "runs", f"{format_count(counts.total(), 'run')}, {over} of them over")


def _show(run: RunSummary, options: str) -> str:
    return f"perdure show {shlex.quote(run.id)} --agent {shlex.quote(run.agent)}{options}"


def _report_crashed(row: ListedRun, now: int, options: str) -> CheckResult:
    text = f"{row.run.id} of {row.run.agent} crashed {format_age(row.last_entry_at, now)} and was not resumed"
    doubt = f"; {', '.join(row.in_doubt)} may have happened" if row.in_doubt else ""
    fix = f"{_show(row.run, options)}  # then start its program again: it continues where it was"
    return CheckResult(CheckLevel.PROBLEM, "runs", text + doubt, fix)


def _report_in_doubt(row: ListedRun, now: int, options: str) -> CheckResult:
    since = format_age(row.last_entry_at, now).removesuffix(" ago")
    text = f"{row.run.id} of {row.run.agent} has been in doubt for {since}: did {', '.join(row.in_doubt)} happen?"
    return CheckResult(CheckLevel.NOTE, "runs", text, _show(row.run, options))


def _report_waiting(row: ListedRun, now: int, options: str) -> CheckResult:
    since = format_age(row.run.changed_at, now).removesuffix(" ago")
    what = "; ".join(row.waits_for) or row.note or "an answer"
    text = f"{row.run.id} of {row.run.agent} has waited {since} for an answer: {what}"
    if row.note:
        text = f"{row.run.id} of {row.run.agent} is {row.note}"
    return CheckResult(CheckLevel.NOTE, "runs", text, _show(row.run, options))


def _report_paused(row: ListedRun, options: str) -> CheckResult:
    run = row.run
    fix = f"perdure resume {shlex.quote(run.id)} --agent {shlex.quote(run.agent)}{options}  # then start its program"
    return CheckResult(CheckLevel.NOTE, "runs", f"{run.id} of {run.agent} is paused {run.error}", fix)


def _half_undone(row: ListedRun, options: str) -> CheckResult:
    run = row.run
    text = f"{run.id} of {run.agent} was cancelled, and its process died before it had cleaned up"
    again = f"perdure cancel {shlex.quote(run.id)} --agent {shlex.quote(run.agent)}{options}  # ends it without cleanup"
    return CheckResult(CheckLevel.PROBLEM, "runs", text, f"start its program again to finish the cleanup; or {again}")


def _report_silent(row: ListedRun, now: int, options: str) -> CheckResult:
    wrote = f"last wrote {format_age(row.last_entry_at, now)}, and {row.run.holder} is alive"
    text = f"{row.run.id} of {row.run.agent} {wrote}: it has a long step or hangs"
    return CheckResult(CheckLevel.NOTE, "runs", text, _show(row.run, options))


# -- clocks -----------------------------------------------------------------------------------------------------------


def clocks(store: Store) -> Iterator[CheckResult]:
    """Compare this host's clock, which sleeps and timeouts use, with the newest entry and the server."""
    now, fix = store.clock.wall_ms(), "timedatectl status; sudo timedatectl set-ntp true"
    newest = max((run.changed_at for run in list_runs(store, limit=1)), default=0)
    if newest - now > CLOCKS_APART_MS:
        behind = f"{(newest - now) // 1000} s behind the newest entry"
        text = f"this host's clock is {behind}: it was set back, or another host's clock is ahead"
        yield CheckResult(CheckLevel.PROBLEM, "clock", text, fix)
        return
    [(theirs,)] = store.read("clock_now")
    apart = theirs - store.clock.wall_ms()
    if abs(apart) > CLOCKS_APART_MS:
        text = f"this host's clock is {abs(apart) // 1000} s {'behind' if apart > 0 else 'ahead of'} the server's"
        yield CheckResult(CheckLevel.NOTE, "clock", text, fix)
    else:
        yield CheckResult(
            CheckLevel.OK, "clock", "agrees with the newest entry" + ("" if store.one_host else " and the server")
        )


# -- other stores -----------------------------------------------------------------------------------------------------


def namesakes(store: Store, chosen: bool) -> Iterator[CheckResult]:
    """Find agents of the same name in other stores that programs could open. `chosen`: --store was given."""
    if chosen and _exists(usual := locate(None)) and not _is_same_file(usual, store.url):
        text = f"programs started here use another store: {_hide_password(usual)}"
        yield CheckResult(
            CheckLevel.NOTE, "store", text, f"export PERDURE_URL={shlex.quote(_hide_password(store.url))}"
        )
    for url in _find_other_stores(store.url):
        yield from _compare_stores(store, _find_active_agents(store), url)


def _find_active_agents(store: Store) -> dict[str, bytes]:
    """Return the active agents and their public keys."""
    return {name: key for name, _, key, _, gone in store.read("all_agents") if not gone}


def _find_other_stores(url: str) -> list[str]:
    """Return the stores that a program could find: the environment, parent folders, the home folder."""
    here = Path.cwd()
    folders = [folder / FOLDER_NAME for folder in (here, *here.parents, Path.home())]
    files = [f"sqlite:///{folder / DATABASE_NAME}" for folder in folders]
    given = [locate(os.environ["PERDURE_URL"])] if os.environ.get("PERDURE_URL") else []
    return [other for other in dict.fromkeys([*given, *files]) if _exists(other) and not _is_same_file(other, url)]


def _compare_stores(store: Store, ours: dict[str, bytes], url: str) -> Iterator[CheckResult]:
    try:
        if versions_of(url).steps:
            return  # opening it would migrate it, which is up to its own programs
        with closing(open_store(url, create=False, wary=True)) as other:
            copy = other.identity == store.identity
            theirs = _find_active_agents(other)
    except PerdureError as error:
        yield CheckResult(
            CheckLevel.NOTE,
            "other stores",
            f"{_hide_password(url)} cannot be read: {error.message}",
            f"perdure doctor --store {shlex.quote(_hide_password(url))}",
        )
        return
    twins = {name for name, key in ours.items() if key in theirs.values() and not copy}
    for name in sorted(twins):
        text = f"agent {name} is active here and in {_hide_password(url)}: one moved file was imported twice"
        fix = "perdure verify  # in both stores, to compare their arrivals; then agent.retire() one of them"
        yield CheckResult(CheckLevel.PROBLEM, "other stores", text, fix)
    if shared := sorted(ours.keys() & theirs.keys() - twins):
        what = "a copy of this store" if copy else "another store"
        text = (
            f"{_join_names(shared)} also in {what}, {_hide_password(url)}: a program uses the first one that it finds"
        )
        yield CheckResult(
            CheckLevel.NOTE, "other stores", text, f"perdure runs --store {shlex.quote(_hide_password(url))}"
        )


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"agent {shown} is" if len(names) == 1 else f"agents {shown} are"


def _exists(url: str) -> bool:
    path = file_of(url)
    return path is None or (os.path.exists(path) and os.path.getsize(path) > 0)


def _is_same_file(a: str, b: str) -> bool:
    mine, theirs = file_of(a), file_of(b)
    if mine is None or theirs is None:
        return a == b
    return mine == theirs or (os.path.exists(theirs) and os.path.samefile(mine, theirs))


def _hide_password(url: str) -> str:
    return hide_password(url) if is_postgres(url) else file_of(url) or url


# -- servers and keys -------------------------------------------------------------------------------------------------


def server(store: Store) -> Iterator[CheckResult]:
    """Check a server: durability settings, foreign objects in the schema, and the role's permissions."""
    from perdure.store.postgres.store import PostgresStore

    if not isinstance(store, PostgresStore):
        return
    facts = store.server()
    yield CheckResult(
        CheckLevel.OK, "server", f"PostgreSQL {facts.version}{', through a pooler' if facts.pooled else ''}"
    )
    for name, on in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        if not on:
            text = f"{name} is off: a power failure may lose or damage acknowledged data"
            yield CheckResult(
                CheckLevel.PROBLEM, "durability", text, f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
            )
    waits = f", and waits for {facts.standbys}" if facts.standbys else ""
    yield CheckResult(CheckLevel.OK, "durability", f"synchronous_commit is {facts.synchronous_commit}{waits}")
    for (what,) in store.read("foreign_code"):
        text = f"{what} is not Perdure's: the server may run it on data that agents read and write"
        yield CheckResult(CheckLevel.PROBLEM, "schema", text, "drop it, or ask the owner of the schema who created it")
    if not facts.may_migrate:
        text = "this role may use the schema but not change it"
        yield CheckResult(
            CheckLevel.NOTE, "role", text, "run the first program of a new version as the owner of the schema"
        )


def check_signing(store: Store) -> Iterator[CheckResult]:
    """Check that the agents' private keys are here: without a key, runs stay unsigned."""
    folder = keys.folder_of(store)
    for name, _, public_key, *_ in store.read("all_agents"):
        try:
            key = keys.find(name, folder, None)
        except (ValueError, OSError, StoreUnavailable) as error:
            text = f"the key of {name} cannot be read: {error}"
            yield CheckResult(CheckLevel.PROBLEM, "keys", text, "restore the key file from a backup")
            continue
        if key is None:
            text = f"the key of {name} is not here: its runs stay unsigned"
            yield CheckResult(
                CheckLevel.NOTE,
                "keys",
                text,
                f"cp BACKUP/{name}.key {shlex.quote(folder or '')}/  # or set PERDURE_KEY",
            )
        elif key.public_key != public_key:
            text = f"the configured key is not the one of {name}"
            yield CheckResult(
                CheckLevel.PROBLEM, "keys", text, "restore the key file from a backup, or unset PERDURE_KEY"
            )
        else:
            yield CheckResult(CheckLevel.OK, "keys", f"{name} signs with its key")
