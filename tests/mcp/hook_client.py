"""Starts the hook client as a coding agent does: in its own process, with a payload on standard input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import perdure.hooks.client as client

CLIENT = str(client.__file__)
PATIENCE_SECONDS = 60.0


class HookFolder:
    """A home folder, a project folder in it, and the helpers that their hooks start."""

    def __init__(self, home: Path) -> None:
        self.home, self.project = home, home / "shop"
        self.project.mkdir()
        self.store = self.home / ".perdure" / "perdure.db"
        self.runtime = Path(client.runtime_folder())
        self.env = dict(os.environ)

    def hook(self, event: str, tool: str = "claude-code", /, **payload: Any) -> str:
        """Send a hook and return what reaches the model."""
        told = {"session_id": "s1", "cwd": str(self.project), "hook_event_name": event, **payload}
        answer = self.send(event, json.dumps(told).encode(), tool)
        if not answer:
            return ""
        output = json.loads(answer)["hookSpecificOutput"]
        assert output["hookEventName"] == event
        text: str = output["additionalContext"]
        return text

    def send(self, event: str, data: bytes, tool: str = "claude-code") -> bytes:
        command = [sys.executable, "-I", "-S", CLIENT, event, "--tool", tool]
        done = subprocess.run(command, input=data, capture_output=True, env=self.env, timeout=PATIENCE_SECONDS)
        assert done.returncode == 0 and not done.stderr, done
        return done.stdout

    @property
    def log(self) -> str:
        path = self.runtime / "hooks.log"
        return path.read_text() if path.exists() else ""

    def helpers(self) -> list[int]:
        """The processes that listen for this home folder."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if b"perdure.hooks.server" in command and os.fsencode(self.runtime) in command:
                found.append(int(entry.name))
        return found

    def kill_helpers(self) -> int:
        found = self.helpers()
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE_SECONDS
        while self.helpers() and time.monotonic() < until:
            time.sleep(0.01)
        return len(found)

    def close(self) -> None:
        self.kill_helpers()
        shutil.rmtree(self.runtime, ignore_errors=True)
