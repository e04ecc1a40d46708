"""Copying a SQLite file while others use it."""

from __future__ import annotations

import os
from collections.abc import Callable

import apsw

from ..errors import StoreUnavailable
from .forking import disconnect, inside
from .sqlite_file import connect, patiently, prepare_file, translate


def copy_unopened(path: str, target: str, progress: Callable[[int, int], None]) -> None:
    """Copy a file whose schema may be another than ours, as of one moment, and look at the copy's structure."""
    prepare_file(os.path.abspath(target))
    with translate(path), inside():
        source = patiently(lambda: connect(path, "full", None))
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


def copy_pages(source: apsw.Connection, target: apsw.Connection, progress: Callable[[int, int], None] | None) -> None:
    """Copy a database as of one moment."""
    # One read transaction for all of it: otherwise every commit of another process makes the copy begin anew.
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
