"""Commits of a workspace in git, when its folder is a repository.

Only the files of the workspace are committed, from the working tree; what the user has staged stays staged, and a file
that he has staged himself is left for him. Nothing that the repository configures is run (`repository.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence

import msgspec

from ..errors import PathRefused, ValueTooLarge
from .layout import ARCHIVED, FOLDERS, MARKER, TOP, archived_from, is_path
from .repository import EXECUTABLE, FILE, GIT, TREE, Entry, NotCommitted, Repository, Tree, make, opened
from .root import Root

_EXCLUDED = f"{MARKER}\n.*.part\n"
_SUBTREES = ("", *FOLDERS, ARCHIVED)
_IN_NAMES = re.compile(r"[<>\x00-\x1f\x7f]+")
_BLANK_LINES = re.compile(r"\n{3,}")

Files = dict[str, Entry | None]
"""By path what a file is now; None when it is gone."""


class Committed(msgspec.Struct, frozen=True):
    """What became of it: the id of a commit, or why there is none."""

    commit: str = ""
    note: str = ""


def is_repository(root: Root) -> bool:
    """Whether there is anything that is called like a repository."""
    return os.path.lexists(os.path.join(root.path, GIT))


def prepare(root: Root, wanted: bool) -> str:
    """Make the folder a repository, if that is wanted; returns what could not be done."""
    if not wanted or is_repository(root):
        return ""
    try:
        make(root)
    except NotCommitted as error:
        return f"{error}: nothing was committed"
    return ""


def commit(root: Root, agent: str, there: Sequence[str], message: str) -> Committed:
    """Commit the files of the workspace as they are, if the folder is a repository."""
    if not is_repository(root):
        return Committed()
    if shutil.which("git") is None:
        return Committed(note="git is not installed: nothing was committed")
    if os.path.islink(git := os.path.join(root.path, GIT)) or not os.path.isdir(git):
        return Committed(note=f"{git} leads elsewhere, as in a worktree or a submodule: nothing was committed")
    try:
        _exclude(root)
        with opened(root) as repository:
            return Committed(_committed(root, repository, agent, there, message))
    except (NotCommitted, PathRefused, ValueTooLarge, OSError) as error:
        return Committed(note=f"{error}: nothing was committed")


def _committed(root: Root, repository: Repository, agent: str, there: Sequence[str], message: str) -> str:
    trees = repository.trees(_SUBTREES)
    known, staged = _ours(trees), repository.staged((*TOP, *FOLDERS))
    index = {path: entry for path, entry in staged.items() if _is_ours(path)}
    his = {path for path in {*known, *index} if known.get(path) != index.get(path)}
    new = {path for path in there if path not in index and path not in his and _has_room(path, trees)}
    new -= repository.ignored(sorted(new)) if new else set()
    changed = _changed(root, repository, sorted(new | {*known} - his), known)
    if not changed:
        return ""
    told = _cleaned(message)
    if not told:
        raise NotCommitted("the message of the commit is empty")
    name = _IN_NAMES.sub(" ", agent).strip() or "agent"
    who = f"{name} <agent@perdure.invalid> {int(time.time())} {time.strftime('%z')}"
    oid = repository.put_commit(_put(repository, trees, changed), who, told)
    repository.advance(oid, changed, who, told.partition("\n")[0])
    return oid


def _ours(trees: dict[str, Tree]) -> dict[str, Entry]:
    """The files of the workspace in the last commit."""
    files = ((folder, name, entry) for folder, tree in trees.items() for name, entry in tree.items())
    found = {f"{folder}/{name}" if folder else name: entry for folder, name, entry in files if entry[0] != TREE}
    return {path: entry for path, entry in found.items() if _is_ours(path)}


def _is_ours(path: str) -> bool:
    """Whether it is a file of the workspace: somebody may have others in folders of those names."""
    return is_path(archived_from(path)) if path.startswith(f"{ARCHIVED}/") else is_path(path)


def _has_room(path: str, trees: dict[str, Tree]) -> bool:
    """Whether the last commit has nothing else in the place of a file's folder: a file, a link or a submodule."""
    folder = path.rpartition("/")[0]
    if not folder:
        return True
    above, _, own = folder.rpartition("/")
    there = trees.get(above, {}).get(own)
    return (there is None or there[0] == TREE) and _has_room(folder, trees)


def _changed(root: Root, repository: Repository, paths: Sequence[str], known: dict[str, Entry]) -> Files:
    """Those of some files that are not what they were; one that cannot be read stays as it was."""
    found = Files()
    for path in paths:
        try:
            data = root.read(path)
        except (PathRefused, ValueTooLarge, OSError):
            continue  # the sync says so
        before, mode = known.get(path), EXECUTABLE if root.is_executable(path) else FILE
        now = None if data is None else (mode, repository.blob(data))
        if data is not None and now != before:
            repository.put_blob(data)
        if now != before:
            found[path] = now
    return found


def _put(repository: Repository, trees: dict[str, Tree], changed: Files) -> str:
    """Write the folders in which something has changed, the innermost first; returns the id of the whole."""
    trees = {folder: dict(tree) for folder, tree in trees.items()}
    for path, entry in changed.items():
        folder, _, name = path.rpartition("/")
        _set(trees.setdefault(folder, {}), name, entry)
    for folder in sorted({path.rpartition("/")[0] for path in changed} - {""}, key=len, reverse=True):
        while folder:
            above, _, name = folder.rpartition("/")
            oid = repository.put_tree(trees[folder]) if trees[folder] else ""
            _set(trees.setdefault(above, {}), name, (TREE, oid) if oid else None)
            folder = above
    return repository.put_tree(trees.get("", {}))


def _set(tree: Tree, name: str, entry: Entry | None) -> None:
    if entry is not None:
        tree[name] = entry
    else:
        tree.pop(name, None)


def _cleaned(message: str) -> str:
    lines = (line.rstrip() for line in message.replace("\0", "").split("\n"))
    text = _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip("\n")
    return f"{text}\n" if text else ""


def _exclude(root: Root) -> None:
    """What a folder says of itself is nobody else's: a clone is in step with nothing yet."""
    path = f"{GIT}/info/exclude"
    before = root.read(path) or b""
    if _EXCLUDED.encode() not in before:
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        root.write(path, before + gap + _EXCLUDED.encode())
