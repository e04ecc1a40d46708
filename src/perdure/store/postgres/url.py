"""Parses `postgresql://` URLs: takes out Perdure's parameters and leaves the others to libpq."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import msgspec

from perdure.errors import StoreUnavailable
from perdure.values.limits import CONNECT_SECONDS_MAX, POOL_CONNECTIONS, RECONNECT_SECONDS_MAX, STATEMENT_SECONDS_MAX

T = TypeVar("T")

SCHEMA = "perdure"
ENCODE_HINT = (
    "in a password write / ? # @ [ ] % as %2F %3F %23 %40 %5B %5D %25; parameters: docs/operations/postgres.md"
)
SCHEMES = ("postgresql", "postgres")
SCHEMA_BYTES_MAX = 63
"""PostgreSQL truncates longer names, so two of them may become one."""


class ServerAddress(msgspec.Struct, frozen=True):
    """A server and Perdure's settings for it."""

    target: str
    """For libpq; may have a password."""
    shown: str
    """For people: without the password."""
    schema: str = SCHEMA
    pool_size: int = POOL_CONNECTIONS
    process_connections: int = 0
    """The limit for all stores of a process on this server together; 0 for none."""
    listen_url: str = ""
    """Where to LISTEN if the URL leads to a pooler."""
    statement_seconds: float = STATEMENT_SECONDS_MAX
    reconnect_seconds: float = RECONNECT_SECONDS_MAX
    connect_seconds: float = CONNECT_SECONDS_MAX
    """libpq's `connect_timeout`, which libpq ignores in nonblocking mode."""
    prepare: bool = True


_OURS = (
    "schema",
    "pool_size",
    "process_connections",
    "listen_url",
    "statement_seconds",
    "reconnect_seconds",
    "prepare",
)

_LISTEN_URL = re.compile(r"[?&]listen_url=")
_UNWRITTEN = re.compile(r"[\x00-\x20\x7f#]")
"""Characters that no URL of a store may have: `#` would end it, and parsers treat the others differently."""
_NO_PORT = re.compile(r"(\[[^\]]*\])|:(?!\d*(?:,|$))[^,]*")


def is_postgres(url: str) -> bool:
    """Whether a URL names a server."""
    return url.partition("://")[0] in SCHEMES


def parse(url: str) -> ServerAddress:
    """Parse a URL; check Perdure's parameters and leave the others to libpq."""
    parts = None if _doubtful(url) else _split_url(url)
    if parts is None:
        raise unreadable(hide_password(url))
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in pairs if name in _OURS}
    theirs = [(name, value) for name, value in pairs if name not in _OURS]
    target = _join_url("postgresql", parts.netloc, parts.path, theirs)
    return ServerAddress(
        target=target,
        shown=hide_password(url),
        schema=_schema(ours.get("schema", SCHEMA)),
        pool_size=_value(ours, "pool_size", int, POOL_CONNECTIONS, 1),
        process_connections=_value(ours, "process_connections", int, 0, 1),
        listen_url=parse(ours["listen_url"]).target if ours.get("listen_url") else "",
        statement_seconds=_value(ours, "statement_seconds", float, STATEMENT_SECONDS_MAX, 0.1),
        reconnect_seconds=_value(ours, "reconnect_seconds", float, RECONNECT_SECONDS_MAX, 0.0),
        connect_seconds=_value(dict(theirs), "connect_timeout", float, CONNECT_SECONDS_MAX, 0.1),
        prepare=ours.get("prepare", "1") not in ("0", "false", "no", "off"),
    )


def hide_password(url: str) -> str:
    """Return the URL without its password, for messages and logs; in doubt it shows less."""
    before, listens, behind = _split_listen_url(url)
    redacted = _redact_authority(before) + listens + (_redact_authority(behind) if "://" in behind else behind)
    parts = _split_url(redacted)
    if parts is None:
        return f"{url.partition('://')[0]}://..."
    hidden, shown = False, list[tuple[str, str]]()
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("password", "sslpassword"):
            hidden = True  # what follows may be part of it, after an unencoded &
        elif name == "listen_url":
            shown.append((name, hide_password(value)))
        elif name in _OURS or not hidden:
            shown.append((name, value))
    return _join_url(parts.scheme, parts.netloc, parts.path, shown)


def unreadable(shown: str) -> StoreUnavailable:
    """Return the error for an invalid URL. It repeats no parser message, which might quote the password."""
    return StoreUnavailable(f"{shown} is not a valid store URL", hint=ENCODE_HINT)


def _split_listen_url(url: str) -> tuple[str, str, str]:
    """Split at `listen_url=`, whose value may be a URL with a password of its own."""
    found = _LISTEN_URL.search(url)
    return (url[: found.start()], found[0], url[found.end() :]) if found else (url, "", "")


def _redact_authority(url: str) -> str:
    """Remove everything between the first colon and the last @: a password may contain @ and /."""
    scheme, separator, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    if not at:  # the @ may be missing: a port that is no number may be the password
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        host = _NO_PORT.sub(r"\1", authority) + rest[len(authority) :]
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}"


def _doubtful(url: str) -> bool:
    """Whether libpq might read the password differently than it was meant."""
    rest = _split_listen_url(url)[0].partition("://")[2]
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    beyond = "@" in rest[len(authority) :] and ":" in authority
    return bool(_UNWRITTEN.search(url)) or authority.count("@") > 1 or beyond


def _split_url(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # may quote the password
        return None


def _join_url(scheme: str, authority: str, path: str, pairs: list[tuple[str, str]]) -> str:
    # Not with urllib, which omits the slashes without a host; libpq needs them for a local socket.
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
