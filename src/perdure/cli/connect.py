"""`perdure connect` and `perdure disconnect`: our server in the configuration of coding agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from perdure.cli.output import CommandOutput, clean
from perdure.cli.store_option import json_option, store_option
from perdure.connect.config_file import (
    ConfigChange,
    merge_hooks,
    plan_connect,
    plan_disconnect,
    plan_hooks,
    plan_no_hooks,
    read_entry,
)
from perdure.connect.tools import TOOLS, ToolConfig, find_command, find_hook_command
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
@click.option("--no-hooks", is_flag=True, help="Only the tools: no hooks, which wake the agent up and note its work.")
@_dry_run
@_yes
@click.option("--list", "listing", is_flag=True, help="Show which tools are installed and connected.")
@store_option
@json_option
def connect(
    tool: str | None,
    scope: str,
    agent: str | None,
    no_hooks: bool,
    dry_run: bool,
    yes: bool,
    listing: bool,
    url: str | None,
    as_json: bool,
) -> int:
    """Give a coding agent a memory: add `perdure mcp` to the configuration of TOOL.

    Where the tool has hooks, they are added too, unless you say --no-hooks.
    It shows the difference and asks. Comments, order and everything else in the file stay.
    """
    out = CommandOutput(as_json)
    if listing:
        return _show(out)
    chosen, path = _find(tool, scope)
    options = [*(["--agent", agent] if agent else []), *(["--store", locate(url)] if url else [])]
    entry = chosen.entry([*find_command(scope), "mcp", *options])
    changes = [plan_connect(chosen, path, entry)]
    hooks = chosen.hooks(scope, Path.cwd())
    command = [] if no_hooks else find_hook_command(scope)
    if hooks == path:
        changes = [merge_hooks(changes[0], chosen, command, options)]
    elif hooks is not None:
        changes.append(plan_hooks(chosen, hooks, command, options) if command else plan_no_hooks(hooks, _backups()))
    note = " ".join(filter(None, (chosen.note, chosen.hook_note if command else "")))
    return _carry_out(out, changes, dry_run, yes, f"{chosen.title} is connected.", note)


@click.command()
@_tool
@_scope
@_dry_run
@_yes
@json_option
def disconnect(tool: str | None, scope: str, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Take back what `perdure connect TOOL` has added. The memory stays in its store."""
    chosen, path = _find(tool, scope)
    changes = [plan_disconnect(chosen, path, _backups())]
    hooks = chosen.hooks(scope, Path.cwd())
    if hooks == path and changes[0].after is not None:
        changes = [merge_hooks(changes[0], chosen, (), ())]
    elif hooks is not None and hooks != path:
        changes.append(plan_no_hooks(hooks, _backups()))
    return _carry_out(CommandOutput(as_json), changes, dry_run, yes, f"{chosen.title} is disconnected.", "")


def _find(tool: str | None, scope: str) -> tuple[ToolConfig, Path]:
    if tool is None:
        raise click.UsageError(f"name a tool: {', '.join(TOOLS)}")
    chosen = TOOLS[tool]
    path = chosen.file(scope, Path.cwd())
    if path is None:
        raise click.UsageError(f"{chosen.title} has no configuration for single projects; use --scope user")
    return chosen, path


def _carry_out(
    out: CommandOutput, changes: Sequence[ConfigChange], dry_run: bool, yes: bool, done: str, note: str
) -> int:
    wanted = [change for change in changes if change.changes]
    diff = "".join(change.diff() for change in wanted)
    told: dict[str, Any] = {"file": str(changes[0].path), "changed": False, "diff": diff, "backup": None}
    told["files"] = [str(change.path) for change in wanted]
    if not wanted:
        return _tell(out, told, f"Nothing to change in {changes[0].path}.")
    if not out.as_json:
        for line in diff.splitlines():
            out.line(clean(line))
    if dry_run:
        return _tell(out, told, "Nothing was changed: this was a dry run.")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here, and nothing was changed; add --yes")
        if not click.confirm(f"Change {clean(', '.join(told['files']))}?", err=True):
            return _tell(out, told, "Nothing was changed.")
    saved = [str(change.apply(_backups())) for change in wanted]
    told["backup"], told["changed"] = saved[0], True
    return _tell(out, told, " ".join(filter(None, (done, note, f"What was there before is in {', '.join(saved)}."))))


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
