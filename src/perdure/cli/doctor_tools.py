"""Checks of `perdure doctor` for connected coding agents."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.cli.connect import list_connected
from perdure.cli.doctor_environment import CheckLevel, CheckResult
from perdure.connect.config_file import read_hooks
from perdure.connect.tools import TOOLS, ToolConfig
from perdure.errors import ConfigurationBroken


def connections() -> Iterator[CheckResult]:
    """Check that configuration files can be read, and that the command in them exists."""
    for tool in TOOLS.values():
        for scope, path, entry in list_connected(tool):
            if isinstance(entry, ConfigurationBroken):
                yield CheckResult(CheckLevel.PROBLEM, tool.name, entry.message, entry.hint)
            elif entry is not None:
                yield _check_entry(tool, scope, path, entry)
                yield from _check_hooks(tool, scope)


def _check_hooks(tool: ToolConfig, scope: str) -> Iterator[CheckResult]:
    """Check the hooks of a connected tool: all of them are there, and their program exists."""
    path, again = tool.hooks(scope, Path.cwd()), f"perdure connect {tool.name} --scope {scope}"
    if path is None:
        return
    try:
        found = read_hooks(tool, path)
    except ConfigurationBroken as error:
        yield CheckResult(CheckLevel.PROBLEM, tool.name, error.message, error.hint)
        return
    programs = {shlex.split(str(hook.get("command")))[0] for item in found for hook in item["hooks"]}
    lost = [program for program in programs if shutil.which(program) is None]
    if lost:
        yield CheckResult(CheckLevel.PROBLEM, tool.name, f"hooks in {path} name {lost[0]}, which does not exist", again)
    elif found and len(found) < len(tool.hook_events):
        yield CheckResult(CheckLevel.PROBLEM, tool.name, f"some hooks are missing in {path}", again)
    elif found:
        yield CheckResult(CheckLevel.OK, tool.name, f"hooks in {path}. {tool.hook_note}".strip())


def _check_entry(tool: ToolConfig, scope: str, path: Path, entry: Any) -> CheckResult:
    given = entry.get("command") if isinstance(entry, dict) else None
    command = given[0] if isinstance(given, list) and given else given
    again = f"perdure connect {tool.name} --scope {scope}"
    if not isinstance(command, str):
        return CheckResult(CheckLevel.PROBLEM, tool.name, f"{path} has no command for perdure", again)
    if shutil.which(command) is None:
        return CheckResult(CheckLevel.PROBLEM, tool.name, f"{path} names {command}, which does not exist", again)
    return CheckResult(CheckLevel.OK, tool.name, f"connected in {path}")
