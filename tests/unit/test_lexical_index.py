"""The words by which things are found in a SQLite file: one that goes leaves nothing behind in the index."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure.journal.documents import documents_dropped
from perdure.memory.pieces import PUT_WORDS, unindex_statements
from perdure.platform.failpoints import Site
from perdure.store import open_store
from perdure.store.base import Floats, Script, Statement, UnitOfWork


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


NOTES = (1, "state", "notes")


def test_a_word_that_goes_leaves_nothing_behind_in_any_index(path: Path) -> None:
    with closing(open_store(f"sqlite:///{path}")), closing(apsw.Connection(str(path))) as behind:
        tables = "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE %fts5 (%'"
        names = [str(name) for (name,) in behind.execute(tables)]
        assert sorted(names) == ["chunk_words", "document_words"]
        for name in names:
            config = behind.execute(f"SELECT v FROM {name}_config WHERE k = 'secure-delete'").fetchall()
            assert config == [(1,)], name


def test_the_words_of_a_document_that_is_dropped_go_for_good(path: Path) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        said = {"k": "the quetzalcoatl keeps the xylophage", "other": "nothing of importance"}
        for key, words in said.items():
            place = (*NOTES, key)
            store.submit(Do(Statement("put_document", (*place, "", 1, b"", "", b""))))
            store.submit(Do(Statement("put_document_words", (*place, "", words))))
        look = (1, "state", "", "\uffff", "")
        found = [row[:3] for row in store.read("documents_with_words", (*look, "xylophage quetzalcoatl", 9))]
        assert found == [("notes", "k", 1)]
        assert [row[1] for row in store.read("documents_with_words", (*look, "nothing", 9))] == ["other"]
        store.submit(Do(*documents_dropped((*NOTES, "k"))))
        assert "xylophage" not in read_index(path)
        assert "importance" in read_index(path)
        assert store.read("check_file") == [("ok",)]
    assert b"xylophage" not in path.read_bytes()


def read_index(path: Path) -> str:
    with closing(apsw.Connection(str(path))) as behind:
        rows = behind.execute("SELECT block FROM document_words_data").fetchall()
        return b" ".join(bytes(block) for (block,) in rows if isinstance(block, bytes)).decode("latin-1")


class Do(UnitOfWork[None]):
    """Some statements."""

    site = Site.WRITE

    def __init__(self, *statements: Statement) -> None:
        self._statements = statements

    def script(self) -> Script[None]:
        yield self._statements


def test_the_words_of_a_piece_come_and_go_with_it_once(path: Path) -> None:
    piece = Statement("put_chunk", (1, "m-1", 0, "", 0, 2, 0, 0, b"", "zeppelin zeppelin"))
    vector = Statement("put_chunk_vector", (1, "m-1", 0, "e", Floats(b"\0\0\0\0")))
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.submit(Do(piece, PUT_WORDS, vector))
        store.submit(Do(piece, PUT_WORDS, vector))
        with closing(apsw.Connection(str(path))) as behind:
            assert behind.execute("SELECT term, doc, cnt FROM chunk_terms").fetchall() == [("k1xzeppelin", 1, 2)]
        store.submit(Do(*unindex_statements(1, ["m-1"])))
        assert store.read("check_file") == [("ok",)]
        with closing(apsw.Connection(str(path))) as behind:
            for table in ("chunks", "chunk_terms", "chunk_vectors"):
                assert behind.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)], table
