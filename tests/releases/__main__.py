"""Writes the stores of one release: see the package."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw

from tests.postgres.cluster import Cluster
from tests.releases import dump

ROOT = Path(__file__).parents[2]
STORES = ROOT / "tests/fixtures/stores"
SQLITE_BYTES_MAX = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=__doc__)
    parser.add_argument("name", help="the release, as the folder below tests/fixtures/stores is called")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the src folder of the release's tree")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, Cluster() as cluster:
        made, file, server = Path(work) / "made", Path(work) / "perdure.db", cluster.url("release")
        made.mkdir()
        for store, outside in ((str(file), "sqlite.txt"), (server, "postgres.txt")):
            parts = write(given.source.resolve(), store, made / outside, Path(work))
        (made / "parts.txt").write_text(parts, encoding="utf-8")
        compact(file, made / "sqlite.db")
        (made / "postgres.sql").write_text(dump.dumped(server, given.source), encoding="utf-8")
        shutil.copytree(made, STORES / given.name, dirs_exist_ok=True)
    for path in sorted((STORES / given.name).iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def write(source: Path, store: str, outside: Path, home: Path) -> str:
    """Everything, and last a process that is killed in the middle of a run; the nouns that the release has, by line."""
    outside.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(source), "HOME": str(home)}
    program = [sys.executable, str(Path(__file__).with_name("writer.py")), store, str(outside)]
    parts = subprocess.run(program, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    doomed = subprocess.run([*program, "unfinished"], env=environment, check=False)
    assert doomed.returncode == -signal.SIGKILL, f"it ended with {doomed.returncode}"
    return parts


def compact(file: Path, target: Path) -> None:
    """The file with the log of the killed process folded into it."""
    connection = apsw.Connection(str(file))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    shutil.copyfile(file, target)
    assert target.stat().st_size < SQLITE_BYTES_MAX, "a fixture is small"


if __name__ == "__main__":
    main()
