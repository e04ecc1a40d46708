"""The plugin for Claude Code: its files can be read, and its skill names tools that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from perdure import __version__
from perdure.connect.tools import TOOLS as CODING_AGENTS
from perdure.mcp.catalog import TOOLS

PLUGIN = Path(__file__).parents[2] / "plugins" / "claude-code"


def test_the_plugin_starts_the_same_server_as_connect() -> None:
    assert json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())["version"] == __version__
    servers = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]
    assert servers == {"perdure": CODING_AGENTS["claude-code"].entry(["perdure", "mcp"])}


def test_the_skill_teaches_every_tool_that_exists() -> None:
    text = (PLUGIN / "skills" / "durable-memory" / "SKILL.md").read_text()
    named = set(re.findall(r"`([a-z]+_[a-z]+|remember|recall|forget)`", text))
    assert named - {"not_done"} == set(TOOLS) - {"get_state", "set_state", "restore_checkpoint"}
