"""A store has the schema that its migrations make, and never half of it."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.errors import StoreUnavailable
from perdure.platform.failpoints import CommitMoment, Site
from perdure.store import open_store, sql
from perdure.store.sqlite.schema_guard import build_expected, digest
from tests.unit import child

FOLDER = Path(sql.__file__).parent
OPEN = "import sys; from perdure.store import open_store; open_store('sqlite:///' + sys.argv[1]).close()"


def normal(text: str | None) -> str:
    """Without comments and layout, which SQLite keeps."""
    return " ".join(re.sub(r"--[^\n]*", "", text or "").split())


def shape(path: str, *scripts: str) -> list[tuple[str, str, str]]:
    """Everything that a database consists of."""
    connection: Any = apsw.Connection(path)
    for script in scripts:
        connection.execute(script).fetchall()
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    connection.close()
    return [(kind, name, normal(text)) for kind, name, text in rows]


def test_the_digests_are_those_of_the_migrations() -> None:
    versions = {version: digest(sorted(build_expected(version).values())) for version in sql.digests("sqlite")}
    assert sql.digests("sqlite") == versions, "run tools/schema_digests.py"
    assert list(versions) == list(range(1, len(sql.migrations("sqlite")) + 1))


def test_a_new_store_has_that_schema(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    open_store(f"sqlite:///{path}").close()
    assert shape(str(path)) == shape(":memory:", *sql.migrations("sqlite"))


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_migrations_are_numbered_without_gaps(dialect: str) -> None:
    names = [path.name for path in sorted((FOLDER / dialect / "migrations").glob("*.sql"))]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert len(sql.migrations(dialect)) == len(names)


def test_both_dialects_have_the_same_tables_but_for_what_one_needs() -> None:
    def tables(dialect: str) -> set[str]:
        made = "\n".join(sql.migrations(dialect))
        return set(re.findall(r"^CREATE (?:VIRTUAL )?TABLE (\w+)", made, re.MULTILINE))

    assert tables("postgres") - tables("sqlite") == {"stream_count", "arrivals"}
    assert tables("sqlite") - tables("postgres") == {"chunk_words", "chunk_terms"}  # a column there


@pytest.mark.parametrize("moment", [CommitMoment.BEFORE, CommitMoment.BEGUN, CommitMoment.WRITTEN])
def test_killed_while_it_is_created_nothing_is_half_there(tmp_path: Path, moment: CommitMoment) -> None:
    path = tmp_path / "perdure.db"
    killed = child.run(OPEN, path, PERDURE_FAILPOINT=f"{Site.STORE_CREATE.value}:{moment.value}")
    assert killed.returncode == -signal.SIGKILL
    assert shape(str(path)) == []
    store = open_store(f"sqlite:///{path}")
    assert len(store.secret) == 32
    store.close()


def test_killed_after_it_was_created_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    killed = child.run(OPEN, path, PERDURE_FAILPOINT=f"{Site.STORE_CREATE.value}:after")
    assert killed.returncode == -signal.SIGKILL
    assert shape(str(path)) == shape(":memory:", *sql.migrations("sqlite"))
    identity = store_identity(path)
    assert store_identity(path) == identity


def store_identity(path: Path) -> str:
    store = open_store(f"sqlite:///{path}")
    store.close()
    return store.identity


def test_an_old_store_gets_only_what_it_lacks_and_all_of_it_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "perdure.db"
    identity = store_identity(path)
    history = sql.migrations("sqlite")
    broken = (*history, "CREATE TABLE second (a); CREATE TABLE third (", "CREATE TABLE fourth (a)")
    monkeypatch.setattr(sql, "migrations", lambda dialect: broken)
    with pytest.raises((apsw.SQLError, StoreUnavailable)):
        open_store(f"sqlite:///{path}")
    monkeypatch.setattr(sql, "migrations", lambda dialect: history)
    assert {name for _, name, _ in shape(str(path))}.isdisjoint({"second", "third", "fourth"})
    assert store_identity(path) == identity

    later = (*history, "CREATE TABLE second (a)", "CREATE TABLE third (b)")
    monkeypatch.setattr(sql, "migrations", lambda dialect: later)
    assert store_identity(path) == identity, "a migrated store is the same store"
    assert {"second", "third"} < {name for _, name, _ in shape(str(path))}
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == len(later)
    connection.close()
