"""A store file runs no SQL of its own: what somebody has planted in it is refused at open, and never run."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from perdure import Agent
from perdure.cli.main import main
from perdure.cli.store_option import open_engine
from perdure.errors import StoreTampered, StoreUnavailable
from perdure.store import open_store, sql
from perdure.store.sqlite import work_limits
from perdure.store.sqlite.backup import copy_unopened
from perdure.store.sqlite.file import connect
from perdure.store.sqlite.schema_guard import SETTINGS
from perdure.values.limits import READ_STEPS_PER_BYTE

SLOW_VIEW = """ALTER TABLE runs RENAME TO runs_hidden;
    CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT r.* FROM runs_hidden AS r, n WHERE i < 0"""
LIAR = """CREATE TRIGGER liar AFTER INSERT ON agent_state BEGIN
    UPDATE agent_state SET value = x'c3' WHERE rowid = new.rowid; END"""

PLANTED = {
    "trigger 'liar'": LIAR,
    "trigger 'late'": "CREATE TABLE theirs (a); CREATE TRIGGER late AFTER INSERT ON theirs BEGIN SELECT 1; END",
    "view 'harmless'": "CREATE VIEW harmless AS SELECT 1",
    "view 'runs'": SLOW_VIEW,
    "index 'planted' on table 'runs'": "CREATE INDEX planted ON runs (abs(stream))",
    "index 'Partly' on table 'runs'": "CREATE INDEX Partly ON RUNS (stream) WHERE status = 'x'",
    "no index 'tasks_ready'": "DROP INDEX tasks_ready",
    "no table 'rate_limits'": "DROP TABLE rate_limits",
    "no table 'runs'": "ALTER TABLE runs RENAME TO theirs",
    "another definition of table 'RATE_LIMITS'": """DROP TABLE rate_limits;
        CREATE TABLE RATE_LIMITS (owner, queue, next)""",
    "another definition of table 'runs'": "ALTER TABLE runs ADD COLUMN bad TEXT AS (hex(zeroblob(100000000))) VIRTUAL",
    "another definition of table 'rate_limits'": """DROP TABLE rate_limits;
        CREATE TABLE rate_limits (owner INTEGER NOT NULL,
        queue TEXT NOT NULL, next INTEGER NOT NULL CHECK (abs(next) > 0), PRIMARY KEY (owner, queue))
        STRICT, WITHOUT ROWID""",
    "another definition of table 'state_namespaces'": """DROP TABLE state_namespaces;
        CREATE TABLE state_namespaces (owner INTEGER NOT NULL,
        namespace TEXT COLLATE NOCASE NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (owner, namespace))
        STRICT, WITHOUT ROWID""",
    "another definition of table 'state_horizons'": """DROP TABLE state_horizons;
        CREATE TABLE state_horizons (owner INTEGER NOT NULL,
        namespace TEXT NOT NULL, revision INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (owner, namespace))
        STRICT""",
    "another definition of table 'document_words'": """DROP TABLE document_words;
        CREATE VIRTUAL TABLE document_words USING fts5 (words, content = 'theirs', tokenize = 'ascii')""",
    "another definition of index 'tasks_ready'": "DROP INDEX tasks_ready; CREATE INDEX tasks_ready ON tasks (owner)",
    "schema version -1": "PRAGMA user_version = -1",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "perdure.db"
    with closing(Agent("keeper", store=path)) as agent, agent.run("r-1"):
        agent.state.set("s", "k", "as it was")
    return path


def plant(path: Path, script: str) -> None:
    with closing(apsw.Connection(str(path))) as behind:
        behind.config(apsw.SQLITE_DBCONFIG_LEGACY_ALTER_TABLE, 1)
        behind.execute(script).fetchall()


@pytest.mark.parametrize("found", PLANTED)
def test_what_is_planted_in_a_store_file_is_refused_by_name(path: Path, found: str) -> None:
    plant(path, PLANTED[found])
    before = path.read_bytes()
    with pytest.raises(StoreTampered, match=re.escape(found)) as refused:
        open_store(f"sqlite:///{path}")
    assert "Nothing in it was run or changed" in refused.value.message
    assert "backup" in refused.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", ["runs", "show r-1", "verify", "doctor", "timeline r-1", "events", "state"])
def test_no_command_runs_what_is_planted(path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    plant(path, SLOW_VIEW)
    assert main([*command.split(), "--store", str(path)]) != 0
    said = capsys.readouterr()
    assert "view 'runs'" in said.out + said.err


def test_a_log_with_something_planted_is_left_as_it_is(path: Path, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(path))) as behind:
        behind.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        behind.execute(LIAR).fetchall()
    log = Path(f"{path}-wal")
    before = path.read_bytes(), log.read_bytes()
    with pytest.raises(StoreTampered):
        open_store(f"sqlite:///{path}")
    assert (path.read_bytes(), log.read_bytes()) == before


def test_tables_of_other_programs_and_statistics_are_ignored(path: Path) -> None:
    plant(
        path, "CREATE TABLE theirs (a UNIQUE, b); CREATE INDEX theirs_b ON theirs (b); INSERT INTO theirs VALUES (1, 2)"
    )
    plant(path, "CREATE VIRTUAL TABLE their_words USING fts5 (a); ANALYZE")
    for _ in range(2):
        with closing(Agent("keeper", store=path)) as agent:
            assert agent.state.get("s", "k") == "as it was"
            agent.state.set("s", "k", "as it was")
    assert main(["verify", "--store", str(path)]) == 0


def test_a_trigger_that_is_planted_in_an_open_store_does_not_run(path: Path) -> None:
    with closing(Agent("keeper", store=path)) as agent:
        agent.state.set("s", "other", 1)
        plant(path, LIAR)
        agent.state.set("s", "new", "still mine")
        assert agent.state.get("s", "new") == "still mine"


def test_an_older_store_may_have_the_triggers_of_its_version_and_no_other(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = (*sql.migrations("sqlite"), "CREATE TRIGGER chunks_gone AFTER DELETE ON chunks BEGIN SELECT 2; END")
    old = [tmp_path / "a.db", tmp_path / "b.db"]
    monkeypatch.setattr(sql, "migrations", lambda dialect: second)
    for one in old:
        open_store(f"sqlite:///{one}").close()
    plant(old[1], "DROP TRIGGER chunks_gone; CREATE TRIGGER chunks_gone AFTER DELETE ON chunks BEGIN SELECT 1; END")
    monkeypatch.setattr(sql, "migrations", lambda dialect: (*second, "DROP TRIGGER chunks_gone"))
    open_store(f"sqlite:///{old[0]}").close()
    with closing(apsw.Connection(str(old[0]))) as behind:
        assert behind.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchall() == [(0,)]
    with pytest.raises(StoreTampered, match="trigger 'chunks_gone'"):
        open_store(f"sqlite:///{old[1]}")


def test_a_planted_file_without_a_schema_is_refused_as_well(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    plant(path, "PRAGMA application_id = 0x50445245; CREATE TABLE Runs (a)")
    with pytest.raises(StoreTampered, match="another definition of table 'Runs'"):
        open_store(f"sqlite:///{path}")


OPENERS: dict[str, Callable[[Path], object]] = {
    "a connection": lambda path: connect(str(path), "full", None),
    "an unopened copy": lambda path: copy_unopened(str(path), f"{path}.copy", lambda done, total: None),
    "a backup over it": lambda path: _back_up_over(path),
}


def _back_up_over(path: Path) -> None:
    with closing(open_store(f"sqlite:///{path}.other")) as store:
        store.backup(str(path))


@pytest.mark.parametrize("opener", OPENERS)
def test_every_way_to_open_a_file_refuses_it(path: Path, opener: str) -> None:
    plant(path, LIAR)
    with pytest.raises(StoreTampered):
        OPENERS[opener](path)


def test_every_connection_is_defensive(path: Path) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.read("all_runs")
        store.watch(1)()
        connections = store._connections()  # type: ignore[attr-defined]
        assert len(connections) == 3
        for connection in connections:
            assert [(option, connection.config(option, -1)) for option, _ in SETTINGS] == list(SETTINGS)
            assert connection.pragma("cell_size_check") == 1
        writer = connections[-1]
        for forbidden in ("PRAGMA writable_schema = 1", "INSERT INTO document_words_data VALUES (99, x'')"):
            with pytest.raises(apsw.Error):
                writer.execute(forbidden).fetchall()
                writer.execute("DELETE FROM sqlite_schema WHERE name = 'runs'").fetchall()


def test_another_programs_file_is_still_called_that(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    plant(path, "CREATE TABLE theirs (a)")
    with pytest.raises(StoreUnavailable, match="belongs to another program"):
        open_store(f"sqlite:///{path}")


def test_a_note_that_nobody_wrote_keeps_nobody_out(path: Path) -> None:
    plant(path, "INSERT INTO meta (key, value) VALUES ('scrub x', x'ff00'), ('scrub y', x'81a16101')")
    with closing(Agent("keeper", store=path)) as agent:
        assert agent.state.get("s", "k") == "as it was"
    assert main(["runs", "--store", str(path)]) == 0


# -- files that go on for ever ----------------------------------------------------------------------------------------

PAGE_BYTES = 4096
INTERIOR, CHILDREN, DEPTH = 5, 400, 12


def endless(path: Path, table: str) -> None:
    """Give a table a tree in which every page refers 400 times to the next one: 400 ** 12 rows in 50 KB."""
    with closing(apsw.Connection(str(path))) as behind:
        behind.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        [(root,)] = behind.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchall()
    pages = bytearray(path.read_bytes())
    count = len(pages) // PAGE_BYTES
    leaf = pages[(root - 1) * PAGE_BYTES : root * PAGE_BYTES]
    chain = [root, *range(count + 1, count + DEPTH), count + DEPTH]
    pages += bytes(DEPTH * PAGE_BYTES)
    for page, child in pairwise(chain):
        pages[(page - 1) * PAGE_BYTES : page * PAGE_BYTES] = interior(child)
    pages[(chain[-1] - 1) * PAGE_BYTES :] = leaf
    pages[28:32] = struct.pack(">I", count + DEPTH)
    path.write_bytes(pages)


def interior(child: int) -> bytes:
    page = bytearray(PAGE_BYTES)
    cell = struct.pack(">IB", child, 1)
    start = PAGE_BYTES - CHILDREN * len(cell)
    page[:12] = struct.pack(">BHHHBI", INTERIOR, 0, CHILDREN, start, 0, child)
    page[12 : 12 + 2 * CHILDREN] = b"".join(struct.pack(">H", start + n * len(cell)) for n in range(CHILDREN))
    page[start:] = cell * CHILDREN
    return bytes(page)


@pytest.mark.parametrize("command", ["runs", "doctor"])
def test_lists_by_an_index_do_not_read_a_table_without_end(path: Path, command: str) -> None:
    endless(path, "runs")
    assert main([command, "--store", str(path)]) == 0


@pytest.mark.parametrize("command", ["show r-9", "verify"])
def test_a_file_without_end_ends_in_an_error(path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    endless(path, "runs")
    assert main([*command.split(), "--store", str(path)]) != 0
    said = capsys.readouterr()
    assert "more than a file of this size can hold" in said.out + said.err or "2nd reference to page" in said.out


def test_commands_that_act_as_an_agent_are_bounded_too(path: Path) -> None:
    endless(path, "runs")
    with open_engine("keeper", f"sqlite:///{path}") as engine, pytest.raises(StoreTampered, match="was stopped"):
        engine.store.read("all_runs")


def test_statistics_without_end_do_not_hold_up_opening(path: Path) -> None:
    plant(path, "ANALYZE")
    endless(path, "sqlite_stat1")
    with pytest.raises(StoreTampered, match="more than a file of this size can hold"):
        open_store(f"sqlite:///{path}")


def test_queries_of_an_honest_store_stay_far_below_the_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the steps for each byte is enough, with nothing granted beforehand to speak of."""
    monkeypatch.setattr(work_limits, "READ_STEPS_MIN", 200_000)
    monkeypatch.setattr(work_limits, "READ_STEPS_PER_BYTE", READ_STEPS_PER_BYTE // 5)
    monkeypatch.setattr(work_limits, "READ_ROWS_MIN", 1000)
    path = tmp_path / "perdure.db"
    with closing(Agent("keeper", store=path)) as agent:
        for number in range(100):
            with agent.run(f"r-{number}") as run:
                run.messages.append({"role": "user", "content": f"what is {number}?"})
            agent.memory.remember(f"the number {number} is the one after {number - 1}")
            agent.state.set("s", f"k{number}", number)
    for command in ("runs", "show r-7", "verify", "doctor", "timeline r-7", "state", "memory recall number"):
        assert main([*command.split(), "--store", str(path)]) == 0, command
