"""The rows that need a server or the peers, and the figures of the comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from ..failures import NoPeers, NoServer
from ..lab import Lab
from ..rows import Row, at_least, at_most, exactly
from ..sections import chain_rows
from ..server import Server
from . import crowds, environment, race
from .arena import Arena
from .crashes import CELLS, crashes
from .standings import POSTGRES, TITLES, Crash, Entrant, Standing

TIMES_DBOS = 5
COUNTED_CALLS = 30

Finding = Row | Standing | Crash


def postgres(lab: Lab) -> Iterator[Finding]:
    """Steps and effects on PostgreSQL, beside a bare insert through the same driver."""
    server, why = _server(lab)
    if server is None:
        yield Row("PostgreSQL", "step: round trips", None, note=why)
        return
    arena = Arena(lab, server, None)
    for kind, trips in (("step", 1), ("effect", 2)):
        yield _trips(arena, Entrant("perdure", POSTGRES, kind), trips)
    for kind, most in (("step", 1.6), ("effect", 3)):
        url = server.url(server.new_database())
        measured = lab.measure("chain", kind=kind, pairs=lab.pairs, size=20, url=url)
        yield from chain_rows("PostgreSQL", kind, measured, at_most(most))


def _trips(arena: Arena, entrant: Entrant, wanted: int) -> Row:
    """Counted call by call between us and the server. The median: a heartbeat may fall into a call."""
    counts = []
    with arena.proxy(entrant) as proxy, arena.start_counted(entrant, arena.place(entrant), proxy) as companion:
        assert proxy is not None
        companion.wait_opened()
        companion.calls(race.WARM)
        for _ in range(COUNTED_CALLS):
            before = proxy.trips
            companion.calls(1)
            counts.append(proxy.trips - before)
        companion.end()
    varies = f"between {min(counts)} and {max(counts)}" if len(set(counts)) > 1 else ""
    return Row("PostgreSQL", f"{entrant.kind}: round trips", median(counts), "", exactly(wanted), True, varies)


def peers(lab: Lab) -> Iterator[Finding]:
    """Perdure, DBOS and LangGraph in one session, blocks in turns."""
    arena, notes = _arena(lab)
    yield from notes
    rounds, attempts = (4, 1) if lab.quick else (lab.pairs, 5)
    finishes = race.race(arena, rounds, lab.say)
    for one in finishes:
        lab.say(f"{one.entrant.title} on {one.entrant.store}: costs, and the way back after a kill")
        costs = race.costs(arena, one.entrant, 200 if lab.quick else 1000)
        back = race.comeback(arena, one.entrant, attempts) if one.entrant.system != "floor" else None
        yield Standing(one.entrant, one.facts["version"], one.facts["durability"], one.speed, costs, back)
        if one.entrant.system == "perdure" and back is not None:
            what = f"{one.entrant.kind}s that ran again after a kill though they had returned, {one.entrant.store}"
            yield Row("peers", what, back.repeated, "", exactly(0), True, f"in {2 * attempts} kills")
    ours = {one.entrant.store: one for one in finishes if one.entrant == Entrant("perdure", one.entrant.store)}
    for dbos in (one for one in finishes if one.entrant.system == "dbos"):
        times = ours[dbos.entrant.store].times(dbos)
        what = f"steps per second, in times of DBOS's, {dbos.entrant.store}"
        yield Row("peers", what, times, "", at_least(TIMES_DBOS))


def workflows(lab: Lab) -> Iterator[Finding]:
    """Runs of ten steps, 64 at a time, of Perdure and of DBOS."""
    arena, notes = _arena(lab)
    yield from notes
    scores = crowds.crowds(arena, *((24, 1) if lab.quick else (128, 7)), lab.say)
    for one in scores:
        what = f"{TITLES[one.entrant.system]}, {one.entrant.store}: runs per second, {crowds.WAYS[one.entrant.kind]}"
        note = f"{one.cpu_ms:.1f} ms of processor time; {one.facts['version']}, {one.facts['set']}"
        yield Row("workflows", what, one.per_second, note=note)
    ours = {(one.entrant.store, one.entrant.kind): one for one in scores if one.entrant.ours}
    for dbos in (one for one in scores if not one.entrant.ours):
        store, way = dbos.entrant.store, dbos.entrant.kind
        what = f"{store}: runs per second {crowds.WAYS[way]}, in times of DBOS's"
        yield Row("workflows", what, ours[store, way].times(dbos), "", at_least(TIMES_DBOS))


def crash_matrix(lab: Lab) -> Iterator[Finding]:
    """How often an effect happened, when its process dies at the worst moments."""
    arena, notes = _arena(lab)
    yield from notes
    worst: dict[str, int] = {}
    for crash in crashes(arena, 1 if lab.quick else 3, 3 if lab.quick else 12):
        yield crash
        if crash.system.startswith("Perdure effect"):
            worst[crash.store] = max(worst.get(crash.store, 0), *crash.happened)
    for store, most in worst.items():
        what = f"most times that a Perdure effect happened, {store}"
        yield Row("crashes", what, most, "", exactly(1), True, f"in {len(CELLS)} ways to fail")


def _arena(lab: Lab) -> tuple[Arena, list[Row]]:
    """Who can take part here, and rows that say why somebody cannot."""
    notes = []
    server, why = _server(lab)
    if server is None:
        notes.append(Row("peers", "PostgreSQL", None, note=why))
    python: Path | None = None
    if lab.peers:
        try:
            python = environment.python(lab.say)
        except NoPeers as error:
            notes.append(Row("peers", "DBOS and LangGraph", None, note=str(error)))
    return Arena(lab, server, python), notes


def _server(lab: Lab) -> tuple[Server | None, str]:
    try:
        return lab.server, ""
    except NoServer as error:
        return None, str(error)


SECTIONS: dict[str, Callable[[Lab], Iterator[Finding]]] = {
    "postgres": postgres,
    "peers": peers,
    "workflows": workflows,
    "crashes": crash_matrix,
}
