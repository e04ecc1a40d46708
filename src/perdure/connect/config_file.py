"""One configuration file of a tool: what is in it, what it would become, and the write with a backup."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from perdure.connect import hook_entries, json_text, plugin_file, toml_text
from perdure.connect.tools import NAME, Entry, ToolConfig
from perdure.errors import ConfigurationBroken
from perdure.platform.files import replace_file

BYTES_MAX = 32 * 1024 * 1024
FILE_MODE = 0o600


class ConfigChange(msgspec.Struct, frozen=True):
    """A change of one file. Nothing is written before `apply`."""

    path: Path
    before: str | None
    """None if there is no file yet."""
    after: str | None
    """None if the file is to be removed."""

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after

    def diff(self) -> str:
        """Return the difference, as `diff -u` shows it."""
        old, new = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        lines = difflib.unified_diff(old, new, str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self, backups: Path) -> Path | None:
        """Write the file, after saving the old one. Returns the backup."""
        target = Path(os.path.realpath(self.path))  # a link to a file elsewhere stays a link
        if _read(self.path) != self.before:
            raise ConfigurationBroken(f"{self.path} was changed meanwhile; nothing was written", hint="try again")
        saved = _save(self.path, self.before, self.after, backups)
        if self.after is None:
            target.unlink()
            return saved
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else FILE_MODE
        replace_file(target, self.after.encode(), mode=mode)
        return saved


def plan_connect(tool: ToolConfig, path: Path, entry: Entry) -> ConfigChange:
    """Return the change that adds our entry to a file."""
    before = _read(path)
    text, where = before or "", (*tool.key, NAME)
    is_toml = path.suffix == ".toml"
    try:
        after = toml_text.set_table(text, where, entry) if is_toml else json_text.set_entry(text, where, entry)
        _check_rest(text, after, where, is_toml)
    except ConfigurationBroken as error:
        raise _refused(path, error) from error
    return ConfigChange(path, before, after)


def plan_disconnect(tool: ToolConfig, path: Path, backups: Path) -> ConfigChange:
    """Return the change that takes our entry back. A file that only we have changed becomes what it was."""
    before = _read(path)
    known = _find_saved(path, before, backups)
    if before is None or known is not None:
        return ConfigChange(path, before, known.before if known is not None else None)
    where, is_toml = (*tool.key, NAME), path.suffix == ".toml"
    try:
        after = toml_text.remove_table(before, where) if is_toml else json_text.remove_entry(before, where)
        _check_rest(before, after, where, is_toml)
    except ConfigurationBroken as error:
        raise _refused(path, error) from error
    return ConfigChange(path, before, after)


def plan_hooks(tool: ToolConfig, path: Path, command: Sequence[str], options: Sequence[str]) -> ConfigChange:
    """Return the change that adds our hooks to a file."""
    if plugin_file.is_plugin(path):
        return _plan_plugin(path, partial(plugin_file.make_plugin, command=command, options=options))
    return _plan_hook_edit(path, _read(path), partial(_add_hooks, tool, command, options))


def plan_no_hooks(path: Path, backups: Path) -> ConfigChange:
    """Return the change that takes our hooks back. A file that only we have changed becomes what it was."""
    before = _read(path)
    known = _find_saved(path, before, backups)
    if before is None or known is not None:
        return ConfigChange(path, before, known.before if known is not None else None)
    if plugin_file.is_plugin(path):
        return _plan_plugin(path, plugin_file.remove_plugin)
    return _plan_hook_edit(path, before, hook_entries.remove_hooks)


def _plan_plugin(path: Path, edit: Callable[[str], str]) -> ConfigChange:
    before = _read(path)
    try:
        return ConfigChange(path, before, edit(before or "") or None)
    except ConfigurationBroken as error:
        raise _refused(path, error) from error


def merge_hooks(change: ConfigChange, tool: ToolConfig, command: Sequence[str], options: Sequence[str]) -> ConfigChange:
    """Add our hooks to a change of a file that has servers and hooks. An empty `command` removes them."""
    edit = hook_entries.remove_hooks
    if command:
        edit = partial(_add_hooks, tool, command, options)
    hooked = _plan_hook_edit(change.path, change.after, edit)
    return ConfigChange(change.path, change.before, hooked.after)


def read_hooks(tool: ToolConfig, path: Path) -> list[Any]:
    """Return our hooks in a file. Raises `ConfigurationBroken`."""
    if plugin_file.is_plugin(path):
        return plugin_file.read_plugin(_read(path) or "", len(tool.hook_events))
    try:
        return hook_entries.find_hooks(_read(path) or "")
    except ConfigurationBroken as error:
        raise _refused(path, error) from error


def _add_hooks(tool: ToolConfig, command: Sequence[str], options: Sequence[str], text: str) -> str:
    return hook_entries.add_hooks(tool, text, command, options)


def _plan_hook_edit(path: Path, before: str | None, edit: Callable[[str], str]) -> ConfigChange:
    try:
        after = edit(before or "")
        old, new = (json_text.read_json(text).data if text.strip() else {} for text in (before or "", after))
        if hook_entries.without_hooks(old) != hook_entries.without_hooks(new):
            raise ConfigurationBroken("an edit would change more than the hooks of Perdure", hint="edit it by hand")
    except ConfigurationBroken as error:
        raise _refused(path, error) from error
    return ConfigChange(path, before, after if after.strip() or before is not None else None)


def read_entry(tool: ToolConfig, path: Path) -> Any:
    """Return our entry in a file; None if it has none. Raises `ConfigurationBroken`."""
    text = _read(path)
    if text is None or not text.strip():
        return None
    try:
        data = toml_text.read_toml(text) if path.suffix == ".toml" else json_text.read_json(text).data
    except ConfigurationBroken as error:
        raise _refused(path, error) from error
    for key in (*tool.key, NAME):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _refused(path: Path, error: ConfigurationBroken) -> ConfigurationBroken:
    hint = error.hint or "repair it, or move it away; then try again"
    return ConfigurationBroken(f"{path}, {error.message}; the file was left as it is", hint=hint)


def _check_rest(before: str, after: str, where: tuple[str, ...], is_toml: bool) -> None:
    """Make sure that the edit has changed our entry and nothing else."""
    old, new = (
        (toml_text.read_toml(text) if is_toml else json_text.read_json(text).data) if text.strip() else {}
        for text in (before, after)
    )
    if _without(old, where) != _without(new, where):
        raise ConfigurationBroken("an edit would change more than the entry of Perdure", hint="edit it by hand")


def _without(data: Any, where: tuple[str, ...]) -> Any:
    """Return the data without our entry, and without objects that are empty then."""
    if not isinstance(data, dict):
        return data
    first, *rest = where
    inner = _without(data.get(first), tuple(rest)) if rest else None
    others = {key: value for key, value in data.items() if key != first}
    return {**others, first: inner} if inner else others


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > BYTES_MAX:
            raise ConfigurationBroken(f"{path} has more than {BYTES_MAX:,} bytes; it was left as it is")
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigurationBroken(f"{path} is not UTF-8; it was left as it is") from error


class _SavedFile(msgspec.Struct, frozen=True):
    """A file as it was before we changed it."""

    path: str
    before: str | None
    after: str
    """The digest of what we wrote."""


def _save(path: Path, before: str | None, after: str | None, backups: Path) -> Path | None:
    """Save a file before it is changed, so that the change can be taken back exactly."""
    backups.mkdir(parents=True, exist_ok=True, mode=0o700)
    saved = backups / f"{path.name.lstrip('.')}-{_digest(str(path))[:12]}.json"
    earlier = _find_saved(path, before, backups)  # connecting again keeps what was there before the first time
    original = earlier.before if earlier is not None else before
    known = _SavedFile(str(path), original, _digest(after) if after is not None else "")
    replace_file(saved, json.dumps(msgspec.structs.asdict(known), indent=2).encode(), mode=FILE_MODE)
    return saved


def _find_saved(path: Path, now: str | None, backups: Path) -> _SavedFile | None:
    """Return the saved file if nobody has changed the file since we did."""
    saved = backups / f"{path.name.lstrip('.')}-{_digest(str(path))[:12]}.json"
    if now is None or not saved.exists():
        return None
    try:
        known = msgspec.json.decode(saved.read_bytes(), type=_SavedFile)
    except msgspec.DecodeError:
        return None
    return known if known.path == str(path) and known.after == _digest(now) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
