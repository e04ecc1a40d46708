"""`perdure connect` and `perdure disconnect`: our server in the configuration of coding agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from perdure.cli.output import CommandOutput, clean
from perdure.cli.store_option import json_option, store_option
from perdure.connect.config_file import ConfigChange, plan_connect, plan_disconnect, read_entry
from perdure.connect.tools import TOOLS, ToolConfig, find_command
from perdure.errors import ConfigurationBroken
from perdure.store import locate

SCOPES = ("user", "project")

_tool = click.argument("tool", required=False, type=click.Choice(tuple(TOOLS)))
_scope = click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="user",
    show_default=True,
    help="For all your projects, or for the project in this folder.",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command()
@_tool
@_scope
@click.option("--agent", metavar="NAME", help="Whose memory it is. Default: assistant.")
@_dry_run
@_yes
@click.option("--list", "listing", is_flag=True, help="Show which tools are installed and connected.")
@store_option
@json_option
def connect(
    tool: str | None,
    scope: str,
    agent: str | None,
    dry_run: bool,
    yes: bool,
    listing: bool,
    url: str | None,
    as_json: bool,
) -> int:
    """Give a coding agent a memory: add `perdure mcp` to the configuration of TOOL.

    It shows the difference and asks. Comments, order and everything else in the file stay.
    """
    out = CommandOutput(as_json)
    if listing:
        return _show(out)
    chosen, path = _find(tool, scope)
    arguments = ["mcp", *(["--agent", agent] if agent else []), *(["--store", locate(url)] if url else [])]
    change = plan_connect(chosen, path, chosen.entry([*find_command(scope), *arguments]))
    return _carry_out(out, change, dry_run, yes, f"{chosen.title} is connected.", chosen.note)


@click.command()
@_tool
@_scope
@_dry_run
@_yes
@json_option
def disconnect(tool: str | None, scope: str, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Take back what `perdure connect TOOL` has added. The memory stays in its store."""
    chosen, path = _find(tool, scope)
    change = plan_disconnect(chosen, path, _backups())
    return _carry_out(CommandOutput(as_json), change, dry_run, yes, f"{chosen.title} is disconnected.", "")


def _find(tool: str | None, scope: str) -> tuple[ToolConfig, Path]:
    if tool is None:
        raise click.UsageError(f"name a tool: {', '.join(TOOLS)}")
    chosen = TOOLS[tool]
    path = chosen.file(scope, Path.cwd())
    if path is None:
        raise click.UsageError(f"{chosen.title} has no configuration for single projects; use --scope user")
    return chosen, path


def _carry_out(out: CommandOutput, change: ConfigChange, dry_run: bool, yes: bool, done: str, note: str) -> int:
    told: dict[str, Any] = {"file": str(change.path), "changed": False, "diff": change.diff(), "backup": None}
    if not change.changes:
        return _tell(out, told, f"Nothing to change in {change.path}.")
    if not out.as_json:
        for line in told["diff"].splitlines():
            out.line(clean(line))
    if dry_run:
        return _tell(out, told, "Nothing was changed: this was a dry run.")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here, and nothing was changed; add --yes")
        if not click.confirm(f"Change {clean(str(change.path))}?", err=True):
            return _tell(out, told, "Nothing was changed.")
    told["backup"] = str(change.apply(_backups()))
    told["changed"] = True
    return _tell(out, told, " ".join(filter(None, (done, note, f"The old file is in {told['backup']}."))))


def _tell(out: CommandOutput, told: dict[str, Any], text: str) -> int:
    if out.as_json:
        out.json(told)
    else:
        out.line(clean(text))
    return 0


def _backups() -> Path:
    return Path.home() / ".perdure" / "backups"


def _show(out: CommandOutput) -> int:
    rows = []
    for tool in TOOLS.values():
        found = [(scope, path) for scope, path, entry in list_connected(tool) if entry is not None]
        where = ", ".join(f"{scope} ({path})" for scope, path in found)
        rows.append((tool, where))
    if out.as_json:
        out.json([{"tool": tool.name, "installed": tool.installed, "connected": where} for tool, where in rows])
        return 0
    table = [(tool.name, "yes" if tool.installed else "no", clean(where) or "no") for tool, where in rows]
    out.table(("TOOL", "INSTALLED", "CONNECTED"), table)
    return 0


def list_connected(tool: ToolConfig) -> Iterator[tuple[str, Path, Any]]:
    """Yield each file of a tool with our entry in it: None without one, the error for a broken file."""
    for scope in SCOPES:
        path = tool.file(scope, Path.cwd())
        if path is None:
            continue
        try:
            yield scope, path, read_entry(tool, path)
        except ConfigurationBroken as error:
            yield scope, path, error
