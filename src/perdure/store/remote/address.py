"""Parses `https://` addresses of a server. Plain `http://` is for this machine only: a key must not cross a network."""

from __future__ import annotations

import ipaddress
import os
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from perdure.errors import StoreUnavailable, StoreUrlInvalid
from perdure.values.limits import (
    CONNECT_SECONDS_MAX,
    POOL_CONNECTIONS,
    RECONNECT_SECONDS_MAX,
    STATEMENT_SECONDS_MAX,
)

SCHEMES = ("https", "http")
KEY_VARIABLE = "PERDURE_API_KEY"
PORT = 8321


class RemoteAddress(msgspec.Struct, frozen=True):
    """Where a server is, and how patient its clients are."""

    secure: bool
    host: str
    port: int
    path: str
    """The prefix of every path, for a server behind a proxy."""
    shown: str
    tenant: str = ""
    pool_size: int = POOL_CONNECTIONS
    connect_seconds: float = CONNECT_SECONDS_MAX
    statement_seconds: float = STATEMENT_SECONDS_MAX
    reconnect_seconds: float = RECONNECT_SECONDS_MAX


def is_remote(url: str) -> bool:
    """Whether a URL names a Perdure server."""
    return url.partition("://")[0] in SCHEMES


def find_key(api_key: str | None) -> str:
    """Return the key to send: the argument, else `PERDURE_API_KEY`, else none."""
    key = api_key if api_key is not None else os.environ.get(KEY_VARIABLE, "")
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise StoreUnavailable(
            "the API key has characters that no key has; nothing was sent",
            hint="pass the text that `perdure keys create` printed, pdk_...",
        )
    return key


def parse_address(url: str) -> RemoteAddress:
    """Parse the URL of a server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        _refuse("the address of the server is not a URL")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        _refuse("the address of the server has a user or a password", "pass api_key=..., or set PERDURE_API_KEY")
    if not parts.hostname or parts.fragment:
        _refuse("the address of the server names no host, or has a fragment")
    secure = parts.scheme == "https"
    if not secure and not _is_loopback(parts.hostname):
        _refuse(
            f"http://{parts.hostname} would send the key in clear text; nothing was sent",
            f"use https://{parts.hostname}, or http:// on this machine only (127.0.0.1)",
        )
    default = 443 if secure else PORT
    return RemoteAddress(
        secure,
        parts.hostname,
        default if port is None else port,
        parts.path.rstrip("/"),
        f"{parts.scheme}://{parts.netloc}{parts.path}",
        **_settings(parts),  # type: ignore[arg-type]  # checked by name
    )


_NUMBERS = {"pool_size": int, "connect_seconds": float, "statement_seconds": float, "reconnect_seconds": float}


def _settings(parts: SplitResult) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "tenant":
            found[name] = value
            continue
        if name not in _NUMBERS:
            _refuse("the address of the server has an unknown parameter", f"known are tenant, {', '.join(_NUMBERS)}")
        try:
            found[name] = _NUMBERS[name](value)
        except ValueError:
            _refuse(f"{name} of the server's address is not a number")
        if found[name] < (1 if name == "pool_size" else 0):  # type: ignore[operator]
            _refuse(f"{name} of the server's address is too small")
    return found


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refuse(what: str, advice: str = "write https://host:8321") -> NoReturn:
    raise StoreUrlInvalid(what, hint=advice)
