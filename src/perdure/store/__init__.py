"""Stores: where everything lives, opened by a URL."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import NotDurableWarning, StoreUnavailable
from ..failpoints import arm_from_environment
from .address import DATABASE_NAME, FOLDER_NAME, default_folder, file_of, is_embedded, locate, sqlite_path
from .base import Store
from .postgres_url import is_postgres, without_password

if TYPE_CHECKING:
    from .versions import Versions

__all__ = [
    "DATABASE_NAME",
    "FOLDER_NAME",
    "Store",
    "file_of",
    "is_embedded",
    "is_postgres",
    "locate",
    "open_store",
    "sqlite_path",
    "versions_of",
    "without_password",
]


def open_store(
    url: str,
    *,
    durability: str = "full",
    clock: Clock = SYSTEM_CLOCK,
    vfs: str | None = None,
    create: bool = True,
    wary: bool = False,
) -> Store:
    """Open a store. One that is not there is created; without `create`, that is an error on a server.

    A `wary` reader of a file stops queries that take more work than a file of that size can need.
    """
    if durability not in ("full", "process"):
        raise ValueError(f'durability={durability!r}: choose "full" or "process"')
    arm_from_environment()
    if is_postgres(url):
        store: Store = _server().PostgresStore(url, clock=clock, durability=durability, create=create)
        return store
    if (theirs := _opener_of(url)) is not None:
        return theirs(url, clock=clock, durability=durability)
    path = sqlite_path(url)
    from .sqlite import SqliteStore
    from .sqlite_file import prepare_file
    from .sqlite_reading import reading_of
    from .sqlite_watch import refuse_lost_database

    reading = None
    if path == ":memory:":
        _warn_about_memory()
    elif (reading := reading_of(path)) is None:
        refuse_lost_database(path)
        prepare_file(path, own_folder=os.path.dirname(path) == default_folder())
    return SqliteStore(path, clock=clock, durability=durability, vfs=vfs, wary=wary, reading=reading)


def versions_of(url: str) -> Versions:
    """How the schema of a store that is there compares with this program. The store is left as it is."""
    if is_postgres(url):
        versions: Versions = _server().versions_of(url)
        return versions
    from .sqlite_file import schema_of
    from .versions import compared

    found = schema_of(sqlite_path(url))
    return compared("sqlite", found, found)


def _opener_of(url: str) -> Callable[..., Store] | None:
    """What another package has registered for a scheme; see `perdure.testing`."""
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        return None
    from importlib.metadata import entry_points

    for point in entry_points(group="perdure.stores", name=scheme):
        opener: Callable[..., Store] = point.load()
        return opener
    return None


def _server() -> ModuleType:
    try:
        from . import postgres
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise StoreUnavailable(
            "postgresql:// needs the package psycopg", hint='pip install "perdure[postgres]"'
        ) from error
    return postgres


def _warn_about_memory() -> None:
    if "pytest" not in sys.modules and "unittest" not in sys.modules:
        warnings.warn("sqlite://:memory: forgets everything when the process ends", NotDurableWarning, stacklevel=4)
