"""Counts what happened in the outside world: the lines of a file, or the output of a command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

COMMAND_SECONDS_MAX = 60

_LONG = re.compile(r"\b(?=\w*\d)[\w-]{8,}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class OutsideWorld:
    """The place where effects are counted independently of Perdure."""

    def __init__(self, given: str | None) -> None:
        self.given = given
        self.is_command = bool(given) and shutil.which(shlex.split(given or "")[0]) is not None and not _is_file(given)

    @property
    def is_shared(self) -> bool:
        """Whether concurrent rounds would count each other's effects."""
        return self.is_command or bool(self.given and os.path.isabs(self.given))

    def file_in(self, folder: Path) -> str:
        """Return the file to watch; empty if there is none."""
        return str(folder / self.given) if self.given and not self.is_command else ""

    def lines(self, folder: Path, environment: dict[str, str]) -> list[str]:
        """Return the current lines."""
        if not self.given:
            return []
        if self.is_command:
            # Errors of the command before there is anything to count do not matter.
            told = subprocess.run(
                ["/bin/sh", "-c", self.given],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                timeout=COMMAND_SECONDS_MAX,
                check=False,
            )
            return told.stdout.splitlines()
        try:
            return (folder / self.given).read_text("utf-8", "backslashreplace").splitlines()
        except FileNotFoundError:
            return []


def _is_file(given: str | None) -> bool:
    return given is not None and os.path.isfile(given)


def find_added_lines(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Return the new lines, in order."""
    old, found = Counter(before), []
    for line in after:
        if old[line]:
            old[line] -= 1
        else:
            found.append(line)
    return found


LineNormalizer = Callable[[str], str]
"""Normalizes a line: removes what differs between runs."""

ANY_LINE = "a line"

READINGS: tuple[LineNormalizer, ...] = (
    lambda line: line,
    lambda line: _LONG.sub("…", line),
    lambda line: _NUMBER.sub("…", _LONG.sub("…", line)),
    lambda line: ANY_LINE,
)


def replace_keys(lines: Iterable[str], keys: Iterable[str]) -> list[str]:
    """Replace the keys of effects, which are new in every run."""
    known = [key for key in keys if key]
    if not known:
        return list(lines)
    pattern = re.compile("|".join(map(re.escape, known)))
    return [pattern.sub("KEY", line) for line in lines]


def choose_normalizer(runs: Sequence[Iterable[str]]) -> LineNormalizer:
    """Return the most exact normalization under which all undisturbed runs are equal."""
    for reading in READINGS:
        first, *rest = [Counter(map(reading, lines)) for lines in runs]
        if all(one == first for one in rest):
            return reading
    return READINGS[-1]
