"""Commits of a workspace in git, when its folder is a repository.

Only the files of the workspace are committed, from the working tree; what the user has staged stays staged, and a file
that he has staged himself is left for him.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import msgspec

from ..limits import GIT_SECONDS_MAX
from .layout import ARCHIVED, FOLDERS, MARKER, TOP, archived_from, is_path
from .root import Root

_QUIET = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "commit.gpgSign=false",
    "gc.auto=0",
)
"""No hook, daemon, passphrase or clean-up of somebody else's runs because an agent has made progress."""
_OURS = ("--", *TOP, *FOLDERS)
_NEW = ("--others", "--exclude-standard")
"""What somebody has told git to ignore is none of its business."""
_QUIETLY = ("--quiet", "--no-verify", "--cleanup=whitespace", "--file=-", "--only")
_EXCLUDED = f"{MARKER}\n.*.part\n"


class Committed(msgspec.Struct, frozen=True):
    """What became of it: the id of a commit, or why there is none."""

    commit: str = ""
    note: str = ""


def prepare(root: Root, make: bool) -> str:
    """Make the folder a repository, if that is wanted; returns what could not be done."""
    if not make or os.path.exists(os.path.join(root.path, ".git")):
        return ""
    done = _git(root, "init", "--quiet")
    return done.note


def commit(root: Root, agent: str, there: Sequence[str], message: str) -> Committed:
    """Commit the files of the workspace as they are, if the folder is a repository."""
    if not os.path.exists(os.path.join(root.path, ".git")):
        return Committed()
    _exclude(root)
    known, others = _git(root, "ls-files", "-z", *_OURS), _git(root, "ls-files", "-z", *_NEW, *_OURS)
    staged = _git(root, "diff", "--cached", "--name-only", "-z")
    if note := known.note or others.note or staged.note:
        return Committed(note=note)
    his, tracked = {*staged.text.split("\0")}, {*filter(_is_ours, known.text.split("\0"))}
    new = sorted({*there} & {*others.text.split("\0")} - his)
    wanted = sorted({*new} | tracked - his)
    changed = _git(root, "status", "--porcelain", "-z", "--untracked-files=all", "--", *wanted) if wanted else _Done()
    if changed.note or not changed.text:
        return Committed(note=changed.note)
    if new and (note := _git(root, "add", "--intent-to-add", "--", *new).note):
        return Committed(note=note)
    who = {"GIT_AUTHOR_NAME": agent, "GIT_AUTHOR_EMAIL": "agent@perdure.invalid"}
    who |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in who.items()}
    done = _git(root, "commit", *_QUIETLY, "--", *wanted, said=message, who=who)
    return Committed(note=done.note) if done.note else Committed(_git(root, "rev-parse", "HEAD").text.strip())


def _is_ours(path: str) -> bool:
    """Whether it is a file of the workspace: somebody may have others in folders of those names."""
    return is_path(archived_from(path)) if path.startswith(f"{ARCHIVED}/") else is_path(path)


def _exclude(root: Root) -> None:
    """What a folder says of itself is nobody else's: a clone is in step with nothing yet."""
    path = ".git/info/exclude"
    if not os.path.isdir(os.path.join(root.path, ".git")) or os.path.islink(os.path.join(root.path, ".git")):
        return  # a worktree or a submodule: the repository itself is elsewhere
    before = root.read(path) or b""
    if _EXCLUDED.encode() not in before:
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        root.write(path, before + gap + _EXCLUDED.encode())


class _Done(msgspec.Struct, frozen=True):
    text: str = ""
    note: str = ""


def _git(root: Root, *arguments: str, said: str = "", who: dict[str, str] | None = None) -> _Done:
    """One command. That git is missing, slow or unwilling is said, and is no reason to stop."""
    settings = [part for setting in _QUIET for part in ("-c", setting)]
    # Variables like GIT_DIR, in a hook say, would lead to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(who or {})}
    try:
        ended = subprocess.run(
            ["git", *settings, *arguments],
            cwd=root.path,
            env=environment,
            input=said.encode("utf-8", "replace"),
            capture_output=True,
            timeout=GIT_SECONDS_MAX,
            check=False,
        )
    except FileNotFoundError:
        return _Done(note="git is not installed: nothing was committed")
    except subprocess.TimeoutExpired:
        return _Done(note=f"git took longer than {GIT_SECONDS_MAX:g} s: nothing was committed")
    if ended.returncode:
        why = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        return _Done(note=f"git {arguments[0]} refused: {why[0] if why else ended.returncode}")
    return _Done(os.fsdecode(ended.stdout))
