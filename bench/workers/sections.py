"""The rows about workers: how much they do, how soon they take over and wake up, what it costs to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

import msgspec

from ..comparison.proxy import Proxy
from ..failures import NoServer
from ..lab import Lab
from ..rows import Row, at_most
from ..server import PORT
from . import measures
from .program import STEPS

TAKEOVER_MS_MAX = 200
WAKING_MS_MAX = 50


class Store(msgspec.Struct, frozen=True):
    """One that nobody has used, and a folder for what else there is; `database` is that of a server."""

    name: str
    url: str
    folder: Path
    database: str = ""


def _stores(lab: Lab, section: str) -> Iterator[Store | Row]:
    """A new one of each kind; a row that says why there is none."""
    folder = lab.new_folder(section)
    yield Store("SQLite", f"sqlite:///{folder / 'perdure.db'}", folder)
    try:
        database = lab.server.new_database()
    except NoServer as error:
        yield Row(section, "PostgreSQL", None, note=str(error))
        return
    yield Store("PostgreSQL", lab.server.url(database), lab.new_folder(section), database)


def _on_both(lab: Lab, section: str, rows: Callable[[Lab, Store], Iterator[Row]]) -> Iterator[Row]:
    for store in _stores(lab, section):
        if isinstance(store, Row):
            yield store
        else:
            lab.say(store.name)
            yield from rows(lab, store)


def throughput(lab: Lab) -> Iterator[Row]:
    """Queued runs of ten steps, per second: in one worker process, and in several."""
    yield from _on_both(lab, "workers", _throughput)


def _throughput(lab: Lab, store: Store) -> Iterator[Row]:
    name, url, folder = store.name, store.url, store.folder
    runs, rounds = (60, 1) if lab.quick else (400, 5)
    cases = [(1, 1, False), (1, 8, False), (1, 64, False), (1, 64, True)]
    cases += [(count, 16, False) for count in (1, 2, 3, 4)]
    for count, at_once, loop in cases:
        lab.say(f"{name}: {count} x {at_once}")
        rate = measures.rate(url, folder, count=count, concurrency=at_once, runs=runs, rounds=rounds, loop=loop)
        kind = " under asyncio" if loop else ""
        processes = "1 process" if count == 1 else f"{count} processes"
        what = f"{name}: runs per second, {processes}{kind}, {at_once} at a time{' each' if count > 1 else ''}"
        note = f"{rate.steps:,.0f} steps per second; {rate.cpu_ms:.2f} ms of the workers' processor time for a run"
        yield Row("workers", what, rate.runs, note=note)


def takeover(lab: Lab) -> Iterator[Row]:
    """SIGKILL of a worker, up to the first resumed step in another one that was waiting."""
    yield from _on_both(lab, "takeover", _takeover)


def _takeover(lab: Lab, store: Store) -> Iterator[Row]:
    name, url, folder = store.name, store.url, store.folder
    times = sorted(measures.takeovers(url, folder, 2 if lab.quick else 11))
    note = f"after {STEPS} steps; {times[0]:.0f} to {times[-1]:.0f} ms in {len(times)} kills"
    what = f"{name}: kill to first resumed step"
    yield Row("takeover", what, median(times), "ms", at_most(TAKEOVER_MS_MAX), False, note)


def wakeup(lab: Lab) -> Iterator[Row]:
    """The answer to a parked run, up to its next line of code in a worker."""
    yield from _on_both(lab, "wake-up", _wakeup)


def _wakeup(lab: Lab, store: Store) -> Iterator[Row]:
    name, url, folder = store.name, store.url, store.folder
    times = sorted(measures.wakings(url, folder, 5 if lab.quick else 40))
    note = f"from the call of answer(); up to {times[-1]:.0f} ms in {len(times)}"
    what = f"{name}: wake-up of a parked run, p50"
    yield Row("wake-up", what, median(times), "ms", at_most(WAKING_MS_MAX), False, note)


def parked(lab: Lab) -> Iterator[Row]:
    """An idle worker with nothing parked, and with very many runs parked."""
    yield from _on_both(lab, "parked", _make_parked_rows)


def _make_parked_rows(lab: Lab, store: Store) -> Iterator[Row]:
    name, url, folder = store.name, store.url, store.folder
    count, seconds = (500, 3.0) if lab.quick else (lab.parked, 20.0)
    before = _idle(lab, store, seconds)
    lab.say(f"{name}: parking {count:,} runs")
    rate = measures.park(url, folder, count)
    after = _idle(lab, store, seconds)
    what = f"{name}: {{}} per second of an idle worker with {count:,} parked runs"
    note = f"with none {before.cpu_ms:.1f} ms; they were really parked, at {rate:,.0f} a second"
    more = at_most(before.cpu_ms + 2, before.cpu_ms + 5)
    yield Row("parked", what.format("processor time"), after.cpu_ms, "ms", more, False, note)
    allowed = at_most(before.statements * 1.1 + 1)
    note = f"with none {before.statements:.1f}"
    yield Row("parked", what.format("statements"), after.statements, "", allowed, True, note)
    what = f"{name}: memory of an idle worker with {count:,} parked runs"
    allowed = at_most(before.memory_mb + 5, before.memory_mb + 15)
    yield Row("parked", what, after.memory_mb, "MB", allowed, False, f"with none {before.memory_mb:.0f} MB")
    yield _size(lab, store, count)
    times = sorted(measures.wakings_among(url, folder, count, 5 if lab.quick else 40))
    what = f"{name}: wake-up of one of {count:,} parked runs, p50"
    note = f"from the call of answer(); up to {times[-1]:.0f} ms in {len(times)}"
    yield Row("parked", what, median(times), "ms", at_most(WAKING_MS_MAX), False, note)


def _size(lab: Lab, store: Store, count: int) -> Row:
    """All of it, and what one run takes."""
    files = sum(path.stat().st_size for path in store.folder.glob("perdure.db*"))
    size = lab.server.bytes_of(store.database) if store.database else files
    what = f"{store.name}: the store with {count:,} parked runs"
    return Row("parked", what, size / 1e6, "MB", note=f"{size / count / 1024:.1f} KiB for a run")


def _idle(lab: Lab, store: Store, seconds: float) -> measures.Idle:
    """On a server its statements are counted on the way there."""
    if not store.database:
        return measures.idle(store.url, store.folder, seconds)
    with closing(Proxy(lab.server.sockets, PORT)) as proxy:
        url = lab.server.url(store.database, proxy.folder)
        return measures.idle(url, store.folder, seconds, lambda: proxy.statements)


SECTIONS: dict[str, Callable[[Lab], Iterator[Row]]] = {
    "workers": throughput,
    "takeover": takeover,
    "wakeup": wakeup,
    "parked": parked,
}
