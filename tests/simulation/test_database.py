"""The simulated server does what PostgreSQL does: the same duels of two transactions, fought in both.

A duel is a list of moves of A and B. What is compared is how each move ended, and whether it had to wait for the other.
"""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from perdure.store import open_store, sql
from perdure.store.postgres.url import parse
from tests.simulation.database import Database, Duplicate, Transaction
from tests.simulation.statements import STATEMENTS, Server

WAIT = 100
MUST = ("append_entry", "take_lease")
"""These fail when they change nothing."""
ROWS = ("add_stream", "check_lease", "head_of")
"""Of these the rows are compared, of the others how many were changed."""

HOLDER = ("boot", "namespace", 1, 1, "host", 0)
PREPARED: list[tuple[str, tuple[Any, ...]]] = [
    ("add_stream", ("run", "name", 0)),
    ("renew_holder", (1, *HOLDER, 0, 30_000)),
    ("renew_holder", (2, *HOLDER, 0, 30_000)),
    ("add_lease", (1, 1)),
    ("append_entry", (1, 1, 2, 0, b"body", b"chain", 1)),
]
APPEND = ("append_entry", (1, 2, 2, 0, b"body", b"chain", 1))
TAKE = ("take_lease", (1, 1, 2))
STREAM = ("add_stream", ("run", "name", 0))
CHECK = ("check_lease", (1, 1))
KEEP = ("ensure_holder", (1, *HOLDER, 0, 30_000))
RENEW = ("renew_holder", (1, *HOLDER, 0, 30_000))
DROP = ("drop_holder", (1,))
HEAD = ("head_of", (1,))
COMMIT, ROLLBACK = ("COMMIT", ()), ("ROLLBACK", ())

Move = tuple[str, tuple[str, tuple[Any, ...]]]
DUELS: dict[str, list[Move]] = {
    "a takeover waits for an entry": [
        ("A", APPEND),
        ("B", TAKE),
        ("A", COMMIT),
        ("B", HEAD),
        ("B", COMMIT),
    ],
    "an entry waits for a takeover and fails": [("B", TAKE), ("A", APPEND), ("B", COMMIT), ("A", ROLLBACK)],
    "an entry goes on when a takeover does not": [("B", TAKE), ("A", APPEND), ("B", ROLLBACK), ("A", COMMIT)],
    "an entry after a takeover fails at once": [("B", TAKE), ("B", COMMIT), ("A", APPEND), ("A", ROLLBACK)],
    "what is not committed is not seen": [
        ("A", APPEND),
        ("B", HEAD),
        ("A", COMMIT),
        ("B", HEAD),
    ],
    "the same entry twice": [("A", APPEND), ("B", APPEND), ("A", COMMIT), ("B", ROLLBACK)],
    "the same entry again after a failure": [("A", APPEND), ("B", APPEND), ("A", ROLLBACK), ("B", COMMIT)],
    "two takeovers": [("A", TAKE), ("B", TAKE), ("A", COMMIT), ("B", ROLLBACK)],
    "two takeovers of which the first fails": [("A", TAKE), ("B", TAKE), ("A", ROLLBACK), ("B", COMMIT)],
    "a look waits for a takeover": [("B", TAKE), ("A", CHECK), ("B", COMMIT), ("A", COMMIT)],
    "a takeover waits for a look": [("A", CHECK), ("B", TAKE), ("A", COMMIT), ("B", COMMIT)],
    "two streams": [("A", STREAM), ("B", STREAM), ("A", COMMIT), ("B", COMMIT)],
    "two streams of which the first fails": [("A", STREAM), ("B", STREAM), ("A", ROLLBACK), ("B", COMMIT)],
    "a kept holder is renewed": [("A", KEEP), ("B", RENEW), ("B", COMMIT), ("A", COMMIT)],
    "a renewed holder is kept": [("B", RENEW), ("A", KEEP), ("A", COMMIT), ("B", COMMIT)],
    "a kept holder is not dropped": [("A", KEEP), ("B", DROP), ("A", COMMIT), ("B", COMMIT)],
    "a dropped holder comes back": [("B", DROP), ("A", KEEP), ("B", COMMIT), ("A", COMMIT)],
    "two renewals": [("A", RENEW), ("B", RENEW), ("A", COMMIT), ("B", COMMIT)],
}


def outcome(name: str, rows: list[Any], changed: int) -> str:
    if name in MUST:
        return "done" if changed == 1 else "refused"
    return str([tuple(row) for row in rows]) if name in ROWS else f"changed {changed}"


def simulate_moves(moves: list[Move]) -> list[str]:
    database, server = Database(), Server(lambda: 0)
    open_now: dict[str, Transaction] = {}
    blocked: dict[str, tuple[str, Any]] = {}
    told: list[str] = []

    def go_on(who: str, name: str, executing: Any) -> None:
        try:
            next(executing)
            blocked[who] = (name, executing)
            told.append(f"{who} {name} waits")
        except StopIteration as stop:
            told.append(f"{who} {name}: {outcome(name, *stop.value)}")
        except Duplicate:
            told.append(f"{who} {name}: duplicate")

    for who, (name, args) in [*(("A", move) for move in PREPARED), ("A", COMMIT), *moves]:
        if name in ("COMMIT", "ROLLBACK"):
            transaction = open_now.pop(who)
            transaction.commit() if name == "COMMIT" else transaction.abort()
            waiting, blocked = blocked, {}
            for other, (its, executing) in waiting.items():
                go_on(other, its, executing)
            continue
        transaction = open_now.setdefault(who, Transaction(database))
        go_on(who, name, STATEMENTS[name](transaction, server, *args))
    return told


class Fighter:
    """A connection that can be seen waiting."""

    def __init__(self, url: str) -> None:
        place = parse(url)
        self.connection = psycopg.connect(place.target, options=f"-c search_path={place.schema}")
        self.pid = self.connection.info.backend_pid
        self.moving: threading.Thread | None = None
        self.said = ""

    def move(self, name: str, args: tuple[Any, ...]) -> None:
        self.moving = threading.Thread(target=self._move, args=(name, args))
        self.moving.start()

    def _move(self, name: str, args: tuple[Any, ...]) -> None:
        cursor = psycopg.RawCursor(self.connection)
        try:
            cursor.execute(sql.number_parameters(sql.load("postgres")[name], "$").encode(), args)
            rows = cursor.fetchall() if cursor.description else []
            self.said = f"{name}: {outcome(name, rows, cursor.rowcount)}"
        except psycopg.errors.UniqueViolation:
            self.said = f"{name}: duplicate"
        except (psycopg.errors.NotNullViolation, psycopg.errors.DivisionByZero):
            self.said = f"{name}: refused"

    def wait_settled(self, watcher: psycopg.Connection[Any]) -> bool:
        """Wait until the move has ended or waits for a lock; True when it has ended."""
        assert self.moving is not None
        for _ in range(WAIT * 100):
            self.moving.join(0.01)
            if not self.moving.is_alive():
                self.moving = None
                return True
            if watcher.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (self.pid,)).fetchone() == (True,):
                return False
        raise AssertionError("it neither ends nor waits")


def real(url: str, moves: list[Move]) -> list[str]:
    open_store(url).close()
    fighters, told = {"A": Fighter(url), "B": Fighter(url)}, []
    with psycopg.connect(parse(url).target, autocommit=True) as watcher:
        for who, (name, args) in [*(("A", move) for move in PREPARED), ("A", COMMIT), *moves]:
            item = fighters[who]
            if name in ("COMMIT", "ROLLBACK"):
                item.connection.commit() if name == "COMMIT" else item.connection.rollback()
            else:
                item.move(name, args)
            for other, fighter in fighters.items():
                if fighter.moving is None:
                    continue
                if fighter.wait_settled(watcher):
                    told.append(f"{other} {fighter.said}")
                elif fighter is item:
                    told.append(f"{other} {name} waits")
    for fighter in fighters.values():
        fighter.connection.close()
    return told


@pytest.mark.stores("postgres")
@pytest.mark.parametrize("name", DUELS)
def test_a_duel_ends_as_it_does_in_postgresql(name: str, store_url: str) -> None:
    assert simulate_moves(DUELS[name]) == real(store_url, DUELS[name])
