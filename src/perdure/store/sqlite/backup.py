"""Copies a SQLite file while it is in use."""

from __future__ import annotations

import os
from collections.abc import Callable

import apsw

from perdure.errors import StoreUnavailable
from perdure.store.sqlite.file import connect, prepare_file, retry_busy, translate
from perdure.store.sqlite.fork_safety import disconnect, stay_inside


def copy_unopened(path: str, target: str, progress: Callable[[int, int], None]) -> None:
    """Copy a snapshot of a file of any schema version, and check the structure of the copy."""
    prepare_file(os.path.abspath(target))
    with translate(path), stay_inside():
        source = retry_busy(lambda: connect(path, "full", None))
        try:
            copy = connect(target, "full", None)
            try:
                copy_pages(source, copy, progress)
                copy.execute("PRAGMA journal_mode = DELETE").fetchall()
                found = copy.pragma("quick_check")
            finally:
                disconnect(copy)
        finally:
            disconnect(source)
    if found != "ok":
        raise StoreUnavailable(f"{path} is damaged: {found}", hint="restore it from a backup; nothing was changed")


def leave_wal_mode(path: str) -> None:
    """Mark a copy that was opened as one without a log. Next to the log of another store it is then refused."""
    with translate(path), stay_inside():
        copy = connect(path, "full", None)
        try:
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
        finally:
            disconnect(copy)


def copy_pages(source: apsw.Connection, target: apsw.Connection, progress: Callable[[int, int], None] | None) -> None:
    """Copy a snapshot of a database."""
    # In one read transaction: otherwise every commit of another process restarts the copy.
    source.execute("BEGIN").fetchall()
    try:
        source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        with target.backup("main", source, "main") as copy:
            while not copy.done:
                copy.step(1000)
                if progress is not None:
                    progress(copy.page_count - copy.remaining, copy.page_count)
    finally:
        source.execute("ROLLBACK").fetchall()
