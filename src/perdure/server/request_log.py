"""One line of JSON per request, on standard error. It has no query string, no header and no body."""

from __future__ import annotations

import logging
import sys

import msgspec

LOGGER = logging.getLogger("perdure.server")


class RequestLine(msgspec.Struct, frozen=True):
    """What the log says of a request."""

    at: str
    request_id: str
    method: str
    path: str
    status: int
    ms: float
    key: str


def write_line(line: RequestLine) -> None:
    """Log a request."""
    LOGGER.info("%s", msgspec.json.encode(line).decode())


def log_to_stderr() -> None:
    """Send the log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
