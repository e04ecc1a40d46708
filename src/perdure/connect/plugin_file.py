"""A file that is ours as a whole: the plugin that brings hooks to OpenCode."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.errors import ConfigurationBroken

_MARK = "// Written by `perdure connect opencode`"
_COMMAND = re.compile(r"^const COMMAND = (\[.*\]);$", re.MULTILINE)


def is_plugin(path: Path) -> bool:
    """Whether hooks in this file are a program, not entries of a settings file."""
    return path.suffix == ".js"


def make_plugin(before: str, command: Sequence[str], options: Sequence[str]) -> str:
    """Return the file. One that somebody else has written is left alone."""
    _check(before)
    text = (Path(__file__).parent / "opencode_plugin.js").read_text()
    for name, value in (("COMMAND", command), ("OPTIONS", options)):
        text = text.replace(f"const {name} = [];", f"const {name} = {json.dumps(list(value))};", 1)
    return text


def remove_plugin(before: str) -> str:
    """Return what is left without our file: nothing."""
    _check(before)
    return ""


def read_plugin(text: str, events: int) -> list[Any]:
    """Return the hooks of the file in the form of entries, for checks."""
    found = _COMMAND.search(text) if text.startswith(_MARK) else None
    return [{"hooks": [{"command": shlex.join(json.loads(found[1]))}]}] * events if found is not None else []


def _check(before: str) -> None:
    if before.strip() and not before.startswith(_MARK):
        raise ConfigurationBroken("line 1: this file is not of Perdure", hint="move it away; then try again")
