"""What happens in the process that forks, between the hooks of os.fork()."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.store import open_store
from perdure.store.sqlite import file_guard, fork_safety


@contextmanager
def enter_fork() -> Iterator[None]:
    """As if this thread was at os.fork()."""
    fork_safety._before_fork()
    try:
        yield
    finally:
        fork_safety._after_fork_in_parent()


def test_a_fork_waits_for_a_thread_that_guards_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked in between, a child would find a descriptor that is closed already, or is another file by now."""
    begun, go_on, steps = threading.Event(), threading.Event(), []

    def number(path: str) -> None:
        begun.set()
        go_on.wait(10)
        steps.append("guarded")

    monkeypatch.setattr(file_guard, "_number", number)
    guarding = threading.Thread(target=file_guard.guard, args=(str(tmp_path / "perdure.db"),))
    guarding.start()
    assert begun.wait(10)
    threading.Timer(0.1, go_on.set).start()
    with enter_fork():
        steps.append("forked")
    guarding.join()
    assert steps == ["guarded", "forked"]


def test_a_store_that_is_collected_during_a_fork_is_closed_after_it(tmp_path: Path) -> None:
    """First its connections, then its descriptors: closing those drops the locks of the connections."""
    others = set(fork_safety._live)
    store = open_store(f"sqlite:///{tmp_path}/perdure.db")
    connections = set(fork_safety._live) - others
    held = file_guard._guards[file_guard._number(f"{tmp_path}/perdure.db")]
    with enter_fork():
        del store
        gc.collect()
        assert connections <= fork_safety._live
        assert held.files
    assert not connections & fork_safety._live
    assert not held.files
