"""Turns a tool call of a coding agent into an event: which file was edited, which command ran, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perdure.hooks.secrets import redact
from perdure.kinds import ToolResult

TEXT_MAX = 500
OUTCOME_MAX = 300
FILES_MAX = 20

_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_TEST = re.compile(
    r"(?:^|[\s;&|/])(?:pytest|tox|nox|unittest|jest|vitest|mocha|rspec|phpunit|ctest"
    r"|(?:go|cargo|npm|pnpm|yarn|make|mvn|gradle|gradlew|dotnet|swift|mix|bun|deno)(?: run)? (?:\S+ )?test\S*)"
    r"(?:$|[\s;&|:])"
)
_EXIT = re.compile(r"(?:exit(?:ed)?(?: with)?(?: code| status)?|Exit Code)[:\s]+(-?\d+)", re.IGNORECASE)
_PATHS = ("file_path", "notebook_path", "path", "absolute_path")


def describe_call(payload: Mapping[str, Any], tool: str, folder: str) -> ToolResult | None:
    """Return the event for a tool call; None for one that changed nothing and ran nothing."""
    name = str(payload.get("tool_name") or "")
    given = payload.get("tool_input")
    arguments = given if isinstance(given, Mapping) else {"input": given}
    seen: dict[str, Any] = {"in": tool, "session": str(payload.get("session_id") or ""), "folder": folder}
    command = _command_of(arguments)
    files = _files_of(arguments)
    if files:
        seen["files"] = [clip(redact(path), TEXT_MAX) for path in files[:FILES_MAX]]
    elif command:
        seen["command"] = clip(redact(command), TEXT_MAX)
        seen["test"] = is_test(command)
    else:
        return None
    ok, outcome = _outcome_of(payload)
    if command and not files and outcome:
        seen["outcome"] = clip_end(redact(outcome), OUTCOME_MAX)
    return ToolResult(name, seen, ok, str(payload.get("tool_use_id") or ""))


def is_test(command: str) -> bool:
    """Whether a command runs tests."""
    return _TEST.search(command) is not None


def clip(text: str, most: int) -> str:
    """Return a text on one line, shortened at its end."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def clip_end(text: str, most: int) -> str:
    """Return a text on one line, shortened at its beginning: the outcome of a command stands at its end."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"…{line[1 - most :]}"


def _command_of(arguments: Mapping[str, Any]) -> str:
    command = arguments.get("command") or arguments.get("cmd")
    if isinstance(command, list):
        command = " ".join(map(str, command))
    return command if isinstance(command, str) else ""


def _files_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return the files that a call edits: named by an argument, or in the text of a patch."""
    patch = next((text for text in arguments.values() if isinstance(text, str) and "*** Begin Patch" in text), "")
    if patch:
        return _PATCHED.findall(patch)
    return [str(arguments[name]) for name in _PATHS if isinstance(arguments.get(name), str)][:1]


def _outcome_of(payload: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether a call succeeded, and what it printed."""
    response = payload.get("tool_response")
    failed = bool(payload.get("error")) or payload.get("hook_event_name") == "PostToolUseFailure"
    if isinstance(response, Mapping):
        failed = failed or bool(response.get("is_error") or response.get("error") or response.get("interrupted"))
        code = response.get("exit_code", response.get("exitCode"))
        failed = failed or (isinstance(code, int) and code != 0)
        said = [response.get(key) for key in ("stdout", "stderr", "output", "llmContent", "error", "content")]
        text = "\n".join(part for part in said if isinstance(part, str) and part)
    else:
        text = response if isinstance(response, str) else ""
    text = text or (str(payload["error"]) if payload.get("error") else "")
    found = _EXIT.search(text)
    return not (failed or (found is not None and found[1] != "0")), text
