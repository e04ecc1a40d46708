"""Which files a workspace has, how they are called, and what stands in new ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date

from ..errors import PathRefused
from ..hints import near

SOUL, USER, AGENTS, MEMORY = "SOUL.md", "USER.md", "AGENTS.md", "MEMORY.md"
PROGRESS, HANDOFF, OLD_PROGRESS = "PROGRESS.md", "HANDOFF.md", "claude-progress.txt"
LOGS, TASKS, CONTEXTS = "memory", "tasks", "contexts"
ARCHIVE = "archive"
"""The folder in `memory` with the logs that have become old."""
ARCHIVED = f"{LOGS}/{ARCHIVE}"
MARKER = ".perdure-workspace"
"""Says whose workspace it is, and what each file was last in step with."""

IDENTITY = (SOUL, USER, AGENTS)
GENERATED = (PROGRESS, HANDOFF)
TOP = (*IDENTITY, MEMORY, *GENERATED, OLD_PROGRESS)
FOLDERS = (LOGS, TASKS, CONTEXTS)

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAME_CHARACTERS_MAX = 60
_NAME = re.compile(rf"\w[\w .+-]{{0,{_NAME_CHARACTERS_MAX - 1}}}")

NEW = {
    SOUL: "# Soul\n\nWho I am, how I speak, what I care about.\n",
    USER: "# User\n\nWho I work for, and what they like.\n",
    AGENTS: "# Agents\n\nHow work is done here: rules, commands, conventions.\n",
    MEMORY: "# Memory\n\nWhat I know for longer than a day.\n",
}
"""What a new workspace begins with. People write over it."""


def path_in(folder: str, name: str) -> str:
    """The file of a task, a context or a day."""
    return checked_path(f"{folder}/{name.removesuffix('.md')}.md")


def log_of(day: date) -> str:
    """The file of a day."""
    return f"{LOGS}/{day.isoformat()}.md"


def archive_of(path: str) -> str:
    """Where the log of a day is when it has become old."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{ARCHIVE}/{name}"


def archived_from(path: str) -> str:
    """Where it was before."""
    return path.replace(f"/{ARCHIVE}/", "/", 1)


def day_of(path: str) -> date | None:
    """The day of a log; of another file none."""
    folder, _, name = path.rpartition("/")
    if folder != LOGS or not _DAY.fullmatch(name.removesuffix(".md")):
        return None
    try:
        return date.fromisoformat(name.removesuffix(".md"))
    except ValueError:  # the 31st of February
        return None


def is_path(path: str) -> bool:
    """Whether a workspace may have that file."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return name in TOP
    if folder == LOGS:
        return day_of(path) is not None and name.endswith(".md")
    return folder in FOLDERS and name.endswith(".md") and bool(_NAME.fullmatch(name.removesuffix(".md")))


def checked_path(path: object) -> str:
    """A file of a workspace, else it is refused: nothing outside is ever named, read or written."""
    if not isinstance(path, str):
        raise TypeError(f"the path of a file is a str, not {path!r}")
    if is_path(path):
        return path
    folder, _, name = path.rpartition("/")
    if folder in (TASKS, CONTEXTS) and (long := len(name.removesuffix(".md"))) > _NAME_CHARACTERS_MAX:
        what = f"the name of a {folder.removesuffix('s')} has at most {_NAME_CHARACTERS_MAX} characters, not {long}"
        raise PathRefused(f"{path!r} is no file of a workspace: {what}", hint="give it a shorter name")
    known = (*TOP, *(f"{folder}/NAME.md" for folder in (TASKS, CONTEXTS)), f"{LOGS}/YYYY-MM-DD.md")
    close = near(path, known)
    raise PathRefused(f"{path!r} is no file of a workspace", hint=f"{close} There are {', '.join(known)}".strip())


def named(paths: Iterable[str], folder: str) -> list[str]:
    """The names of the files in a folder, without `.md`."""
    return sorted(path[len(folder) + 1 : -3] for path in paths if path.startswith(f"{folder}/"))


_OVER = re.compile(r"^\W*status\W+(done|completed?|closed|cancell?ed|finished|archived)\b", re.IGNORECASE)
_BOX = re.compile(r"^\s*[-*+]\s+\[([ xX])\]\s", re.MULTILINE)


def is_active(task: str) -> bool:
    """Whether a task is to be done: it does not say `status: done`, nor has it boxes that are all ticked."""
    if any(_OVER.match(line) for line in task.split("\n")[:10]):
        return False
    boxes = _BOX.findall(task)
    return not boxes or " " in boxes
