"""Commits the files of a workspace if its folder is a git repository.

Only files of the workspace are committed, from the working tree. What the user has staged stays staged, and a file that
the user has staged is not committed. Nothing that the repository configures is executed (`repository.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence

import msgspec

from perdure.errors import PathRefused, ValueTooLarge
from perdure.presence.workspace.layout import ARCHIVED, FOLDERS, MARKER, TOP, is_path, original_path
from perdure.presence.workspace.repository import (
    EXECUTABLE,
    FILE,
    GIT,
    TREE,
    GitEntry,
    GitRepository,
    GitTree,
    NotCommitted,
    make,
    open_repository,
)
from perdure.presence.workspace.root import WorkspaceRoot

_EXCLUDED = f"{MARKER}\n.*.part\n"
_SUBTREES = ("", *FOLDERS, ARCHIVED)
_IN_NAMES = re.compile(r"[<>\x00-\x1f\x7f]+")
_BLANK_LINES = re.compile(r"\n{3,}")

GitFiles = dict[str, GitEntry | None]
"""By path, the current entry; None if the file is gone."""


class GitCommit(msgspec.Struct, frozen=True):
    """The id of a commit, or why there is none."""

    commit: str = ""
    note: str = ""


def is_repository(root: WorkspaceRoot) -> bool:
    """Return whether the folder has a `.git`."""
    return os.path.lexists(os.path.join(root.path, GIT))


def prepare(root: WorkspaceRoot, wanted: bool) -> str:
    """Make the folder a repository if wanted. Returns a note if that fails."""
    if not wanted or is_repository(root):
        return ""
    try:
        make(root)
    except NotCommitted as error:
        return f"{error}: nothing was committed"
    return ""


def commit(root: WorkspaceRoot, agent: str, there: Sequence[str], message: str) -> GitCommit:
    """Commit the current files of the workspace, if the folder is a repository."""
    if not is_repository(root):
        return GitCommit()
    if shutil.which("git") is None:
        return GitCommit(note="git is not installed: nothing was committed")
    if os.path.islink(git := os.path.join(root.path, GIT)) or not os.path.isdir(git):
        return GitCommit(note=f"{git} is a link or a file, as in a worktree or a submodule: nothing was committed")
    try:
        _exclude(root)
        with open_repository(root) as repository:
            return GitCommit(_commit_changes(root, repository, agent, there, message))
    except (NotCommitted, PathRefused, ValueTooLarge, OSError) as error:
        return GitCommit(note=f"{error}: nothing was committed")


def _commit_changes(
    root: WorkspaceRoot, repository: GitRepository, agent: str, there: Sequence[str], message: str
) -> str:
    trees = repository.trees(_SUBTREES)
    known, staged = _ours(trees), repository.read_index_entries((*TOP, *FOLDERS))
    index = {path: entry for path, entry in staged.items() if _is_ours(path)}
    his = {path for path in {*known, *index} if known.get(path) != index.get(path)}
    new = {path for path in there if path not in index and path not in his and _has_room(path, trees)}
    new -= repository.find_ignored(sorted(new)) if new else set()
    changed = _find_changed(root, repository, sorted(new | {*known} - his), known)
    if not changed:
        return ""
    told = _clean_message(message)
    if not told:
        raise NotCommitted("the commit message is empty")
    name = _IN_NAMES.sub(" ", agent).strip() or "agent"
    who = f"{name} <agent@perdure.invalid> {int(time.time())} {time.strftime('%z')}"
    oid = repository.put_commit(_write_trees(repository, trees, changed), who, told)
    repository.advance(oid, changed, who, told.partition("\n")[0])
    return oid


def _ours(trees: dict[str, GitTree]) -> dict[str, GitEntry]:
    """Return the files of the workspace in the last commit."""
    files = ((folder, name, entry) for folder, tree in trees.items() for name, entry in tree.items())
    found = {f"{folder}/{name}" if folder else name: entry for folder, name, entry in files if entry[0] != TREE}
    return {path: entry for path, entry in found.items() if _is_ours(path)}


def _is_ours(path: str) -> bool:
    """Return whether a path is a workspace file. The same folders may hold others."""
    return is_path(original_path(path)) if path.startswith(f"{ARCHIVED}/") else is_path(path)


def _has_room(path: str, trees: dict[str, GitTree]) -> bool:
    """Return whether the last commit has no file, link or submodule in place of a parent folder."""
    folder = path.rpartition("/")[0]
    if not folder:
        return True
    above, _, own = folder.rpartition("/")
    there = trees.get(above, {}).get(own)
    return (there is None or there[0] == TREE) and _has_room(folder, trees)


def _find_changed(
    root: WorkspaceRoot, repository: GitRepository, paths: Sequence[str], known: dict[str, GitEntry]
) -> GitFiles:
    """Return the files that differ from the last commit. Unreadable files stay as they were."""
    found = GitFiles()
    for path in paths:
        try:
            data = root.read(path)
        except (PathRefused, ValueTooLarge, OSError):
            continue  # sync reports it
        before, mode = known.get(path), EXECUTABLE if root.is_executable(path) else FILE
        now = None if data is None else (mode, repository.blob(data))
        if data is not None and now != before:
            repository.put_blob(data)
        if now != before:
            found[path] = now
    return found


def _write_trees(repository: GitRepository, trees: dict[str, GitTree], changed: GitFiles) -> str:
    """Write the changed trees, innermost first. Returns the id of the root."""
    trees = {folder: dict(tree) for folder, tree in trees.items()}
    for path, entry in changed.items():
        folder, _, name = path.rpartition("/")
        _set_entry(trees.setdefault(folder, {}), name, entry)
    for folder in sorted({path.rpartition("/")[0] for path in changed} - {""}, key=len, reverse=True):
        while folder:
            above, _, name = folder.rpartition("/")
            oid = repository.put_tree(trees[folder]) if trees[folder] else ""
            _set_entry(trees.setdefault(above, {}), name, (TREE, oid) if oid else None)
            folder = above
    return repository.put_tree(trees.get("", {}))


def _set_entry(tree: GitTree, name: str, entry: GitEntry | None) -> None:
    if entry is not None:
        tree[name] = entry
    else:
        tree.pop(name, None)


def _clean_message(message: str) -> str:
    lines = (line.rstrip() for line in message.replace("\0", "").split("\n"))
    text = _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip("\n")
    return f"{text}\n" if text else ""


def _exclude(root: WorkspaceRoot) -> None:
    """Exclude the marker of the folder from git: a clone is not synced with anything yet."""
    path = f"{GIT}/info/exclude"
    before = root.read(path) or b""
    if _EXCLUDED.encode() not in before:
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        root.write(path, before + gap + _EXCLUDED.encode())
