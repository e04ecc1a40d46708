"""Stores: where everything lives, opened by a URL."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import NotDurableWarning, StoreUnavailable
from ..failpoints import arm_from_environment
from .base import Store
from .postgres_url import is_postgres, without_password

if TYPE_CHECKING:
    from .versions import Versions

__all__ = [
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

DATABASE_NAME = "perdure.db"
FOLDER_NAME = ".perdure"

_ONE_SLASH = re.compile(r"(\w\w+):/(?!/)")
"""A URL that lost a slash, as by `Path(url)`. One letter before the colon is a drive."""


def locate(store: str | os.PathLike[str] | None) -> str:
    """The URL to open: what was given, else `PERDURE_URL`, else the nearest `.perdure/`, else the home folder's."""
    given = os.fspath(store) if store is not None else os.environ.get("PERDURE_URL")
    if given or store is not None:
        return _url_of(given or "")
    folder, above = os.getcwd(), ""
    while folder != above:
        if os.path.isdir(found := os.path.join(folder, FOLDER_NAME)):
            _must_be_ours(found)
            return f"sqlite:///{os.path.join(found, DATABASE_NAME)}"
        above, folder = folder, os.path.dirname(folder)
    return f"sqlite:///{os.path.join(os.path.expanduser('~'), FOLDER_NAME, DATABASE_NAME)}"


def _must_be_ours(folder: str) -> None:
    """Raise for a folder that another user has put in the way, in /tmp for instance: he could read what is stored."""
    us, sudo = os.geteuid(), os.environ.get("SUDO_UID", "")
    owner = os.lstat(folder).st_uid
    if owner != us and not (us == 0 and sudo == str(owner)):
        raise StoreUnavailable(
            f"{folder} belongs to another user ({owner}), and was found without being named; nothing was opened",
            hint=f"if you trust it, name it: store='{os.path.join(folder, DATABASE_NAME)}', or PERDURE_URL",
        )


def _url_of(text: str) -> str:
    """A plain path is a file."""
    if half := _ONE_SLASH.match(text):
        # Without the rest of it: it may hold a password.
        raise StoreUnavailable(
            f"{half[1]}:/ with one slash is neither a URL nor a path",
            hint=f"write {half[1]}:// with two slashes, and give it as text, not as a Path",
        )
    return text if "://" in text else f"sqlite:///{text}"


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

    if path == ":memory:":
        _warn_about_memory()
    else:
        prepare_file(path)
    return SqliteStore(path, clock=clock, durability=durability, vfs=vfs, wary=wary and path != ":memory:")


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


def sqlite_path(url: str) -> str:
    """The file of a `sqlite:///path` URL, absolute; three slashes and a name are relative to the working folder."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        raise StoreUnavailable(
            f"{scheme}:// is not a store that this version of Perdure knows",
            hint="use sqlite:///path or postgresql://...",
        )
    if rest in (":memory:", "/:memory:"):
        return ":memory:"
    if not rest.startswith("/") or len(rest) < 2:
        raise StoreUnavailable(f"{url} names no file", hint="write sqlite:///path with three slashes")
    return os.path.abspath(os.path.expanduser(rest[1:]))


def file_of(url: str) -> str | None:
    """The file of a store; None for one in memory or on a server."""
    if not is_embedded(url):
        return None
    path = sqlite_path(url)
    return None if path == ":memory:" else path


def is_embedded(url: str) -> bool:
    """Whether a store lives in this process, as a file or in memory, and not on a server."""
    return url.startswith("sqlite:")


def _warn_about_memory() -> None:
    if "pytest" not in sys.modules and "unittest" not in sys.modules:
        warnings.warn("sqlite://:memory: forgets everything when the process ends", NotDurableWarning, stacklevel=4)
