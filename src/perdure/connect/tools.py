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

CLAUDE_SETTINGS = ".claude/settings.json"
"""The settings of Claude Code. With CLAUDE_CONFIG_DIR they are in that folder itself."""

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
    hook_events: tuple[str, ...] = ()
    """The hooks that we answer; empty if the tool has none."""
    hook_file: str = ""
    """The file with the hooks, from the folder of the user's configuration file or from that of a project."""
    hook_project: str = ""
    milliseconds: bool = False
    """Whether timeouts of hooks are in milliseconds."""
    end_seconds: int = 0
    """The most that the tool allows a hook at the end of a session; 0 if it allows what others have."""
    hook_note: str = ""
    """What the user has to do before hooks run."""

    def file(self, scope: str, folder: Path) -> Path | None:
        """Return the configuration file of a scope; None if the tool has none there."""
        if scope == "user":
            return self.user()
        return folder / self.project if self.project else None

    def hooks(self, scope: str, folder: Path) -> Path | None:
        """Return the file with the hooks of a scope; None if the tool has none."""
        if not self.hook_events:
            return None
        if self.hook_file == CLAUDE_SETTINGS and os.environ.get("CLAUDE_CONFIG_DIR"):
            return self.user().parent / "settings.json"
        return self.user().parent / self.hook_file if scope == "user" else folder / self.hook_project

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


_CLAUDE_EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "PreCompact", "SessionEnd")
_GEMINI_EVENTS = ("SessionStart", "BeforeAgent", "AfterTool", "PreCompress", "SessionEnd")
_OPENCODE_EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "PreCompact", "SessionEnd")
"""Which our plugin calls. OpenCode itself has other names."""
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
            hook_events=(*_CLAUDE_EVENTS, "PostToolUseFailure"),
            hook_file=CLAUDE_SETTINGS,
            hook_project=".claude/settings.json",
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
            hook_events=_CLAUDE_EVENTS,
            hook_file="hooks.json",
            hook_project=".codex/hooks.json",
            end_seconds=3,
            hook_note="Codex skips hooks without a word until you trust them: run `/hooks` in Codex once.",
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
            hook_events=_GEMINI_EVENTS,
            hook_file="settings.json",
            hook_project=".gemini/settings.json",
            milliseconds=True,
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
            hook_events=_OPENCODE_EVENTS,
            hook_file="plugins/perdure.js",
            hook_project=".opencode/plugins/perdure.js",
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


def find_hook_command(scope: str) -> list[str]:
    """Return the command that answers a hook: without the package, except in a project's file, which is shared."""
    if scope == "project" and shutil.which(NAME):
        return [NAME, "hook"]
    return [sys.executable, "-I", "-S", str(Path(__file__).parent.parent / "hooks" / "client.py")]


def find_command(scope: str) -> list[str]:
    """Return the command that starts Perdure. A project's file is shared, so it names no path of this machine."""
    beside = Path(sys.executable).parent / NAME
    if scope == "project" and shutil.which(NAME):
        return [NAME]
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "perdure.cli"]
