"""The Model Context Protocol over standard input and output, one JSON message per line.

The handshake is answered before the agent's modules are imported: clients start servers often, and wait for them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from perdure.mcp.handshake import (
    INVALID_REQUEST,
    PARSE_ERROR,
    RpcError,
    answer_discover,
    answer_initialize,
    complete_result,
    read_envelope,
)

if TYPE_CHECKING:
    from perdure.mcp.stdio_loop import StdioLoop

LINE_BYTES_MAX = 16 * 1024 * 1024


class StdioChannel:
    """Reads and writes messages. Whatever else the process prints goes to standard error."""

    def __init__(self, source: IO[bytes], sink: int) -> None:
        self._source = source
        self._sink = sink
        self._lock = threading.Lock()
        self.client = ""
        """The name that the client gave itself."""

    @classmethod
    def take_standard_streams(cls) -> StdioChannel:
        """Take over the standard streams of this process."""
        sink = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return cls(sys.stdin.buffer, sink)

    def read(self) -> dict[str, Any] | None:
        """Return the next message; None at the end. Lines that are no message are answered with an error."""
        while line := self._source.readline(LINE_BYTES_MAX):
            if not line.endswith(b"\n") and len(line) == LINE_BYTES_MAX:
                while (rest := self._source.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                    continue
                self.send_error(None, RpcError(INVALID_REQUEST, f"a message has at most {LINE_BYTES_MAX:,} bytes"))
            elif line.strip() and (message := self._parse(line)) is not None:
                return message
        return None

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self.send_error(None, RpcError(PARSE_ERROR, "the line is not JSON"))
            return None
        if isinstance(message, dict) and isinstance(message.get("method"), str):
            return message
        if not (isinstance(message, dict) and ("result" in message or "error" in message)):
            self.send_error(None, RpcError(INVALID_REQUEST, "a message is one JSON object with a `method`"))
        return None

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), default=repr).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._sink, line) :]

    def send_result(self, id: Any, result: dict[str, Any]) -> None:
        """Answer a request."""
        self.send({"id": id, "result": result})

    def send_error(self, id: Any, error: RpcError) -> None:
        """Answer a request with an error."""
        self.send({"id": id, "error": error.describe()})


def serve_stdio(channel: StdioChannel, make_loop: Callable[[StdioChannel], StdioLoop]) -> None:
    """Serve one client until it closes its end."""
    while (message := channel.read()) is not None:
        if not _answer_handshake(channel, message):
            make_loop(channel).run(message)
            return
        threading.Thread(target=_preload, daemon=True).start()


def _answer_handshake(channel: StdioChannel, message: dict[str, Any]) -> bool:
    """Answer a message of the handshake. Returns False for any other."""
    method, params = message["method"], message.get("params") or {}
    if "id" not in message:
        return True
    try:
        if method == "initialize":
            channel.client = str((params.get("clientInfo") or {}).get("name", ""))
            channel.send_result(message["id"], answer_initialize(params, connected=True))
        elif method == "server/discover":
            version = read_envelope(params)
            channel.send_result(message["id"], complete_result(method, answer_discover(), version))
        elif method == "ping":
            channel.send_result(message["id"], complete_result(method, {}, read_envelope(params)))
        else:
            return False
    except RpcError as error:
        channel.send_error(message["id"], error)
    return True


def _preload() -> None:
    """Import while the client thinks."""
    import perdure.mcp.stdio_loop  # noqa: F401
