"""Sends the warnings of this process to a client that asked for them by `logging/setLevel`."""

from __future__ import annotations

import logging
from typing import Any

from perdure.mcp.handshake import INVALID_PARAMS, RpcError
from perdure.mcp.progress import Notify

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO + 5,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL + 5,
    "emergency": logging.CRITICAL + 10,
}
"""The levels of the protocol, as `logging` counts them."""
METHOD = "logging/setLevel"
_NAME = "perdure"


class ClientLog(logging.Handler):
    """The log of Perdure, as one client hears it: nothing before the client has chosen a level."""

    def __init__(self, notify: Notify) -> None:
        super().__init__()
        self._notify = notify

    def choose(self, params: Any) -> dict[str, Any]:
        """Answer `logging/setLevel`."""
        wanted = params.get("level") if isinstance(params, dict) else None
        level = LEVELS.get(wanted) if isinstance(wanted, str) else None
        if level is None:
            raise RpcError(INVALID_PARAMS, f"`level` is one of {', '.join(LEVELS)}")
        logger = logging.getLogger(_NAME)
        self.setLevel(level)
        logger.setLevel(min(level, logging.WARNING))
        if self not in logger.handlers:
            logger.addHandler(self)
            if logging.lastResort is not None:  # standard error still shows warnings
                logger.addHandler(logging.lastResort)
        return {}

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        severity = max(record.levelno, logging.DEBUG)
        level = max((number, name) for name, number in LEVELS.items() if number <= severity)[1]
        try:
            self._notify("notifications/message", {"level": level, "logger": _NAME, "data": record.getMessage()})
        except OSError:
            return  # the client has left
