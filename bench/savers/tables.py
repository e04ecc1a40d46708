"""The figures of the savers as people read them: in the terminal, and on the page about LangGraph."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..rows import number
from .standings import KINDS, MEMORY, SaverStanding, Talked

MEGABYTE = 1_000_000


class Figures(msgspec.Struct, frozen=True):
    """A table; the first cell of each row is a saver."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def make_tables(standings: Sequence[SaverStanding]) -> list[Figures]:
    """Every table there is something to tell in."""
    if not standings:
        return []
    kinds = [make_talk_table(standings, kind) for kind in KINDS]
    return [*kinds, make_size_table(standings), graphs(standings), crowds(standings)]


def make_talk_table(standings: Sequence[SaverStanding], kind: str) -> Figures:
    """Times of a conversation."""
    headings = ["", "put p50", "put p99", "put_writes p50", "p99", "both, first 100", "both, last 100"]
    headings += ["get_tuple p50", "p99", "first of a process"]
    rows = [[name(one), *_times(one.talks[kind])] for one in standings if kind in one.talks]
    return Figures(f"A conversation of {steps(standings):,} steps, {KINDS[kind]} of 1 KB (ms)", headings, rows)


def _times(conversation: Talked) -> list[str]:
    found = [
        conversation.put.p50,
        conversation.put.p99,
        conversation.writes.p50,
        conversation.writes.p99,
        conversation.first.p50,
        conversation.last.p50,
        conversation.get.p50,
        conversation.get.p99,
    ]
    return [number(one) for one in found] + [
        number(conversation.fresh_get_ms) if conversation.fresh_get_ms is not None else ""
    ]


def make_size_table(standings: Sequence[SaverStanding]) -> Figures:
    """Bytes on disk."""
    marks = sorted(standings[0].talks["dicts"].bytes)
    headings = ["", *(f"{told}, {mark:,}" for told in KINDS.values() for mark in marks)]
    rows = [
        [name(one), *(_megabytes(one.talks.get(kind), mark) for kind in KINDS for mark in marks)]
        for one in standings
        if one.entry.store != MEMORY
    ]
    return Figures("Stored after so many steps (MB)", headings, rows)


def _megabytes(item: Talked | None, mark: int) -> str:
    return number(item.bytes[mark] / MEGABYTE) if item is not None else ""


def graphs(standings: Sequence[SaverStanding]) -> Figures:
    """A real graph."""
    headings = ["", "ms for a step", "get_state ms", "long, DeltaChannel: ms", "get_state ms", "MB"]
    headings += ["long, plain: ms", "get_state ms", "MB"]
    rows = []
    for one in standings:
        cells = [name(one), number(one.loop.ms), number(one.loop.get_ms)]
        for loop in (one.delta, one.plain):
            megabytes = loop.bytes / MEGABYTE if loop is not None and loop.bytes is not None else 0
            cells += [number(loop.ms), number(loop.get_ms), number(megabytes)] if loop is not None else ["", "", ""]
        rows.append(cells)
    return Figures("A graph that waits for each checkpoint (durability=sync)", headings, rows)


def crowds(standings: Sequence[SaverStanding]) -> Figures:
    """Eight at once."""
    rows = [
        [name(one), number(one.alone), number(one.together), f"{one.together / one.alone:.2f}"] for one in standings
    ]
    return Figures("Steps per second on one saver", ["", "one thread", "8 at once", "times"], rows)


def steps(standings: Sequence[SaverStanding]) -> int:
    """How long the conversations were."""
    return max(standings[0].talks["dicts"].bytes)


def name(one: SaverStanding) -> str:
    """The saver, and the store where that is not clear."""
    return f"{one.entry.saver}, {one.entry.store}" if one.entry.ours else one.entry.saver
