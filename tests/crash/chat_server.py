"""The chat server of the examples in a process of its own, which is killed while it answers."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site
from tests.conformance.kit import fork_program

from .programs import Program


class ChatServer:
    """Serves on a socket that outlives the process: clients of a killed server reach the next one."""

    def __init__(self, path: Path, folder: Path, store_url: str) -> None:
        self._path = path
        self._folder = folder
        self._store_url = store_url
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._pid = 0
        self.kills = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._listening.close()

    def send(self, path: str, message: Any, kill: tuple[Site, CommitMoment] | None = None) -> Any:
        """Send a message, and again if the server dies over it, as a client does."""
        if kill is not None:
            self._stop()
            self._serve(f"{kill[0]}:{kill[1]}")
            try:
                self._post(path, message)
            except (urllib.error.URLError, HTTPException, ConnectionError):
                assert os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]) == -signal.SIGKILL
                self._pid = 0
                self.kills += 1
        if not self._pid:
            self._serve("")
        return self._post(path, message)

    def outside(self, name: str) -> list[str]:
        """The lines of a file that stands for the world, without their keys."""
        return Program(self._path, self._folder, self._store_url).outside(name)

    def _post(self, path: str, message: Any) -> Any:
        address = f"http://127.0.0.1:{self._listening.getsockname()[1]}{path}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(address, json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def _serve(self, failpoint: str) -> None:
        def main() -> None:
            import runpy

            import uvicorn

            os.chdir(self._folder)
            os.environ["PERDURE_URL"] = self._store_url
            os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder)
            sys.stdout = (self._folder / "stdout.txt").open("w")
            failpoints.arm(failpoints.kill_at(failpoint) if failpoint else None)
            app = runpy.run_path(str(self._path), run_name="fastapi_chat")["app"]
            uvicorn.run(app, fd=self._listening.fileno(), log_level="error", lifespan="off")

        self._pid = fork_program(main)

    def _stop(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
