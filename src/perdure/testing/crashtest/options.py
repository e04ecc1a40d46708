"""The options of a crash test."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from perdure.store import hide_password, is_postgres
from perdure.testing.crashtest.messages import CrashtestProblem
from perdure.testing.crashtest.report import ONLY_HERE

LIMIT = 80
"""The default number of tries."""

BUDGET_SECONDS = 600.0
"""The default time for all tries."""


class CrashtestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a crash test."""

    program: str
    arguments: tuple[str, ...] = ()
    folder: str = ""
    store: str = ""
    depth: int = 1
    jobs: int = 0
    count_effects: str = ""
    answers: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    limit: int = LIMIT
    budget: float = BUDGET_SECONDS
    only: tuple[str, ...] = ()
    timeout: float = 0
    keep: bool = False

    def command(self) -> str:
        """Return the equivalent command, without passwords, and with a mark where --only belongs."""
        words = ["perdure", "crashtest", self.program]
        store = hide_password(self.store) if is_postgres(self.store) else self.store
        for option, value in (("--folder", self.folder), ("--store", store), ("--count-effects", self.count_effects)):
            words += [option, value] if value else []
        for option, values in (("--answer", self.answers), ("--event", self.events)):
            words += [word for value in values for word in (option, value)]
        words += ["--timeout", f"{self.timeout:g}s"] if self.timeout else []
        rest = shlex.join(["--", *self.arguments]) if self.arguments else ""
        return f"{shlex.join(words)} {ONLY_HERE} {rest}".rstrip()

    def locate_program(self) -> tuple[Path, str]:
        """Return the folder to copy, and the program in it."""
        program = Path(self.program).resolve()
        if not program.is_file():
            raise CrashtestProblem(
                f"no program {self.program}", hint="pass the path of a Python file, without `python` before it"
            )
        here = Path(self.folder).resolve() if self.folder else Path.cwd()
        if not program.is_relative_to(here):
            if self.folder:
                raise CrashtestProblem(
                    f"{self.program} is not in {self.folder}", hint="--folder must contain the program"
                )
            here = program.parent
        return here, program.relative_to(here).as_posix()
