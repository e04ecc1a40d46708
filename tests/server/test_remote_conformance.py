"""The conformance suite on a remote store: a fixed sample in `make test`, all of it in soak."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import Server

SUITE = Path(__file__).parents[1] / "conformance"
SAMPLE = ("test_commits.py", "test_leases.py", "test_state_transactions.py")
"""Commits and their proofs, leases and takeover, decisions inside a transaction."""


@pytest.fixture
def open_server(store_url: str, tmp_path: Path) -> Iterator[Server]:
    """A server without keys, whose clients name their tenant."""
    running = Server(store_url, tmp_path, "--no-auth").start()
    yield running
    running.kill()


def certify(server: Server, *files: Path) -> subprocess.CompletedProcess[str]:
    """Run tests of the suite in a process of their own, each on a tenant of its own."""
    url = f"{server.origin}?tenant={{new}}"
    options = ("-q", "-p", "no:cacheprovider", "-m", "not soak", "--perdure-store", url)
    command = [sys.executable, "-m", "pytest", *map(str, files), *options]
    env = {**os.environ, "PERDURE_TEST_STORES": "", "BEHIND_REMOTE_STORE": server.store}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=SUITE.parents[1])


@pytest.mark.stores("sqlite")
def test_a_sample_of_the_suite_passes(open_server: Server) -> None:
    done = certify(open_server, *(SUITE / name for name in SAMPLE))
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.stores("postgres")
def test_a_contradiction_is_told_by_a_server_on_postgresql(store_url: str, tmp_path: Path) -> None:
    """The server repeats a unit whose rows contradict each other, and the client must not do so as often again."""
    running = Server(f"{store_url}&reconnect_seconds=1", tmp_path, "--no-auth").start()
    try:
        test = "test_what_only_the_store_finds_out_is_told_and_leaves_nothing"
        done = certify(running, Path(f"{SUITE / 'test_transfer_failures.py'}::{test}"))
    finally:
        running.kill()
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_the_whole_suite_passes(open_server: Server) -> None:
    done = certify(open_server, SUITE)
    assert done.returncode == 0, done.stdout[-4000:]
