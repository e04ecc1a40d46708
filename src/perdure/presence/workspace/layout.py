"""The files of a workspace: names, and initial contents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date

from perdure.errors import PathRefused, WrongType
from perdure.values.hints import did_you_mean

SOUL, USER, AGENTS, MEMORY = "SOUL.md", "USER.md", "AGENTS.md", "MEMORY.md"
PROGRESS, HANDOFF, OLD_PROGRESS = "PROGRESS.md", "HANDOFF.md", "claude-progress.txt"
LOGS, TASKS, CONTEXTS, PLAYBOOKS = "memory", "tasks", "contexts", "playbooks"
ARCHIVE = "archive"
"""The folder in `memory` for old logs."""
ARCHIVED = f"{LOGS}/{ARCHIVE}"
MARKER = ".perdure-workspace"
"""The file that records the owner of a workspace, and what each file was last synced with."""

IDENTITY = (SOUL, USER, AGENTS)
GENERATED = (PROGRESS, HANDOFF)
TOP = (*IDENTITY, MEMORY, *GENERATED, OLD_PROGRESS)
FOLDERS = (LOGS, TASKS, CONTEXTS, PLAYBOOKS)

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAME_CHARACTERS_MAX = 60
_NAME = re.compile(rf"\w[\w .+-]{{0,{_NAME_CHARACTERS_MAX - 1}}}")

NEW = {
    SOUL: "# Soul\n\nWho I am, how I speak, what I care about.\n",
    USER: "# User\n\nWho I work for, and what they like.\n",
    AGENTS: "# Agents\n\nHow work is done here: rules, commands, conventions.\n",
    MEMORY: "# Memory\n\nWhat I know for longer than a day.\n",
}
"""The initial contents of a workspace, for people to overwrite."""


def path_in(folder: str, name: str) -> str:
    """Return the path of a task, a context, a playbook or a log."""
    return check_path(f"{folder}/{name.removesuffix('.md')}.md")


def log_of(day: date) -> str:
    """Return the path of a day's log."""
    return f"{LOGS}/{day.isoformat()}.md"


def archive_of(path: str) -> str:
    """Return the path of an archived log."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{ARCHIVE}/{name}"


def original_path(path: str) -> str:
    """Return the path of a log before it was archived."""
    return path.replace(f"/{ARCHIVE}/", "/", 1)


def day_of(path: str) -> date | None:
    """Return the day of a log; None for another file."""
    folder, _, name = path.rpartition("/")
    if folder != LOGS or not _DAY.fullmatch(name.removesuffix(".md")):
        return None
    try:
        return date.fromisoformat(name.removesuffix(".md"))
    except ValueError:  # for example the 31st of February
        return None


def is_path(path: str) -> bool:
    """Return whether a workspace may have that file."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return name in TOP
    if folder == LOGS:
        return day_of(path) is not None and name.endswith(".md")
    return folder in FOLDERS and name.endswith(".md") and bool(_NAME.fullmatch(name.removesuffix(".md")))


def check_path(path: object) -> str:
    """Validate the path of a workspace file. Paths outside the workspace are refused."""
    if not isinstance(path, str):
        raise WrongType(f"the path of a file must be a str, not {path!r}")
    if is_path(path):
        return path
    folder, _, name = path.rpartition("/")
    if folder in (TASKS, CONTEXTS, PLAYBOOKS) and (long := len(name.removesuffix(".md"))) > _NAME_CHARACTERS_MAX:
        what = f"the name of a {folder.removesuffix('s')} has at most {_NAME_CHARACTERS_MAX} characters, not {long}"
        raise PathRefused(f"{path!r} is not a workspace file: {what}", hint="give it a shorter name")
    known = (*TOP, *(f"{folder}/NAME.md" for folder in (TASKS, CONTEXTS, PLAYBOOKS)), f"{LOGS}/YYYY-MM-DD.md")
    close = did_you_mean(path, known)
    raise PathRefused(f"{path!r} is not a workspace file", hint=f"{close} There are {', '.join(known)}".strip())


def list_names(paths: Iterable[str], folder: str) -> list[str]:
    """Return the names of the files in a folder, without `.md`."""
    return sorted(path[len(folder) + 1 : -3] for path in paths if path.startswith(f"{folder}/"))


_OVER = re.compile(r"^\W*status\W+(done|completed?|closed|cancell?ed|finished|archived)\b", re.IGNORECASE)
_BOX = re.compile(r"^\s*[-*+]\s+\[([ xX])\]\s", re.MULTILINE)


def is_active(task: str) -> bool:
    """Return whether a task is open: it has no `status: done`, and not all of its boxes are ticked."""
    if any(_OVER.match(line) for line in task.split("\n")[:10]):
        return False
    boxes = _BOX.findall(task)
    return not boxes or " " in boxes
