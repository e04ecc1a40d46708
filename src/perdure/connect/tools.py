"""The coding agents that can be connected: where their configuration is, and how a server is written in it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

NAME = "perdure"
"""The name of our entry."""

Entry = dict[str, Any]


class ToolConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A coding agent."""

    name: str
    title: str
    user: Callable[[], Path]
    """The file for all projects of the user."""
    project: str = ""
    """The file in a project folder; empty if the tool has none."""
    key: tuple[str, ...]
    """Where servers are in the file."""
    entry: Callable[[Sequence[str]], Entry]
    """Our entry for a command."""
    programs: tuple[str, ...] = ()
    """Programs by which an installed one is recognised."""
    note: str = ""
    """What the user has to do after connecting."""

    def file(self, scope: str, folder: Path) -> Path | None:
        """Return the configuration file of a scope; None if the tool has none there."""
        if scope == "user":
            return self.user()
        return folder / self.project if self.project else None

    @property
    def installed(self) -> bool:
        """Whether the tool seems to be on this machine."""
        return any(shutil.which(program) for program in self.programs) or self.user().parent.is_dir()


def _home(*parts: str) -> Path:
    return Path.home().joinpath(*parts)


def _settings(mac: str, linux: str) -> Path:
    """Return a path below the folder where desktop programs keep their settings."""
    if sys.platform == "darwin":
        return _home("Library", "Application Support", *mac.split("/"))
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home(".config")).joinpath(*linux.split("/"))


def _plain(command: Sequence[str]) -> Entry:
    return {"command": command[0], "args": list(command[1:])}


def _typed(command: Sequence[str]) -> Entry:
    return {"type": "stdio", **_plain(command)}


def _opencode(command: Sequence[str]) -> Entry:
    return {"type": "local", "command": list(command), "enabled": True}


def _zed(command: Sequence[str]) -> Entry:
    return {"source": "custom", **_plain(command), "env": {}}


def _find_opencode() -> Path:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or _home(".config")) / "opencode"
    return next((path for name in ("opencode.jsonc",) if (path := folder / name).exists()), folder / "opencode.json")


_RESTART = "Restart it, or open a new session."

TOOLS = {
    tool.name: tool
    for tool in (
        ToolConfig(
            name="claude-code",
            title="Claude Code",
            user=lambda: Path(os.environ.get("CLAUDE_CONFIG_DIR") or _home()) / ".claude.json",
            project=".mcp.json",
            key=("mcpServers",),
            entry=_typed,
            programs=("claude",),
            note="Open a new session; `/mcp` shows the server. A project's file must be approved there once.",
        ),
        ToolConfig(
            name="claude-desktop",
            title="Claude Desktop",
            user=lambda: _settings("Claude/claude_desktop_config.json", "Claude/claude_desktop_config.json"),
            key=("mcpServers",),
            entry=_plain,
            note=_RESTART,
        ),
        ToolConfig(
            name="codex",
            title="Codex",
            user=lambda: Path(os.environ.get("CODEX_HOME") or _home(".codex")) / "config.toml",
            project=".codex/config.toml",
            key=("mcp_servers",),
            entry=_plain,
            programs=("codex",),
            note="Open a new session. The file of a project counts only if you trust the project.",
        ),
        ToolConfig(
            name="cursor",
            title="Cursor",
            user=lambda: _home(".cursor", "mcp.json"),
            project=".cursor/mcp.json",
            key=("mcpServers",),
            entry=_plain,
            programs=("cursor", "cursor-agent"),
            note="Enable the server in Settings, MCP, if it is not on.",
        ),
        ToolConfig(
            name="gemini-cli",
            title="Gemini CLI",
            user=lambda: _home(".gemini", "settings.json"),
            project=".gemini/settings.json",
            key=("mcpServers",),
            entry=_plain,
            programs=("gemini",),
            note=_RESTART,
        ),
        ToolConfig(
            name="opencode",
            title="OpenCode",
            user=_find_opencode,
            project="opencode.json",
            key=("mcp",),
            entry=_opencode,
            programs=("opencode",),
            note=_RESTART,
        ),
        ToolConfig(
            name="vscode",
            title="VS Code",
            user=lambda: _settings("Code/User/mcp.json", "Code/User/mcp.json"),
            project=".vscode/mcp.json",
            key=("servers",),
            entry=_typed,
            programs=("code",),
            note="Run `MCP: List Servers` and start the server.",
        ),
        ToolConfig(
            name="windsurf",
            title="Windsurf",
            user=lambda: _home(".codeium", "windsurf", "mcp_config.json"),
            key=("mcpServers",),
            entry=_plain,
            programs=("windsurf",),
            note=_RESTART,
        ),
        ToolConfig(
            name="zed",
            title="Zed",
            user=lambda: _settings("../../.config/zed/settings.json", "zed/settings.json"),
            project=".zed/settings.json",
            key=("context_servers",),
            entry=_zed,
            programs=("zed", "zeditor"),
            note="Zed knows tools and prompts, not resources.",
        ),
    )
}
"""By name."""


def find_command(scope: str) -> list[str]:
    """Return the command that starts Perdure. A project's file is shared, so it names no path of this machine."""
    beside = Path(sys.executable).parent / NAME
    if scope == "project" and shutil.which(NAME):
        return [NAME]
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "perdure.cli"]
