"""Whatever is done to a store behind Perdure's back, `verify` finds it and says where."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Agent, InDoubt
from perdure.errors import PerdureError
from perdure.journal import chain
from perdure.journal.keys import SigningKey
from perdure.journal.verify import verify
from perdure.journal.verify_report import FindingKind, Severity, VerifyReport
from perdure.store.base import Store
from tests.conformance.rich_store import behind, copy_to, open_copy
from tests.unit import child

COLUMNS = {
    "journal": ("kind", "at", "body", "chain", "digest"),
    "seals": ("stream", "seq", "chain", "streams", "public_key", "signature"),
    "objects": ("id", "size", "data"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(open_copy(path)) as store:
        yield store


@pytest.fixture
def raw(path: Path) -> Iterator[apsw.Connection]:
    with closing(behind(path)) as connection:
        yield connection


def damage(report: VerifyReport) -> list[tuple[FindingKind, int, int]]:
    return [
        (finding.what, finding.stream, finding.seq)
        for finding in report.findings
        if finding.severity == Severity.DAMAGE
    ]


def places(report: VerifyReport) -> set[tuple[int, int]]:
    return {(stream, seq) for _, stream, seq in damage(report)}


def list_edited(report: VerifyReport) -> set[tuple[int, int]]:
    return {(stream, seq) for what, stream, seq in damage(report) if what == FindingKind.EDITED}


def place_of(number: int) -> tuple[int, int]:
    return number >> 32, number & 0xFFFFFFFF


def list_entries(raw: apsw.Connection) -> list[tuple[int, int]]:
    return [place_of(number) for (number,) in raw.execute("SELECT id FROM journal ORDER BY id")]


def read_last_seals(raw: apsw.Connection) -> dict[int, int]:
    return dict(raw.execute("SELECT stream, max(seq) FROM seals GROUP BY stream").fetchall())


def flip_bit(value: Any, chance: random.Random) -> Any:
    """The same with one bit changed; something where nothing was."""
    if value is None:
        return b"x" * 32
    if isinstance(value, int):
        return value ^ 1024  # far enough to meet no other row
    data = bytearray(value)
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def test_a_store_that_nobody_touched_is_in_order(store: Store, raw: apsw.Connection) -> None:
    report = verify(store)
    assert report.ok
    assert report.findings == ()
    assert report.entries == len(list_entries(raw)) > 40
    assert report.objects == len(raw.execute("SELECT 1 FROM objects").fetchall()) > 5
    assert (report.streams, report.erased, report.left_off) == (13, 1, 0)
    assert report.seals == len(raw.execute("SELECT 1 FROM seals").fetchall())
    assert report.unsealed == 0  # an answer is signed too, in the stream of the process that gave it


def test_an_answer_is_signed_at_once(tmp_path: Path) -> None:
    """And not when the process ends in order, which it may not."""
    agent = Agent("travel", store=tmp_path / "perdure.db")

    @agent.effect
    def book() -> None:
        raise TimeoutError

    with pytest.raises(InDoubt), agent.run("trip"):
        book()
    agent.runs.answer("trip", done="AB12")
    assert verify(agent._engine.store).unsealed == 0
    agent.state.set("trip", "page", 1)
    assert verify(agent._engine.store).unsealed == 1, "what is written in the open is signed later"
    agent.close()
    with closing(open_copy(tmp_path / "perdure.db")) as store:
        assert verify(store).unsealed == 0


@pytest.mark.parametrize(("table", "column"), [(t, c) for t, columns in COLUMNS.items() for c in columns])
def test_a_changed_bit_in_any_row_is_found(store: Store, raw: apsw.Connection, table: str, column: str) -> None:
    chance = random.Random(f"{table}.{column}")
    rows = raw.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
    for rowid, value in rows:
        raw.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (flip_bit(value, chance), rowid))
        report = verify(store)
        assert not report.ok, (table, column, rowid)
        if table == "journal":
            assert damage(report)[0] == (FindingKind.EDITED, *place_of(rowid))
            assert list_edited(report) == {place_of(rowid)}  # and its neighbours are not accused
        raw.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, rowid))
    assert verify(store).ok


def test_a_changed_object_is_located_by_the_entries_that_refer_to_it(store: Store, raw: apsw.Connection) -> None:
    raw.execute("UPDATE objects SET data = CAST(data || x'00' AS BLOB)")
    found = places(verify(store))
    assert {(2, 2), (2, 8), (2, 14), (3, 2), (5, 2)} <= found  # steps, a state, a result
    raw.execute("DELETE FROM objects")
    # Below a node that has been changed nobody knows any more what is whose: those are told apart.
    assert places(verify(store)) == found - {(0, 0)}


def test_a_removed_entry_is_located(store: Store, raw: apsw.Connection) -> None:
    sealed = read_last_seals(raw)
    unprotected = []
    for stream, seq in list_entries(raw):
        number = (stream << 32) | seq
        row = raw.execute("SELECT * FROM journal WHERE id = ?", (number,)).fetchall()[0]
        raw.execute("DELETE FROM journal WHERE id = ?", (number,))
        report = verify(store)
        if seq <= sealed.get(stream, 0):
            assert damage(report)[0][1:] == (stream, seq)
        else:
            assert report.ok
            unprotected.append((stream, seq))
        raw.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)", row)
    assert unprotected == []  # answers are signed too: nothing of this store could be cut off


def test_swapped_entries_are_located(store: Store, raw: apsw.Connection) -> None:
    entries = list_entries(raw)
    neighbours = [(a, b) for a, b in pairwise(entries) if a[0] == b[0]]
    assert len(neighbours) > 30
    for (stream, seq), _ in neighbours:
        number = (stream << 32) | seq
        swap(raw, number, number + 1)
        report = verify(store)
        assert damage(report)[0] == (FindingKind.EDITED, stream, seq)
        assert list_edited(report) == {(stream, seq), (stream, seq + 1)}
        swap(raw, number, number + 1)
    assert verify(store).ok


def swap(raw: apsw.Connection, a: int, b: int) -> None:
    for old, new in ((a, -1), (b, a), (-1, b)):
        raw.execute("UPDATE journal SET id = ? WHERE id = ?", (new, old))


def test_a_stream_cut_off_below_its_seal_is_truncated(store: Store, raw: apsw.Connection) -> None:
    raw.execute("DELETE FROM journal WHERE id > (2 << 32 | 5) AND id < (3 << 32)")
    assert damage(verify(store)) == [(FindingKind.TRUNCATED, 2, 6)]


@pytest.mark.parametrize("stream", range(1, 14))
def test_a_removed_stream_is_missed(store: Store, raw: apsw.Connection, stream: int) -> None:
    raw.execute("DELETE FROM journal WHERE id >> 32 = ?", (stream,))
    raw.execute("DELETE FROM seals WHERE stream = ?", (stream,))
    raw.execute("DELETE FROM streams WHERE id = ?", (stream,))
    assert (FindingKind.STREAM, stream, 0) in damage(verify(store))


def test_entries_and_seals_of_no_stream_are_found(store: Store, raw: apsw.Connection) -> None:
    raw.execute("INSERT INTO journal SELECT 99 << 32 | 1, kind, at, body, chain, digest FROM journal LIMIT 1")
    raw.execute("INSERT INTO journal SELECT 2 << 32, kind, at, body, chain, digest FROM journal LIMIT 1")
    raw.execute("INSERT INTO seals SELECT 98, seq, chain, streams, public_key, signature FROM seals LIMIT 1")
    assert {(FindingKind.ADDED, 99, 0), (FindingKind.ADDED, 2, 0), (FindingKind.SEAL, 98, 0)} <= set(
        damage(verify(store))
    )


def test_an_entry_after_the_end_of_a_run_is_found(store: Store, raw: apsw.Connection) -> None:
    add_entry(store, raw, 2)
    assert (FindingKind.ADDED, 2, 15) in damage(verify(store))


def add_entry(store: Store, raw: apsw.Connection, stream: int) -> None:
    """One more entry that fits the chain: anybody can compute a chain."""
    [(seq, link)] = store.read("head_of", (stream,))
    [(kind, at, body)] = raw.execute("SELECT kind, at, body FROM journal WHERE id = (2 << 32 | 7)").fetchall()
    new = chain.link(link, stream, seq + 1, kind, at, chain.body_digest(body))
    raw.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, NULL)", (stream << 32 | seq + 1, kind, at, body, new))


def rewrite(store: Store, raw: apsw.Connection, stream: int, first: int) -> bytes:
    """Change an entry and chain everything after it anew, as somebody without the key can; returns the new head."""
    link = chain.genesis(store.identity, stream)
    for seq, kind, at, body, _, _ in store.read("journal_of", (stream, 0)):
        if seq == first:
            at += 1
        link = chain.link(link, stream, seq, kind, at, chain.body_digest(body))
        raw.execute("UPDATE journal SET at = ?, chain = ? WHERE id = ?", (at, link, stream << 32 | seq))
    return link


def test_a_rewritten_stream_does_not_fit_its_seal(store: Store, raw: apsw.Connection) -> None:
    rewrite(store, raw, 2, 4)
    assert damage(verify(store)) == [(FindingKind.REWRITTEN, 2, 14)]


def test_a_seal_by_another_key_is_none(store: Store, raw: apsw.Connection) -> None:
    link, forger = rewrite(store, raw, 2, 4), SigningKey(b"f" * 32)
    signature = forger.sign(chain.seal_message(store.identity, 2, 14, link, 9))
    raw.execute(
        "UPDATE seals SET chain = ?, streams = 9, public_key = ?, signature = ? WHERE stream = 2",
        (link, forger.public_key, signature),
    )
    assert damage(verify(store)) == [(FindingKind.SEAL, 2, 14)]


def test_without_its_seals_a_run_is_unsigned_and_its_agent_damaged(store: Store, raw: apsw.Connection) -> None:
    raw.execute("DELETE FROM seals WHERE stream = 2")
    report = verify(store)
    assert report.ok
    [finding] = report.findings
    assert (finding.what, finding.severity, finding.run) == (FindingKind.UNSIGNED, Severity.UNSIGNED, "finished")
    raw.execute("DELETE FROM seals WHERE stream = 1")
    assert damage(verify(store)) == [(FindingKind.SEAL, 1, 1)]


def test_what_ran_without_the_key_is_unsigned(tmp_path: Path) -> None:
    url = tmp_path / "perdure.db"
    for run_id in ("signed", "unsigned"):
        agent = Agent("travel", store=url)
        with agent.run(run_id):
            pass
        agent.close()
        for key in Path(f"{url}.keys").glob("*.key"):
            key.unlink()
    with closing(open_copy(url)) as store:
        report = verify(store)
    assert report.ok
    assert [(finding.what, finding.run) for finding in report.findings] == [(FindingKind.UNSIGNED, "unsigned")]


def test_an_erased_payload_is_no_damage(store: Store, raw: apsw.Connection) -> None:
    rows = raw.execute("SELECT id, body FROM journal WHERE id & 4294967295 = 2").fetchall()
    for number, body in rows:
        digest = sha256(body).digest()
        raw.execute("UPDATE journal SET body = NULL, digest = ? WHERE id = ?", (digest, number))
    report = verify(store)
    assert report.ok
    assert report.erased == len(rows) + 1 > 5
    raw.execute("UPDATE journal SET digest = x'00' WHERE id = ?", (rows[0][0],))
    assert damage(verify(store)) == [(FindingKind.EDITED, *place_of(rows[0][0]))]


def test_the_list_of_streams_says_what_their_first_entries_say(store: Store, raw: apsw.Connection) -> None:
    raw.execute("UPDATE streams SET name = 'travel/another' WHERE id = 4")
    raw.execute("UPDATE streams SET kind = 'process' WHERE id = 5")
    assert damage(verify(store)) == [(FindingKind.STREAM, 4, 1), (FindingKind.STREAM, 5, 1)]


def test_a_hidden_index_entry_is_found(path: Path, raw: apsw.Connection) -> None:
    raw.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    [(root,)] = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_seals_1'").fetchall()
    raw.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096 + 3)
        file.write(b"\x00\x00")  # the index is empty now, and the seals cannot be found through it
    with closing(open_copy(path)) as store:
        assert FindingKind.FILE in {what for what, _, _ in damage(verify(store))}


def test_progress_is_told_and_an_interrupt_ends_it(store: Store) -> None:
    told: list[tuple[int, int, int]] = []
    verify(store, lambda *numbers: told.append(numbers))
    assert [done for done, _, _ in told] == list(range(1, 14))
    assert {total for _, total, _ in told} == {13}

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(store, interrupt)


def test_memory_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    agent = Agent("long", store=tmp_path / "perdure.db", durability="process")
    with agent.run("long") as run:
        for item in range(40):
            with_many = run.each(range(40), name=f"loop {item}")
            for number in with_many:
                run.state[f"{number}"] = "x" * 2000
    agent.close()
    with closing(open_copy(tmp_path / "perdure.db")) as store:
        tracemalloc.start()
        report = verify(store)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert report.ok
    assert report.entries > 1600  # more than 3 MB
    assert peak < 1_500_000


def test_an_agent_at_work_is_no_damage(path: Path, store: Store) -> None:
    with child.run_busy_agent(path):
        reports = [verify(store)]
        while len(reports) < 5 or reports[-1].streams < reports[0].streams + 50:
            reports.append(verify(store))
    assert {report.findings for report in reports} == {()}


FLIPS = 2000
CONTENT = (
    "SELECT id, kind, at, body, chain, digest FROM journal",
    "SELECT stream, seq, chain, streams, public_key, signature FROM seals",
    "SELECT id, size, data FROM objects",
    "SELECT id, kind, name FROM streams",
    "SELECT value FROM meta WHERE key = 'identity'",
)


def content(path: Path) -> object:
    """All that verify covers, or why it cannot be read."""
    with closing(behind(path)) as raw:
        try:
            return [sorted(raw.execute(query).fetchall(), key=repr) for query in CONTENT]
        except (apsw.Error, UnicodeDecodeError) as error:
            return repr(error)


def small_store(path: Path) -> None:
    """Few rows on small pages: little room that belongs to nothing, where a flip would prove nothing."""
    agent = Agent("travel", store=path)
    with agent.run("trip", input={"to": "NYC"}) as run:
        run.state["large"] = random.Random(5).randbytes(5000)
        run.step(str.upper, "text", name="upper")
        run.effect(str.lower, "TEXT", name="lower")
    agent.close()
    with closing(behind(path)) as raw:
        raw.pragma("journal_mode", "delete")
        raw.pragma("page_size", 512)
        raw.execute("VACUUM").fetchall()
        raw.pragma("journal_mode", "wal")


def test_bit_flips_in_the_file_are_found_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    small_store(path)
    data, intact, chance = path.read_bytes(), content(path), random.Random(20_26)
    found = refused = harmless = 0
    for _ in range(FLIPS):
        place = chance.randrange(len(data) * 8)
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.unlink()  # a new file each time, in which nobody has a lock
        path.write_bytes(flipped)
        try:
            with closing(open_copy(path)) as store:
                ok = verify(store).ok
        except PerdureError:
            refused += 1
            continue
        if ok:
            harmless += 1
            assert content(path) == intact, f"bit {place} changed something, and verify did not see it"
        else:
            found += 1
    assert found > FLIPS * 0.08
    assert refused > 5
    assert harmless > 5


def test_a_tree_that_goes_round_in_circles_does_not_hang(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flipped bit in an inner page can make SQLite give the same rows for ever: found by the flips above."""
    read = store.read

    def circle(name: str, args: tuple[Any, ...] = ()) -> Any:
        rows = read(name, args if name != "journal_page" else (args[0], 0, args[2]))
        return rows[::-1] if name == "object_ids" else rows

    monkeypatch.setattr(store, "read", circle)
    found = [what for what, _, _ in damage(verify(store))]
    assert found.count(FindingKind.UNREADABLE) == 14  # thirteen streams, and the objects
