"""What a `postgresql://` URL says: what is libpq's goes to libpq, what is ours is taken out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import msgspec

from ..errors import StoreUnavailable
from ..limits import CONNECT_SECONDS_MAX, POOL_CONNECTIONS, RECONNECT_SECONDS_MAX, STATEMENT_SECONDS_MAX

T = TypeVar("T")

SCHEMA = "perdure"
URL_HINT = "write postgresql://user@host/database?schema=name; docs/postgres.md has the parameters"
SCHEMES = ("postgresql", "postgres")
SCHEMA_BYTES_MAX = 63
"""PostgreSQL cuts longer names off, so that two of them may become one."""


class Place(msgspec.Struct, frozen=True):
    """A server and what Perdure should do there."""

    target: str
    """For libpq; may hold a password."""
    shown: str
    """For people: without the password."""
    schema: str = SCHEMA
    pool_size: int = POOL_CONNECTIONS
    listen_url: str = ""
    """Where to listen, when the URL leads to a pooler that cannot do that."""
    statement_seconds: float = STATEMENT_SECONDS_MAX
    reconnect_seconds: float = RECONNECT_SECONDS_MAX
    connect_seconds: float = CONNECT_SECONDS_MAX
    """Libpq's `connect_timeout`, which it leaves to its users when they wait by themselves."""
    prepare: bool = True


_OURS = ("schema", "pool_size", "listen_url", "statement_seconds", "reconnect_seconds", "prepare")


def is_postgres(url: str) -> bool:
    """Whether a URL names a server."""
    return url.partition("://")[0] in SCHEMES


def parse(url: str) -> Place:
    """Read a URL; complains about our own parameters, and leaves the others to libpq."""
    parts = _split(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in pairs if name in _OURS}
    theirs = [(name, value) for name, value in pairs if name not in _OURS]
    target = _joined("postgresql", parts.netloc, parts.path, theirs)
    return Place(
        target=target,
        shown=without_password(url),
        schema=_schema(ours.get("schema", SCHEMA)),
        pool_size=_value(ours, "pool_size", int, POOL_CONNECTIONS, 1),
        listen_url=parse(ours["listen_url"]).target if ours.get("listen_url") else "",
        statement_seconds=_value(ours, "statement_seconds", float, STATEMENT_SECONDS_MAX, 0.1),
        reconnect_seconds=_value(ours, "reconnect_seconds", float, RECONNECT_SECONDS_MAX, 0.0),
        connect_seconds=_value(dict(theirs), "connect_timeout", float, CONNECT_SECONDS_MAX, 0.1),
        prepare=ours.get("prepare", "1") not in ("0", "false", "no", "off"),
    )


def without_password(url: str) -> str:
    """The URL as it may be shown: whoever reads a log should not get in."""
    try:
        parts = _split(url)
    except StoreUnavailable:
        return f"{url.partition('://')[0]}://..."  # whatever is in it, it is not shown
    user, at, host = parts.netloc.rpartition("@")
    user = user.partition(":")[0]
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    shown = [
        (name, without_password(value) if name == "listen_url" else value)
        for name, value in pairs
        if name not in ("password", "sslpassword")
    ]
    return _joined(parts.scheme, f"{user}{at}{host}", parts.path, shown)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # it names what is wrong, and not the URL
        raise StoreUnavailable(f"the URL of the store cannot be read: {error}", hint=URL_HINT) from error


def _joined(scheme: str, authority: str, path: str, pairs: list[tuple[str, str]]) -> str:
    # By hand: urllib leaves the slashes out when there is no host, which for libpq is a local socket.
    query = urlencode(pairs, safe="/", quote_via=quote)
    return f"{scheme}://{authority}{path}" + (f"?{query}" if query else "")


def _schema(name: str) -> str:
    if not name or "\0" in name or len(name.encode("utf-8", "replace")) > SCHEMA_BYTES_MAX:
        raise StoreUnavailable(f"schema={name!r}: a schema's name has 1 to {SCHEMA_BYTES_MAX} bytes")
    if name.startswith("pg_"):
        raise StoreUnavailable(f"schema={name!r}: names that begin with pg_ are PostgreSQL's own")
    return name


def _value(ours: dict[str, str], name: str, kind: Callable[[str], T], default: T, least: float) -> T:
    text = ours.get(name)
    if text is None:
        return default
    try:
        if not least <= float(text):
            raise ValueError
        return kind(text)
    except ValueError as error:
        raise StoreUnavailable(f"{name}={text!r} in the URL of the store: a number from {least:g} on") from error
