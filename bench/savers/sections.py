"""The section `langgraph`: Perdure's saver beside those that LangGraph ships, and the bars of the design."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator

from ..comparison import environment
from ..comparison.standings import POSTGRES, SQLITE
from ..failures import NoPeers, NoServer
from ..lab import Lab
from ..rows import Bar, Row, at_least, at_most
from .race import Race
from .standings import ENTRIES, KINDS, Entry, Looped, SaverStanding

SECTION = "langgraph"
SMALLER_THAN_PLAIN = 150
SMALLER_THAN_DELTA = 3
SCALES = 1.5
"""Eight threads on a server, in times of one. The two cores of the machine are shared with the server."""

OURS = Entry("PerdureSaver", SQLITE)
OURS_ON_A_SERVER = Entry("PerdureSaver", POSTGRES)
THEIRS = Entry("SqliteSaver", SQLITE)
THEIRS_ON_A_SERVER = Entry("PostgresSaver", POSTGRES)


def langgraph(lab: Lab) -> Iterator[Row | SaverStanding]:
    """LangGraph's savers and ours in one session, blocks in turns."""
    entries, pythons, notes = _choose_entrants(lab)
    yield from notes
    if not entries:
        return
    standings, bare = _standings(Race(lab, entries, pythons))
    yield from standings.values()
    yield Row(SECTION, "a step of the graph that nobody saves", bare, "ms")
    yield from _sqlite_rows(standings)
    yield from _postgres_rows(standings)


def _choose_entrants(lab: Lab) -> tuple[list[Entry], dict[bool, str], list[Row]]:
    """Who can take part here, with which interpreter, and rows that say why somebody cannot."""
    notes = []
    if importlib.util.find_spec("langgraph") is None:
        return [], {}, [Row(SECTION, "LangGraph", None, note="`make .venv/.test` installs it")]
    entries, peers = list(ENTRIES), ""
    try:
        _ = lab.server
    except NoServer as error:
        entries = [entry for entry in entries if entry.store != POSTGRES]
        notes.append(Row(SECTION, "PostgreSQL", None, note=str(error)))
    try:
        if not lab.peers:
            raise NoPeers("left out by --no-peers")
        peers = str(environment.python(lab.say))
    except NoPeers as error:
        entries = [entry for entry in entries if entry.ours]
        notes.append(Row(SECTION, "LangGraph's savers", None, note=str(error)))
    return entries, {True: sys.executable, False: peers}, notes


def _standings(race: Race) -> tuple[dict[Entry, SaverStanding], float]:
    facts = race.facts()
    talks = {kind: race.talks(kind) for kind in KINDS}
    loops, bare = race.loops()
    crowds = race.crowds()
    found = {}
    for entry in facts:
        long = entry in (OURS, THEIRS)
        found[entry] = SaverStanding(
            entry,
            facts[entry]["version"],
            facts[entry]["durability"],
            {kind: talks[kind][entry] for kind in KINDS if entry in talks[kind]},
            loops[entry],
            *crowds[entry],
            delta=race.run_long(entry, delta=True) if long else None,
            plain=race.run_long(entry, delta=False) if entry == OURS else None,
        )
    return found, bare


def _sqlite_rows(standings: dict[Entry, SaverStanding]) -> Iterator[Row]:
    ours, theirs = standings.get(OURS), standings.get(THEIRS)
    if ours is None or theirs is None:
        return
    steps, kind = max(ours.talks["dicts"].bytes), KINDS["dicts"]
    smaller = theirs.talks["dicts"].bytes[steps] / ours.talks["dicts"].bytes[steps]
    what = f"bytes of SqliteSaver after {steps:,} steps, in times of ours"
    # A count, but of all steps: fewer of them are no measure.
    hard = steps == 1000
    yield Row(SECTION, what, smaller, "", at_least(SMALLER_THAN_PLAIN), hard, kind)
    if ours.plain is not None and theirs.delta is not None:
        yield from _compare_delta(ours.plain, theirs.delta, hard=hard)
    yield from _times(ours, theirs, put=at_most(0.5), get=at_most(1))
    yield Row(SECTION, "8 threads, in times of one, SQLite", ours.together / ours.alone, "", note=_compare_peer(theirs))


def _compare_delta(plain: Looped, delta: Looped, *, hard: bool) -> Iterator[Row]:
    """Our ordinary channel beside LangGraph's own answer to growth, the same graph from end to end."""
    what = "bytes of SqliteSaver with a DeltaChannel, in times of ours without one"
    smaller = (delta.bytes or 0) / (plain.bytes or 1)
    yield Row(SECTION, what, smaller, "", at_least(SMALLER_THAN_DELTA), hard, "the same graph from end to end")
    what = "get_state of that graph, in times of SqliteSaver's with a DeltaChannel"
    yield Row(SECTION, what, plain.get_ms / delta.get_ms, "", note=f"{plain.get_ms:.2f} and {delta.get_ms:.2f} ms")


def _postgres_rows(standings: dict[Entry, SaverStanding]) -> Iterator[Row]:
    ours, theirs = standings.get(OURS_ON_A_SERVER), standings.get(THEIRS_ON_A_SERVER)
    if ours is None or theirs is None:
        return
    steps = max(ours.talks["dicts"].bytes)
    smaller = theirs.talks["dicts"].bytes[steps] / ours.talks["dicts"].bytes[steps]
    yield Row(SECTION, f"bytes of PostgresSaver after {steps:,} steps, in times of ours", smaller)
    yield from _times(ours, theirs, put=at_most(0.2), get=None)
    scale = ours.together / ours.alone
    yield Row(
        SECTION, "8 threads, in times of one, PostgreSQL", scale, "", at_least(SCALES), note=_compare_peer(theirs)
    )


def _compare_peer(theirs: SaverStanding) -> str:
    return f"{theirs.entry.saver}: {theirs.together / theirs.alone:.2f}"


def _times(ours: SaverStanding, theirs: SaverStanding, *, put: Bar | None, get: Bar | None) -> Iterator[Row]:
    for kind, told in KINDS.items():
        our, their = ours.talks[kind], theirs.talks[kind]
        what = f"put at the end, p50, in times of {theirs.entry.saver}'s, {told}"
        note = f"{our.last_put.p50:.2f} and {their.last_put.p50:.2f} ms"
        yield Row(SECTION, what, our.last_put.p50 / their.last_put.p50, "", put, False, note)
        what = f"get_tuple at the end, p50, in times of {theirs.entry.saver}'s, {told}"
        note = f"{our.get.p50:.2f} and {their.get.p50:.2f} ms"
        yield Row(SECTION, what, our.get.p50 / their.get.p50, "", get, False, note)


SECTIONS: dict[str, Callable[[Lab], Iterator[Row | SaverStanding]]] = {"langgraph": langgraph}
