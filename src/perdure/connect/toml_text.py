"""Edits TOML as text: a table is added at the end, replaced or removed. Everything else stays as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.errors import ConfigurationBroken


def read_toml(text: str) -> dict[str, Any]:
    """Parse a text. Raises `ConfigurationBroken` with the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = found.group(1) if found is not None else str(text.count("\n") + 1)
        raise ConfigurationBroken(f"line {line}: {error}") from error


def set_table(text: str, path: Sequence[str], table: Mapping[str, Any]) -> str:
    """Return the text with a table at a path. An equal one changes nothing."""
    there = _look(read_toml(text), path)
    if there == dict(table):
        return text
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    block = "\n".join(lines) + "\n"
    if there is None:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return text + gap + block
    start, end = _span(text, path)
    return text[:start] + block + text[end:]


def remove_table(text: str, path: Sequence[str]) -> str:
    """Return the text without the table at a path."""
    if _look(read_toml(text), path) is None:
        return text
    start, end = _span(text, path)
    before, after = text[:start], text[end:]
    return before.removesuffix("\n") + after if before.endswith("\n\n") else before + after


def _look(data: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return None
        data = data[key]
    return data


def _span(text: str, path: Sequence[str]) -> tuple[int, int]:
    """Return where a table is, from its header to the next one. Its own sub-tables belong to it."""
    name = r"\s*\.\s*".join(rf"(?:{re.escape(key)}|\"{re.escape(key)}\")" for key in path)
    header = re.search(rf"^[ \t]*\[\s*{name}\s*\][^\n]*\n?", text, re.MULTILINE)
    if header is None:
        line = f"{'.'.join(path)} is written in a form that is not edited here"
        raise ConfigurationBroken(line, hint=f"make it a table of its own, [{'.'.join(path)}], or edit it by hand")
    following = re.compile(rf"^[ \t]*\[(?!\[?\s*{name}\s*\.)", re.MULTILINE).search(text, header.end())
    end = following.start() if following is not None else len(text)
    body = text[header.end() : end]
    kept = re.search(r"(?:^[ \t]*(?:#[^\n]*)?\n)*\Z", body, re.MULTILINE) if following is not None else None
    return header.start(), end - len(kept.group()) if kept is not None else end


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
