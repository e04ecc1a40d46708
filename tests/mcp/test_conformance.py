"""The official conformance tool. Most of its scenarios are about a server of its own; these are about every server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.harness import Server

PROGRAM = shutil.which("conformance") or ""
SCENARIOS = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "completion-complete",
    "dns-rebinding-protection",
]


@pytest.mark.soak
@pytest.mark.skipif(not PROGRAM, reason="npm install -g @modelcontextprotocol/conformance: it is not installed")
def test_the_official_tool_finds_nothing(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'a.db'}", tmp_path, "--no-auth").start()  # the tool sends no keys
    try:
        for scenario in SCENARIOS:
            command = [PROGRAM, "server", "--url", f"{server.origin}/mcp", "--scenario", scenario]
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
            assert done.returncode == 0, f"{scenario}:\n{done.stdout}"
    finally:
        server.kill()
