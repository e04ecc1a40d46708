"""The check of a store's files after a commit: what the folder's time and the open database reveal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.store.sqlite.file_guard import GuardState, OpenStoreFiles

LONG_AGO_NS = 10**18


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("s.db", "s.db-wal", "s.db-shm"):
        (folder / name).write_bytes(b"before")
    return folder / "s.db"


@pytest.fixture
def files(path: Path) -> Iterator[OpenStoreFiles]:
    """Files that were checked long after the last change of their folder, so that only its time is looked at."""
    descriptor = os.open(path, os.O_RDONLY)
    os.utime(path.parent, ns=(LONG_AGO_NS, LONG_AGO_NS))
    found = OpenStoreFiles(str(path), descriptor)
    assert found.check_files() is GuardState.SAME
    yield found
    os.close(descriptor)


def _replace(path: Path) -> None:
    (path.parent / "other").write_bytes(b"after")
    os.replace(path.parent / "other", path)


def _exchange_folder(path: Path) -> None:
    """Move the folder away and put a copy with the same times in its place."""
    away = path.parent.with_name("away")
    path.parent.rename(away)
    shutil.copytree(away, path.parent)
    os.utime(path.parent, ns=(LONG_AGO_NS, LONG_AGO_NS))


GONE: dict[str, Callable[[Path], object]] = {
    "database removed": Path.unlink,
    "database replaced": _replace,
    "database renamed": lambda path: path.rename(path.with_name("old.db")),
    "log removed": lambda path: Path(f"{path}-wal").unlink(),
    "log replaced": lambda path: _replace(Path(f"{path}-wal")),
    "index removed": lambda path: Path(f"{path}-shm").unlink(),
    "index replaced": lambda path: _replace(Path(f"{path}-shm")),
    "folder moved": lambda path: path.parent.rename(path.parent.with_name("away")),
    "folder exchanged": _exchange_folder,
}


@pytest.mark.parametrize("hurt", GONE)
def test_files_that_are_gone_are_noticed(files: OpenStoreFiles, path: Path, hurt: str) -> None:
    GONE[hurt](path)
    assert files.check_files() is GuardState.GONE


def test_a_copy_over_the_database_is_noticed_once(files: OpenStoreFiles, path: Path) -> None:
    path.write_bytes(b"a copy")
    assert files.check_files() is GuardState.WRITTEN
    assert files.check_files() is GuardState.SAME


def test_other_files_may_come_and_go(files: OpenStoreFiles, path: Path) -> None:
    path.with_name("notes.txt").write_text("not ours", "utf-8")
    assert files.check_files() is GuardState.SAME
    Path(f"{path}-wal").unlink()
    assert files.check_files() is GuardState.GONE


def test_without_a_descriptor_the_path_is_asked(path: Path) -> None:
    found = OpenStoreFiles(str(path), None)
    assert found.check_files() is GuardState.SAME
    path.write_bytes(b"a copy")
    assert found.check_files() is GuardState.WRITTEN
