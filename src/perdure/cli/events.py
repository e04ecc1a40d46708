"""`perdure events`: what agents have noted, and what they note just now."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ..durations import seconds_of
from ..events.following import Follower
from ..events.positions import read_token
from ..events.reading import Asked, Book, Event, Pages, When, known_kinds
from ..events.schemas import Kinds
from ..limits import NUMBER_MAX, WAIT_POLL_SECONDS
from ..trees.tolerant import tolerant
from .output import Output, clean, plain, shown
from .stores import agent_option, common, existing_store, one_agent, one_run, run_option

if TYPE_CHECKING:
    from ..store.base import Store

EVENTS_SHOWN = 50
_HEADERS = ("AT", "AGENT", "RUN", "KIND", "PAYLOAD")


@click.command()
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind; may be given several times.")
@run_option
@agent_option
@click.option("--since", metavar="WHEN", help='From when on: "2h" ago, a time, or the position of an event.')
@click.option(
    "--limit", type=click.IntRange(1, NUMBER_MAX), default=EVENTS_SHOWN, show_default=True,
    help="How many: the newest, or with --since the first.",
)  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on, and show events as they come.")
@common
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
    """Show what agents have noted, the newest last.

    With --follow and --json, each event is one line.
    """
    out = Output(as_json)
    asked = Asked(kinds, run, _when(since), typed=False)
    with existing_store(url) as store:
        if run is not None:
            agent = one_run(store, run, agent).agent
        books = _books(store, agent)
        if follow:
            return _follow(out, store, books, asked, limit, every=agent is None)
        found = _found(books, asked, limit)
        if as_json:
            out.json([_as_json(name, event) for name, event in found])
        elif found:
            out.table(_HEADERS, [_cells(name, event) for name, event in found])
        else:
            out.line(_nothing(store, books, kinds))
    return 0


def _books(store: Store, agent: str | None) -> list[Book]:
    chosen = one_agent(store, agent) if agent is not None else None
    agents = [chosen] if chosen else [(name, stream) for name, stream, *_ in store.read("all_agents")]
    return [Book(store, stream, name, Kinds(), tolerant(store)) for name, stream in agents]


def _when(since: str | None) -> When | None:
    """What somebody means by --since."""
    if since is None:
        return None
    try:
        read_token(since)
        return since
    except ValueError:
        pass  # then it is a time
    try:
        return datetime.fromisoformat(since)
    except ValueError:
        pass  # then it is how long ago
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds_of(since, "since"))
    except ValueError:
        raise click.UsageError(
            f'--since {since!r} is no position of an event, no time such as 2026-11-16T09:30, and not "2h"'
        ) from None


def _found(books: Sequence[Book], asked: Asked, limit: int) -> list[tuple[str, Event]]:
    """Of all agents, by time."""
    last = None if asked.since is not None else limit
    found = []
    for book in books:
        pages = Pages(lambda book=book: book, _limited(asked, None if last else limit, last))  # type: ignore[misc]
        while page := pages.turn():
            found += [(book.agent, event) for event in page]
    found.sort(key=lambda pair: (pair[1].at, pair[1].position))
    return found[-limit:] if last else found[:limit]


def _limited(asked: Asked, limit: int | None, last: int | None) -> Asked:
    return Asked(asked.kinds, asked.run, asked.since, asked.until, limit, last, typed=False)


def _nothing(store: Store, books: Sequence[Book], kinds: Sequence[str]) -> str:
    if not kinds:
        return "no events"
    known = known_kinds(store, [book.owner for book in books])
    return "no such events" + (f"; there is {', '.join(map(clean, known[:10]))}" if known else "")


def _from_the_start(asked: Asked) -> Asked:
    """All that an agent has noted who was not there when we began."""
    return Asked(asked.kinds, asked.run, "", typed=False)


def _follow(out: Output, store: Store, books: Sequence[Book], asked: Asked, limit: int, every: bool) -> int:
    """The newest ones first, as `tail -f` does, and then what comes; `every` agent, also one that comes later."""
    followers = [(book, Follower(store, lambda book=book: book, asked)) for book in books]  # type: ignore[misc]
    if asked.since is None:
        shown_first = []
        for book, follower in followers:
            until = follower.begin()
            before = Asked(asked.kinds, asked.run, None, until.token if until.arrival >= 0 else "", None, limit, False)
            pages = Pages(lambda book=book: book, before)  # type: ignore[misc]
            shown_first += [(book.agent, event) for event in pages.turn()]
        shown_first.sort(key=lambda pair: (pair[1].at, pair[1].position))
        _tell(out, shown_first[-limit:])
    while True:
        for book, follower in followers:
            _tell(out, [(book.agent, event) for event in follower.look()])
        for book in _books(store, None) if every else ():
            if book.agent not in {known.agent for known, _ in followers}:
                followers.append((book, Follower(store, lambda book=book: book, _from_the_start(asked))))  # type: ignore[misc]
        store.clock.sleep(WAIT_POLL_SECONDS if store.one_host else 10 * WAIT_POLL_SECONDS)


def _tell(out: Output, found: Sequence[tuple[str, Event]]) -> None:
    for name, event in found:
        if out.as_json:
            print(json.dumps(plain(_as_json(name, event))))
        else:
            out.line("  ".join(_cells(name, event)))
    if found:
        sys.stdout.flush()


def _as_json(agent: str, event: Event) -> dict[str, Any]:
    return {
        "agent": agent,
        "kind": event.kind,
        "payload": event.data,
        "at": event.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "run": event.run,
        "position": event.position,
    }


def _cells(agent: str, event: Event) -> tuple[str, ...]:
    at = event.at.astimezone().isoformat(sep=" ", timespec="seconds")[:19]
    return at, clean(agent), clean(event.run or "-"), clean(event.kind), shown(event.data)
