"""A SQLite file gives space back: unasked where that takes a moment, otherwise when somebody asks for it."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure import Agent
from perdure.cli.main import main
from perdure.store.sqlite import vacuum


def test_a_large_file_becomes_smaller_when_somebody_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "perdure.db")
    with closing(apsw.Connection(path)) as old:
        old.execute("PRAGMA auto_vacuum = incremental; PRAGMA journal_mode = wal").fetchall()  # as some were made
    agent = Agent("keeper", store=path)
    agent.checkpoint.create("kept", kept := os.urandom(60_000))
    for _ in range(4):
        agent.checkpoint.create("c", os.urandom(60_000), keep_last=1)
    monkeypatch.setattr(vacuum, "VACUUM_BYTES_MAX", 100_000)
    report = agent.gc()
    assert report.bytes_after == os.path.getsize(path) >= report.bytes_before
    [note] = report.notes
    assert note.startswith("0.2 MB of the file are free and will be reused; `perdure gc --vacuum`")
    report = agent.gc(vacuum=True)
    assert (report.notes, report.bytes_after < report.bytes_before - 150_000) == ((), True)
    with closing(apsw.Connection(path)) as now:
        assert now.pragma("auto_vacuum") == now.pragma("freelist_count") == 0
    assert agent.checkpoint.restore("kept") == kept
    agent.close()
    assert main(["verify", "--store", path]) == 0
