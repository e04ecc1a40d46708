"""The journal, the objects and the disk when somebody or something has changed them behind our back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Agent
from perdure.errors import JournalDamaged, StoreFenced
from perdure.journal import chain, rebuild
from perdure.journal.keys import is_signed_by
from perdure.journal.verify import verify
from perdure.kernel.engine import AddStoreLocation
from perdure.records import EntryKind
from perdure.store import open_store

from .kit import Behind, agent_at


def stop_after(agent: Agent, calls: Sequence[Callable[[Any], object]]) -> None:
    """A run that makes these calls and is interrupted."""
    with contextlib.suppress(KeyboardInterrupt), agent.run("r") as run:
        for call in calls:
            call(run)
        raise KeyboardInterrupt


def three_steps(store_url: str) -> int:
    """A run that has stopped after three steps, its store closed; returns its stream."""
    agent = agent_at(store_url)
    stop_after(agent, [lambda run, n=n: run.step(lambda n: n, n, name="work") for n in range(3)])
    stream = agent.runs.get("r").summary.stream
    agent.close()
    return stream


def resume(store_url: str) -> None:
    agent = agent_at(store_url)
    try:
        with agent.run("r"):
            pass
    finally:
        agent.close()


def set_entry(store: Behind, stream: int, seq: int, change: str, *values: Any) -> None:
    where, which = store.entry(stream, seq)
    store.execute(f"UPDATE journal SET {change} WHERE {where}", (*values, *which))


def read_entry(store: Behind, stream: int, seq: int) -> tuple[Any, ...]:
    where, which = store.entry(stream, seq)
    return store.execute(f"SELECT kind, at, body, chain FROM journal WHERE {where}", which)[0]


def edit_body(store: Behind, stream: int) -> None:
    body = bytearray(read_entry(store, stream, 3)[2])
    body[0] ^= 1  # still readable: nothing but the chain can tell
    set_entry(store, stream, 3, "body = ?", bytes(body))


def remove(store: Behind, stream: int) -> None:
    where, which = store.entry(stream, 3)
    store.execute(f"DELETE FROM journal WHERE {where}", which)


def swap(store: Behind, stream: int) -> None:
    for source, target in ((2, 99), (3, 2), (99, 3)):
        store.move(stream, source, target)


def change_time(store: Behind, stream: int) -> None:
    set_entry(store, stream, 3, "at = at - 1")


def change_kind(store: Behind, stream: int) -> None:
    set_entry(store, stream, 3, "kind = ?", int(EntryKind.WROTE))


def forge(store: Behind, stream: int) -> None:
    """Another body, with a link that fits what is before it: only the entry after it can tell."""
    before = read_entry(store, stream, 2)[3]
    kind, at, body, _ = read_entry(store, stream, 3)
    forged = bytes(16) + body[16:]
    link = chain.link(before, stream, 3, kind, at, chain.body_digest(forged))
    set_entry(store, stream, 3, "body = ?, chain = ?", forged, link)


def test_verify_names_an_edited_entry_and_rebuild_an_edited_row(store_url: str) -> None:
    stream = three_steps(store_url)
    with Behind(store_url) as store:
        store.execute("UPDATE runs SET status = 'finished'")
    with contextlib.closing(open_store(store_url)) as opened:
        assert [(one.view, one.what) for one in rebuild.check(opened)] == [("runs", "differs")]
        rebuild.rebuild(opened)
        assert rebuild.check(opened) == []
        assert verify(opened).ok
    with Behind(store_url) as store:
        set_entry(store, stream, 3, "at = at + 1")
    with contextlib.closing(open_store(store_url)) as opened:
        [found] = [one for one in verify(opened).findings if one.severity == "damage"]
        assert (found.what, found.stream, found.seq, found.run) == ("edited", stream, 3, "r")
        with pytest.raises(JournalDamaged):
            rebuild.rebuild(opened)


@pytest.mark.parametrize("harm", [edit_body, remove, swap, change_time, change_kind, forge])
def test_nothing_is_resumed_from_an_edited_journal(store_url: str, harm: Callable[[Behind, int], None]) -> None:
    stream = three_steps(store_url)
    with Behind(store_url) as store:
        harm(store, stream)
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=rf"entry [234] of stream {stream}"):
            resume(store_url)


def test_an_untouched_journal_is_resumed(store_url: str) -> None:
    three_steps(store_url)
    resume(store_url)
    assert agent_at(store_url).runs.get("r").status == "finished"


@pytest.mark.parametrize("changed", ["before", "stream", "seq", "kind", "at", "digest"])
def test_a_link_covers_the_one_before_its_place_kind_time_and_body(changed: str) -> None:
    entry: dict[str, Any] = {"before": b"a" * 32, "stream": 1, "seq": 2, "kind": 3, "at": 4, "digest": b"d" * 32}
    other = {**entry, changed: b"x" * 32 if changed in ("before", "digest") else 9}
    assert chain.link(**entry) == chain.link(**entry)
    assert chain.link(**entry) != chain.link(**other)


def test_a_stream_begins_differently_in_every_store_and_place() -> None:
    assert len({chain.genesis(store, stream) for store in ("a", "b") for stream in (1, 2)}) == 4


def test_the_end_of_a_run_is_signed_with_the_key_of_the_agent(store_url: str) -> None:
    three_steps(store_url)
    agent = agent_at(store_url)
    store = agent._engine.store
    [(_, public_key, *_)] = [(row[1], row[2]) for row in store.read("all_agents")]
    seals = store.read("all_seals")
    assert [seq for stream, seq, *_ in seals if stream == agent.runs.get("r").summary.stream] == [5]
    for stream, seq, link, streams, signer, signature in seals:
        assert signer == public_key
        message = chain.seal_message(store.identity, stream, seq, link, streams)
        assert is_signed_by(public_key, message, signature)
        assert not is_signed_by(public_key, message + b"x", signature)
        assert not is_signed_by(public_key, message, bytes(64))
        assert store.read("journal_entry", (stream, seq))[0][4] == link


@pytest.mark.parametrize("harm", ["change", "remove"])
def test_a_large_value_that_was_changed_or_removed_is_not_believed(store_url: str, harm: str) -> None:
    agent = agent_at(store_url)
    stop_after(agent, [lambda run, text=text: run.step(lambda: text * 9_000, name=text) for text in "xy"])
    agent.close()
    with Behind(store_url) as store:
        if harm == "remove":
            store.execute("DELETE FROM objects")
        else:
            # Each is a whole value of the right size, but under the id of the other.
            [first, second] = [row[0] for row in store.execute("SELECT data FROM objects")]
            store.execute("UPDATE objects SET data = CASE data WHEN ? THEN ? ELSE ? END", (first, second, first))
    agent = agent_at(store_url)
    with pytest.raises(JournalDamaged, match="changed" if harm == "change" else "missing"), agent.run("r") as run:
        run.step(lambda: "x" * 9_000, name="x")


class FailingFile(apsw.VFSFile):
    """A file on a disk that can stop to keep what it is given."""

    def __init__(self, vfs: FailingVfs, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        if self._vfs.broken:
            raise apsw.IOError("the disk is broken")
        super().xSync(flags)


class FailingVfs(apsw.VFS):
    """Disks with `broken` to set."""

    broken = False

    def __init__(self) -> None:
        super().__init__("failing", "")

    def xOpen(self, name: Any, flags: list[int]) -> FailingFile:
        return FailingFile(self, name, flags)


def test_after_an_io_error_nothing_is_written_before_a_reopen(tmp_path: Path) -> None:
    url, disk = f"sqlite:///{tmp_path / 'p.db'}", FailingVfs()
    store = open_store(url, vfs="failing")
    store.submit(AddStoreLocation(store, "host", "before"))
    disk.broken = True
    with pytest.raises(StoreFenced, match=r"p\.db"):
        store.submit(AddStoreLocation(store, "host", "lost?"))
    disk.broken = False
    with pytest.raises(StoreFenced):
        store.submit(AddStoreLocation(store, "host", "after"))
    assert store.read("last_location")
    store.close()
    store = open_store(url)
    store.submit(AddStoreLocation(store, "host", "again"))
    assert store.read("last_location") == [("host", "again")]
    store.close()
    disk.unregister()
