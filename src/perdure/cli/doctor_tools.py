"""Checks of `perdure doctor` for connected coding agents."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.cli.connect import list_connected
from perdure.cli.doctor_environment import CheckLevel, CheckResult
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


def _check_entry(tool: ToolConfig, scope: str, path: Path, entry: Any) -> CheckResult:
    given = entry.get("command") if isinstance(entry, dict) else None
    command = given[0] if isinstance(given, list) and given else given
    again = f"perdure connect {tool.name} --scope {scope}"
    if not isinstance(command, str):
        return CheckResult(CheckLevel.PROBLEM, tool.name, f"{path} has no command for perdure", again)
    if shutil.which(command) is None:
        return CheckResult(CheckLevel.PROBLEM, tool.name, f"{path} names {command}, which does not exist", again)
    return CheckResult(CheckLevel.OK, tool.name, f"connected in {path}")
