"""Our entries among the hooks of a tool: added, found and taken back, apart from the hooks of the user."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from perdure.connect import json_text
from perdure.connect.tools import ToolConfig
from perdure.errors import ConfigurationBroken

TIMEOUT_SECONDS = 10
_OURS = re.compile(r"\bperdure['\"]? hook |/perdure/hooks/client\.py['\"]? ")


def add_hooks(tool: ToolConfig, text: str, command: Sequence[str], options: Sequence[str]) -> str:
    """Return the text with our hooks. Hooks of ours that differ are replaced; equal ones stay as they are."""
    for event in tool.hook_events:
        wanted = _make_entry(tool, event, command, options)
        if find_hooks(text, event) == [wanted]:
            continue
        text = _remove_hook(text, event)
        text = json_text.append_item(text, ("hooks", event), wanted)
    return text


def remove_hooks(text: str) -> str:
    """Return the text without our hooks."""
    if not text.strip():
        return text
    for event in _read_events(text):
        text = _remove_hook(text, event)
    if json_text.read_json(text).data.get("hooks") == {}:
        text = json_text.remove_entry(text, ("hooks",))
    return text


def find_hooks(text: str, event: str = "") -> list[Any]:
    """Return our hooks, of one event or of all."""
    events = _read_events(text)
    chosen = [events.get(event, [])] if event else list(events.values())
    return [item for items in chosen if isinstance(items, list) for item in items if is_ours(item)]


def without_hooks(data: Any) -> Any:
    """Return the settings without our hooks, and without what is empty then: for comparing."""
    hooks = data.get("hooks") if isinstance(data, dict) else None
    if not isinstance(hooks, dict):
        return data
    rest = {
        event: [item for item in items if not is_ours(item)] if isinstance(items, list) else items
        for event, items in hooks.items()
    }
    kept = {event: items for event, items in rest.items() if items}
    others = {key: value for key, value in data.items() if key != "hooks"}
    return {**others, "hooks": kept} if kept else others


def is_ours(item: Any) -> bool:
    """Whether an entry runs our client and nothing else."""
    hooks = item.get("hooks") if isinstance(item, dict) else None
    if not isinstance(hooks, list) or not hooks:
        return False
    return all(isinstance(hook, dict) and _OURS.search(f"{hook.get('command')} ") for hook in hooks)


def _make_entry(tool: ToolConfig, event: str, command: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    line = shlex.join([*command, event, "--tool", tool.name, *options])
    seconds = tool.end_seconds if event == "SessionEnd" and tool.end_seconds else TIMEOUT_SECONDS
    timeout = seconds * (1000 if tool.milliseconds else 1)
    return {"hooks": [{"type": "command", "command": line, "timeout": timeout}]}


def _read_events(text: str) -> dict[str, Any]:
    data = json_text.read_json(text).data if text.strip() else {}
    if not isinstance(data, dict):
        raise ConfigurationBroken("the file is not an object")
    hooks = data.get("hooks", {})
    if not isinstance(hooks, dict):
        raise ConfigurationBroken("hooks is not an object")
    return hooks


def _remove_hook(text: str, event: str) -> str:
    return json_text.remove_items(text, ("hooks", event), is_ours) if text.strip() else text
