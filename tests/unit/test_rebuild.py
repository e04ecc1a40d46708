"""Every view equals the journal, a difference is found, and a rebuild mends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure.errors import JournalDamaged
from perdure.journal.object_gc import collect
from perdure.journal.project import VIEWS
from perdure.journal.rebuild import TABLES, check, rebuild
from perdure.store.base import Store
from tests.conformance.rich_store import behind, copy_to, open_copy
from tests.unit import child

NOT_IN_THE_JOURNAL = {"arrival"}
"""In which order events arrived here: rebuilding numbers them by time."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db", compacted=True)


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(open_copy(path)) as store:
        yield store


@pytest.fixture
def raw(path: Path) -> Iterator[apsw.Connection]:
    with closing(behind(path)) as connection:
        yield connection


def rows(raw: apsw.Connection) -> dict[str, list[tuple[object, ...]]]:
    compared = {view: ", ".join(TABLES[view].columns) for view in VIEWS}
    return {view: sorted(raw.execute(f"SELECT {compared[view]} FROM {view}").fetchall(), key=repr) for view in VIEWS}


def test_after_everything_has_happened_the_views_equal_the_journal(store: Store, raw: apsw.Connection) -> None:
    assert all(rows(raw).values())  # no view is empty, so each is compared
    statuses = {"finished", "failed", "interrupted", "waiting", "paused", "cancelled"}
    assert {row[3] for row in rows(raw)["runs"]} == statuses
    assert check(store) == []


def test_every_view_and_every_column_is_compared(raw: apsw.Connection) -> None:
    for name, view in TABLES.items():
        columns = [column for _, column, *_ in raw.execute(f"PRAGMA table_info({name})")]
        assert [column for column in columns if column not in NOT_IN_THE_JOURNAL] == list(view.columns)


def change_value(value: object) -> object:
    if isinstance(value, int | float):
        return value + 1
    return value + b"x" if isinstance(value, bytes) else f"{value}x"


@pytest.mark.parametrize("view", VIEWS)
def test_a_changed_value_is_found(store: Store, raw: apsw.Connection, view: str) -> None:
    before = rows(raw)
    table = TABLES[view]
    keys = table.columns[: table.key]
    which = " AND ".join(f"{key} = ?" for key in keys)
    for column in table.columns[table.key :]:
        for *row, value in raw.execute(f"SELECT {', '.join(keys)}, {column} FROM {view}").fetchall():
            other = change_value(value)
            raw.execute(f"UPDATE {view} SET {column} = ? WHERE {which}", (other, *row))
            [difference] = check(store)
            assert (difference.view, difference.what, difference.columns) == (view, "differs", (column,))
            assert (difference.expected, difference.found) == ((value,), (other,))
            raw.execute(f"UPDATE {view} SET {column} = ? WHERE {which}", (value, *row))
    assert rows(raw) == before


@pytest.mark.parametrize("view", VIEWS)
def test_missing_and_extra_rows_are_found_and_mended(store: Store, raw: apsw.Connection, view: str) -> None:
    before = rows(raw)
    count = len(before[view])
    key = TABLES[view].columns[0]
    more = f"{key} || 'x'" if view in ("agents", "task_waits") else f"{key} + 1000"
    others = ", ".join("'other'" if view == "runs" and name == "id" else name for name in TABLES[view].columns[1:])
    also = ", arrival" if view == "events" else ""
    columns = ", ".join(TABLES[view].columns)
    raw.execute(f"INSERT INTO {view} ({columns}{also}) SELECT {more}, {others}{also} FROM {view} LIMIT 1")
    assert [(difference.view, difference.what) for difference in check(store)] == [(view, "extra")]
    raw.execute(f"DELETE FROM {view}")
    assert [(difference.view, difference.what) for difference in check(store)] == [(view, "missing")] * count
    rebuild(store)
    assert check(store) == []
    assert rows(raw) == before


def test_rebuilding_changes_nothing_that_was_right(store: Store, raw: apsw.Connection) -> None:
    before = rows(raw)
    assert rebuild(store) == len(raw.execute("SELECT 1 FROM journal").fetchall())
    assert rows(raw) == before


def test_nothing_is_rebuilt_from_a_damaged_journal(store: Store, raw: apsw.Connection) -> None:
    before = rows(raw)
    raw.execute("UPDATE journal SET at = at + 1 WHERE id = (5 << 32 | 2)")
    with pytest.raises(JournalDamaged, match="stream 5, entry 2"):
        rebuild(store)
    with pytest.raises(JournalDamaged, match="stream 5, entry 2"):
        check(store)
    assert rows(raw) == before


def test_what_replays_have_kept_is_not_collected(store: Store, raw: apsw.Connection) -> None:
    kept = [packed for (packed,) in store.read("all_replay_snapshots") if packed[:1] == b"\x01"]
    assert kept, "a large one, which is an object"
    raw.execute("UPDATE journal SET body = NULL, digest = x'00' WHERE body IS NOT NULL")  # nobody else refers to it
    collect(store)
    assert all(store.read("has_object", (packed[1:],)) for packed in kept)


REBUILD = """
import sys
from perdure.journal.rebuild import rebuild
from perdure.store import open_store
rebuild(open_store(f"sqlite:///{sys.argv[1]}"))
"""


@pytest.mark.parametrize("moment", ["begun", "written"])
def test_a_killed_rebuild_changes_nothing(path: Path, raw: apsw.Connection, moment: str) -> None:
    raw.execute("UPDATE runs SET status = 'failed'")
    before = rows(raw)
    environment = {**os.environ, "PERDURE_FAILPOINT": f"journal.rebuild:{moment}"}
    done = subprocess.run([sys.executable, "-c", REBUILD, str(path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert rows(raw) == before


def test_an_agent_at_work_makes_no_difference(path: Path, store: Store) -> None:
    with child.run_busy_agent(path):
        first = len(store.read("all_runs"))
        turns = 0
        while turns < 5 or len(store.read("all_runs")) < first + 50:
            turns += 1
            assert check(store) == []
