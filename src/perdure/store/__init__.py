"""Stores: where everything lives, opened by a URL."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from perdure.errors import NotDurableWarning, StoreUnavailable, WrongValue
from perdure.platform.failpoints import arm_from_environment
from perdure.store.address import DATABASE_NAME, FOLDER_NAME, default_folder, file_of, is_embedded, locate, sqlite_path
from perdure.store.base import Store
from perdure.store.postgres.url import hide_password, is_postgres
from perdure.store.remote.address import find_key, is_remote
from perdure.values.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from perdure.store.schema_version import StoreVersions

__all__ = [
    "DATABASE_NAME",
    "FOLDER_NAME",
    "Store",
    "file_of",
    "find_key",
    "is_embedded",
    "is_postgres",
    "is_remote",
    "locate",
    "open_store",
    "sqlite_path",
    "versions_of",
    "hide_password",
]


def open_store(
    url: str,
    *,
    durability: str = "full",
    clock: Clock = SYSTEM_CLOCK,
    vfs: str | None = None,
    create: bool = True,
    wary: bool = False,
    api_key: str | None = None,
) -> Store:
    """Open a store and create it if it does not exist; without `create`, a missing store on a server is an error.

    With `wary`, queries stop that take more work than a sound file of that size can need. `api_key` is for a server.
    """
    if durability not in ("full", "process"):
        raise WrongValue(f'durability={durability!r}: choose "full" or "process"')
    arm_from_environment()
    if is_postgres(url):
        store: Store = _server().PostgresStore(url, clock=clock, durability=durability, create=create)
        return store
    if is_remote(url):
        from perdure.store.remote.store import RemoteStore

        return RemoteStore(url, clock=clock, api_key=api_key)
    if (theirs := _opener_of(url)) is not None:
        return theirs(url, clock=clock, durability=durability)
    path = sqlite_path(url)
    from perdure.store.sqlite.file import prepare_file
    from perdure.store.sqlite.read_only import find_read_mode
    from perdure.store.sqlite.store import SqliteStore
    from perdure.store.sqlite.watch import refuse_lost_database

    reading = None
    if path == ":memory:":
        _warn_about_memory()
    elif (reading := find_read_mode(path)) is None:
        refuse_lost_database(path)
        prepare_file(path, own_folder=os.path.dirname(path) == default_folder())
    return SqliteStore(path, clock=clock, durability=durability, vfs=vfs, wary=wary, reading=reading)


def versions_of(url: str) -> StoreVersions:
    """Compare the schema of an existing store with this program, without changing the store."""
    if is_postgres(url):
        versions: StoreVersions = _server().versions_of(url)
        return versions
    from perdure.store.schema_version import compare_versions
    from perdure.store.sqlite.file import schema_of

    found = schema_of(sqlite_path(url))
    return compare_versions("sqlite", found, found)


def _opener_of(url: str) -> Callable[..., Store] | None:
    """Return the opener that another package has registered for a URL scheme; see `perdure.testing`."""
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
        from perdure.store.postgres import store as postgres
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise StoreUnavailable(
            "postgresql:// needs the package psycopg", hint='pip install "perdure[postgres]"'
        ) from error
    return postgres


def _warn_about_memory() -> None:
    if "pytest" not in sys.modules and "unittest" not in sys.modules:
        warnings.warn("sqlite://:memory: loses its data when the process ends", NotDurableWarning, stacklevel=4)
