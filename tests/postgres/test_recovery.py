"""A server restored from a base backup and its archived log: all of it, or up to an earlier moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure import Agent
from perdure.journal.verify import verify
from perdure.store import open_store
from tests.conformance.kit import wait_until
from tests.postgres import install
from tests.postgres.cluster import Cluster

# Relative to the data folder, which is where the server runs it.
ARCHIVING = {"archive_mode": "on", "archive_command": "cp %p ../archive/%f"}

Letters = list[tuple[str, str]]


def work(url: str, letters: Letters, between: Callable[[], object] = lambda: None) -> None:
    """Two letters, sent once each, and something that happens between them."""
    agent = Agent("clerk", store=url)
    try:
        with agent.run("letters") as run:
            for text in ("first", "second"):
                run.effect(lambda text, *, key: letters.append((text, key)), text, name="send")
                if text == "first":
                    between()
    finally:
        agent.close()


@pytest.fixture
def original() -> Iterator[Cluster]:
    with Cluster(ARCHIVING) as cluster:
        (cluster.folder / "archive").mkdir()
        install.give_to_servant(cluster.folder / "archive")
        yield cluster


def copy_cluster(original: Cluster, **target: str) -> Cluster:
    """A server that will start from a base backup of now, and go on by the archive."""
    archive = original.folder / "archive"
    copy = Cluster({"restore_command": f"cp {archive}/%f %p", "recovery_target_action": "promote", **target})
    source = f"host={original.folder} port={original.port} user=postgres"
    install.call(
        copy.version, "pg_basebackup", "-D", str(copy.data), "-d", source, "-X", "stream", "-c", "fast", "--no-sync"
    )
    signal = copy.data / "recovery.signal"
    signal.touch()
    install.give_to_servant(signal)
    return copy


def recover(original: Cluster, copy: Cluster) -> None:
    """The original is gone; what it had written is in the archive."""
    [(last,)] = original.execute("SELECT pg_walfile_name(pg_switch_wal())")
    wait_until(lambda: (Path(original.folder) / "archive" / last).exists())
    original.kill()
    copy.start()
    wait_until(lambda: copy.execute("SELECT NOT pg_is_in_recovery()")[0][0])


def test_restored_to_the_end_nothing_is_lost_and_nothing_happens_again(original: Cluster, schema: str) -> None:
    letters: Letters = []
    copies: list[Cluster] = []
    work(original.url(schema), letters, lambda: copies.append(copy_cluster(original)))
    [copy] = copies
    try:
        recover(original, copy)
        work(copy.url(schema), letters)
        assert [text for text, _ in letters] == ["first", "second"]
        store = open_store(copy.url(schema))
        assert verify(store).ok
        store.close()
    finally:
        copy.close()


def test_restored_to_an_earlier_moment_what_came_later_happens_again(original: Cluster, schema: str) -> None:
    """Nobody can be in doubt about what is not in the journal. docs/operations/postgres.md says what to do."""
    letters: Letters = []
    copy = copy_cluster(original, recovery_target_name="moment")
    try:
        work(original.url(schema), letters, lambda: original.execute("SELECT pg_create_restore_point('moment')"))
        recover(original, copy)
        work(copy.url(schema), letters)
        assert [text for text, _ in letters] == ["first", "second", "second"]
        assert letters[1][1] != letters[2][1]
    finally:
        copy.close()
