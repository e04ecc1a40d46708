"""Nothing of what was erased is left in a SQLite file: what cannot be seen to at once is told, and made good later."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure import Agent
from perdure.cli.main import main
from perdure.store.sqlite import scrub, vacuum
from perdure.store.sqlite.file import OVERWRITES
from perdure.store.sqlite.scrub import OWED, is_in_file
from perdure.store.sqlite.store import SqliteStore

SECRET = "Quetzalcoatl keeps a xylophage under number 4711-0815"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


@pytest.fixture
def agent(path: Path) -> Iterator[Agent]:
    with closing(Agent("keeper", store=path)) as agent:
        yield agent


def leave_behind(path: Path, text: str | bytes) -> None:
    """Let a text stand in the gap of a page, as one does that an older version has moved; no page is empty."""
    with closing(apsw.Connection(str(path))) as old:
        old.execute("CREATE TABLE junk (a); INSERT INTO junk VALUES ('stays')").fetchall()
        old.execute("INSERT INTO junk VALUES (?)", (text,)).fetchall()
        old.execute("DELETE FROM junk WHERE a <> 'stays'; PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert old.pragma("freelist_count") == 0


def bytes_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*") if file.is_file())


def read_owed_scrubs(agent: Agent) -> list[object]:
    return [value for _, value in agent._engine.store.read("meta_with_prefix", (OWED,))]


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (scrub, vacuum):
        monkeypatch.setattr(module, "VACUUM_BYTES_MAX", 1000)


def test_what_lies_in_a_gap_is_found_and_erased(agent: Agent, path: Path) -> None:
    kept = agent.memory.remember(SECRET)
    leave_behind(path, SECRET)
    assert agent.memory.forget(kept).notes == ()
    assert SECRET.encode() not in bytes_of(path)
    assert read_owed_scrubs(agent) == []


def embed_flat(texts: Sequence[str]) -> list[list[float]]:
    return [[0.1, 0.5, 0.7] for _ in texts]


@pytest.mark.parametrize("which", ["words", "vector", "value"])
def test_words_vectors_and_large_values_are_looked_for_too(path: Path, which: str) -> None:
    with closing(Agent("keeper", store=path, embedder=embed_flat)) as agent:
        kept = agent.memory.remember(SECRET, meta={"large": os.urandom(5000)})
        read = agent._engine.store.read
        stored: dict[str, str | bytes] = {
            "words": read("chunks_of", (agent._engine.stream, 0, 9))[0][-1],
            "vector": read("vectors_page", (0, 9))[0][-1],
            "value": read("get_object", read("object_ids", (b"", 9))[0])[0][1][:600],
        }
        leave_behind(path, stored[which])
        agent.memory.forget(kept)
        left = stored[which]
        assert (left.encode() if isinstance(left, str) else left)[:300] not in bytes_of(path)


def test_a_file_that_is_too_large_is_told_and_written_anew_when_somebody_asks(
    agent: Agent, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = agent.memory.remember(SECRET)
    leave_behind(path, SECRET)
    small(monkeypatch)
    [note] = agent.memory.forget(kept).notes
    assert "`perdure gc --vacuum`" in note
    [note] = agent.gc().notes
    assert "`perdure gc --vacuum`" in note
    assert SECRET.encode() in bytes_of(path)
    agent.close()
    assert main(["doctor", "--store", str(path)]) == 0
    assert "perdure gc --vacuum" in capsys.readouterr().out
    again = Agent("keeper", store=path)
    assert len(read_owed_scrubs(again)) == 1, "whoever opens it leaves it alone"
    assert again.gc(vacuum=True).notes == ()
    assert SECRET.encode() not in bytes_of(path)
    assert read_owed_scrubs(again) == []
    again.close()
    assert main(["verify", "--store", str(path)]) == 0


def test_while_somebody_reads_the_log_stays_and_is_emptied_later(
    agent: Agent, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "LOG_MILLISECONDS", 1)
    kept = agent.memory.remember(SECRET)
    with closing(apsw.Connection(str(path))) as reader:
        reader.execute("BEGIN; SELECT count(*) FROM memories").fetchall()
        [note] = agent.memory.forget(kept).notes
        assert "a process is reading" in note
        assert SECRET.encode() in bytes_of(path)
    agent.close()
    with closing(Agent("keeper", store=path)) as again:
        assert again.memory.list() == []  # which opens it
        assert SECRET.encode() not in bytes_of(path)
        assert read_owed_scrubs(again) == []


def test_opening_a_file_does_not_wait_for_leftovers_of_others(
    agent: Agent, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.store.sqlite import store as sqlite
    from perdure.store.sqlite.turnstile import Turnstile

    agent.memory.remember("Something else")
    agent._engine.store.submit(scrub.SettleScrub([OWED + "x"], scrub.LATER))
    agent.close()
    monkeypatch.setattr(sqlite, "MAKE_GOOD_SECONDS", 0.01)
    stopped = Turnstile(f"{path}.lock")
    assert stopped.enter(1)
    with closing(Agent("keeper", store=path)) as again:
        assert len(again.memory.list()) == len(read_owed_scrubs(again)) == 1
    stopped.leave()
    stopped.close()
    with closing(Agent("keeper", store=path)) as again:
        assert (len(again.memory.list()), read_owed_scrubs(again)) == (1, [])


def test_the_bytes_of_a_file_are_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "FILE_PIECE_BYTES", 100)
    path = tmp_path / "any"
    path.write_bytes(b"." * 95 + b"across the edge" + bytes(500) + b"the end")
    assert all(is_in_file(str(path), [text]) for text in (b"across the edge", b"the end"))
    assert not is_in_file(str(path), [b"elsewhere", b""])
    assert not is_in_file(str(path), [])


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="nobody tells which locks there are")
def test_looking_at_the_bytes_of_a_file_drops_no_lock(agent: Agent, path: Path) -> None:
    """Closing a descriptor drops all locks of a process on a file: others would take it for one that nobody uses."""
    kept = agent.memory.remember(SECRET)
    before = locks_on(path)
    agent.memory.forget(kept)
    assert before
    assert locks_on(path) == before


def locks_on(path: Path) -> list[list[str]]:
    inode = f":{path.stat().st_ino}"
    lines = [line.split()[1:] for line in Path("/proc/locks").read_text().splitlines()]
    return [line for line in lines if len(line) > 4 and line[4].endswith(inode)]


def test_what_is_deleted_is_overwritten_at_any_time(agent: Agent) -> None:
    agent.memory.remember("Something")
    store = agent._engine.store
    assert isinstance(store, SqliteStore)
    assert store._writer.pragma("secure_delete") == OVERWRITES
    agent.memory.forget(agent.memory.remember(SECRET))
    assert store._writer.pragma("secure_delete") == 1, "also in whole pages"
