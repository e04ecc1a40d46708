"""The records of tasks: runs that workers take from queues. `records.py` has all others."""

from __future__ import annotations

from .limits import NAME_CHARACTERS_MAX
from .plan_records import Record

NEVER = 1 << 62
"""A time that does not come: what waits for it is woken by something else."""

_IDENT_BYTES_MAX = 8 * NAME_CHARACTERS_MAX + 1
"""Two names and a space. A longer one was forged: to look for the space would take very long."""


class TaskQueued(Record, frozen=True, tag=60):
    """A run is to be done by whichever worker takes it."""

    owner: int
    """The stream of the agent."""
    agent: str
    run: str
    task: str
    queue: str
    input: bytes
    digest: bytes
    parent: int = 0
    """The stream of the run that has queued it, if any."""
    priority: int = 0
    key: str = ""
    """Runs of one key may be limited together."""
    not_before: int = 0
    """In milliseconds since 1970; 0 is at once."""
    again: int = 0
    """The number of the failure, if the run had failed before it was queued."""


class TaskAgain(Record, frozen=True, tag=61):
    """A run that is dead is to be tried again."""

    owner: int
    agent: str
    run: str
    after: int
    """The number of the failure that it is dead by."""
    by: str


class Want(Record, frozen=True):
    """What a parked run waits for: an `answer`, an `event` or the end of a `run`."""

    kind: str
    number: int = 0
    """What the answer is about; the number of the event."""
    stream: int = 0
    """Of the run that asks; of the agent of the run, whose end is waited for or that gets the event."""
    agent: str = ""
    run: str = ""
    name: str = ""

    @property
    def what(self) -> str:
        """By which the view finds who waits for it."""
        if self.kind == "answer":
            return f"answer {self.stream} {self.number}"
        if self.kind == "run":
            return f"run {self.stream} {self.run}"
        return event_wanted(self.stream, self.run, self.name, self.number)


def event_wanted(owner: int, run: str, name: str, number: int) -> str:
    """The same of an event that was sent; names may hold spaces, so their lengths go along."""
    return f"event {owner} {number} {len(run)} {run} {name}"


def run_awaited(agent: str, run: str) -> tuple[bytes, str]:
    """How a wait for the end of a run is recorded: what it is known by, and what it says."""
    return f"{agent} {run}".encode(), f"run {run!r}"


def awaited_run(ident: bytes, text: str) -> tuple[str, str] | None:
    """The agent and the run of it again. Both may have spaces in their names, and the second is told twice."""
    if len(ident) > _IDENT_BYTES_MAX:
        return None
    words = ident.decode("utf-8", "replace").split(" ")
    for place in range(1, len(words)):
        agent, run = " ".join(words[:place]), " ".join(words[place:])
        if (ident, text) == run_awaited(agent, run):
            return agent, run
    return None


class TaskParked(Record, frozen=True):
    """A worker has left a run that waits: it is taken again when something of this comes, or at a time."""

    until: int
    """In milliseconds since 1970; `NEVER` if only what it waits for wakes it."""
    wants: tuple[Want, ...] = ()


class TaskTried(Record, frozen=True):
    """A worker begins with a run in which others have died, and has no other of that kind under way meanwhile."""
