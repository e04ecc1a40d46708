"""One line of JSON per request, on standard error. It has no query string, no header and no body."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import nullcontext
from typing import TextIO

import msgspec

LOGGER = logging.getLogger("perdure.server")
JOIN_SECONDS = 0.05


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


class JoiningHandler(logging.StreamHandler[TextIO]):
    """Writes the lines of a short time with one system call. Warnings and errors are written at once."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line for a moment."""
        self._lines.append(self.format(record) + self.terminator)
        if record.levelno > logging.INFO:
            self.flush()
        elif len(self._lines) == 1:
            asyncio.get_running_loop().call_later(JOIN_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what was kept."""
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            if lines:
                self.stream.write("".join(lines))
            super().flush()


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send the log of this process to standard error, from this level on."""
    handler = JoiningHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    LOGGER.propagate = False
