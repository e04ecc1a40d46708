"""`perdure events`: show and follow the event logs of agents."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.output import CommandOutput, clean, format_moment, format_value, to_json_value
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_agent,
    find_run,
    open_existing_store,
    run_option,
)
from perdure.data.events.follow import Follower
from perdure.data.events.positions import parse_token
from perdure.data.events.read import Event, EventPages, EventQuery, EventReader, EventTime, list_known_kinds
from perdure.data.events.schemas import EventKinds
from perdure.journal.trees.tolerant_read import tolerant
from perdure.values.durations import seconds_of
from perdure.values.limits import NUMBER_MAX, WAIT_POLL_SECONDS

if TYPE_CHECKING:
    from perdure.store.base import Store

EVENTS_SHOWN = 50
_HEADERS = ("AT", "AGENT", "RUN", "KIND", "PAYLOAD")


@click.command()
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind; repeatable.")
@run_option
@agent_option
@click.option("--since", metavar="WHEN", help='Only later events: "2h" ago, a time, or the position of an event.')
@click.option(
    "--limit", type=click.IntRange(1, NUMBER_MAX), default=EVENTS_SHOWN, show_default=True,
    help="How many: the newest, or with --since the oldest.",
)  # fmt: skip
@click.option("--follow", is_flag=True, help="Keep running and show new events.")
@add_common_options
def events(
    kinds: tuple[str, ...],
    run: str | None,
    agent: str | None,
    since: str | None,
    limit: int,
    follow: bool,
    url: str | None,
    as_json: bool,
) -> int:
    """Show the events of agents, newest last.

    With --follow and --json, each event is one line.
    """
    out = CommandOutput(as_json)
    asked = EventQuery(kinds, run, _parse_since(since), typed=False)
    with open_existing_store(url) as store:
        if run is not None:
            agent = find_run(store, run, agent).agent
        books = _books(store, agent)
        if follow:
            return _follow(out, store, books, asked, limit, every=agent is None)
        found = _collect_events(books, asked, limit)
        if as_json:
            out.json([_as_json(name, event) for name, event in found])
        elif found:
            out.table(_HEADERS, [_cells(name, event) for name, event in found])
        else:
            out.line(_explain_nothing(store, books, kinds))
    return 0


def _books(store: Store, agent: str | None) -> list[EventReader]:
    chosen = find_agent(store, agent) if agent is not None else None
    agents = [chosen] if chosen else [(name, stream) for name, stream, *_ in store.read("all_agents")]
    return [EventReader(store, stream, name, EventKinds(), tolerant(store)) for name, stream in agents]


def _parse_since(since: str | None) -> EventTime | None:
    """Parse --since."""
    if since is None:
        return None
    try:
        parse_token(since)
        return since
    except ValueError:
        pass  # try a time next
    try:
        return datetime.fromisoformat(since)
    except ValueError:
        pass  # try a duration next
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds_of(since, "since"))
    except ValueError:
        raise click.UsageError(
            f'--since {since!r}: give the position of an event, a time such as 2026-11-16T09:30, or "2h"'
        ) from None


def _collect_events(books: Sequence[EventReader], asked: EventQuery, limit: int) -> list[tuple[str, Event]]:
    """Return the events of all agents, ordered by time."""
    last = None if asked.since is not None else limit
    found = []
    for book in books:
        pages = EventPages(lambda book=book: book, _limit_query(asked, None if last else limit, last))  # type: ignore[misc]
        while page := pages.read_next_page():
            found += [(book.agent, event) for event in page]
    found.sort(key=lambda pair: (pair[1].at, pair[1].position))
    return found[-limit:] if last else found[:limit]


def _limit_query(asked: EventQuery, limit: int | None, last: int | None) -> EventQuery:
    return EventQuery(asked.kinds, asked.run, asked.since, asked.until, limit, last, typed=False)


def _explain_nothing(store: Store, books: Sequence[EventReader], kinds: Sequence[str]) -> str:
    if not kinds:
        return "no events"
    known = list_known_kinds(store, [book.owner for book in books])
    return "no such events" + (f"; known kinds: {', '.join(map(clean, known[:10]))}" if known else "")


def _start_from_first(asked: EventQuery) -> EventQuery:
    """Return the query for all events of an agent that appeared after the command started."""
    return EventQuery(asked.kinds, asked.run, "", typed=False)


def _follow(
    out: CommandOutput, store: Store, books: Sequence[EventReader], asked: EventQuery, limit: int, every: bool
) -> int:
    """Print the newest events, then new ones, like `tail -f`. With `every`, new agents are included."""
    followers = [(book, Follower(store, lambda book=book: book, asked)) for book in books]  # type: ignore[misc]
    if asked.since is None:
        shown_first = []
        for book, follower in followers:
            until = follower.begin()
            before = EventQuery(
                asked.kinds, asked.run, None, until.token if until.arrival >= 0 else "", None, limit, False
            )
            pages = EventPages(lambda book=book: book, before)  # type: ignore[misc]
            shown_first += [(book.agent, event) for event in pages.read_next_page()]
        shown_first.sort(key=lambda pair: (pair[1].at, pair[1].position))
        _print_events(out, shown_first[-limit:])
    while True:
        for book, follower in followers:
            _print_events(out, [(book.agent, event) for event in follower.poll()])
        for book in _books(store, None) if every else ():
            if book.agent not in {known.agent for known, _ in followers}:
                followers.append((book, Follower(store, lambda book=book: book, _start_from_first(asked))))  # type: ignore[misc]
        store.clock.sleep(WAIT_POLL_SECONDS if store.one_host else 10 * WAIT_POLL_SECONDS)


def _print_events(out: CommandOutput, found: Sequence[tuple[str, Event]]) -> None:
    for name, event in found:
        if out.as_json:
            print(json.dumps(to_json_value(_as_json(name, event))))
        else:
            out.line("  ".join(_cells(name, event)))
    if found:
        sys.stdout.flush()


def _as_json(agent: str, event: Event) -> dict[str, Any]:
    return {
        "agent": agent,
        "kind": event.kind,
        "payload": event.data,
        "at": format_moment(event.at),
        "run": event.run,
        "position": event.position,
    }


def _cells(agent: str, event: Event) -> tuple[str, ...]:
    at = event.at.astimezone().isoformat(sep=" ", timespec="seconds")[:19]
    return at, clean(agent), clean(event.run or "-"), clean(event.kind), format_value(event.data)
