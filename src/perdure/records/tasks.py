"""Records of tasks: runs that workers take from queues."""

from __future__ import annotations

from perdure.records.base import Record
from perdure.values.limits import NAME_CHARACTERS_MAX

NEVER = 1 << 62
"""A time that never comes: only something else wakes the waiter."""

_IDENT_BYTES_MAX = 8 * NAME_CHARACTERS_MAX + 1
"""Two names and a space. Anything longer is forged, and searching it for the space would take very long."""


class TaskQueued(Record, frozen=True, tag=60):
    """A run was queued for any worker."""

    owner: int
    """The stream of the agent."""
    agent: str
    run: str
    task: str
    queue: str
    input: bytes
    digest: bytes
    parent: int = 0
    """The stream of the run that queued it, if any."""
    priority: int = 0
    key: str = ""
    """Runs with the same key can be limited together."""
    not_before: int = 0
    """In milliseconds since 1970; 0 means at once."""
    again: int = 0
    """The number of the failure, if the run had failed before it was queued."""


class TaskAgain(Record, frozen=True, tag=61):
    """A dead-lettered run was queued again."""

    owner: int
    agent: str
    run: str
    after: int
    """The number of the failure that made it dead."""
    by: str


class WakeCondition(Record, frozen=True):
    """What a parked run waits for: an `answer`, an `event` or the end of a `run`."""

    kind: str
    number: int = 0
    """What the answer is about, or the number of the event."""
    stream: int = 0
    """The stream of the asking run, or of the agent whose run is awaited or receives the event."""
    agent: str = ""
    run: str = ""
    name: str = ""

    @property
    def what(self) -> str:
        """The key by which the view finds the waiters."""
        if self.kind == "answer":
            return f"answer {self.stream} {self.number}"
        if self.kind == "run":
            return f"run {self.stream} {self.run}"
        return event_wanted(self.stream, self.run, self.name, self.number)


def event_wanted(owner: int, run: str, name: str, number: int) -> str:
    """Return the key of an event. Names may contain spaces, so the key includes their lengths."""
    return f"event {owner} {number} {len(run)} {run} {name}"


def encode_awaited_run(agent: str, run: str) -> tuple[bytes, str]:
    """Return how a wait for the end of a run is recorded: its identity and its text."""
    return f"{agent} {run}".encode(), f"run {run!r}"


def decode_awaited_run(ident: bytes, text: str) -> tuple[str, str] | None:
    """Return the agent and the run of a recorded wait. Both names may have spaces; the text repeats the second."""
    if len(ident) > _IDENT_BYTES_MAX:
        return None
    words = ident.decode("utf-8", "replace").split(" ")
    for place in range(1, len(words)):
        agent, run = " ".join(words[:place]), " ".join(words[place:])
        if (ident, text) == encode_awaited_run(agent, run):
            return agent, run
    return None


class TaskParked(Record, frozen=True):
    """A worker has released a waiting run. It is taken again when a wanted thing arrives, or at a time."""

    until: int
    """In milliseconds since 1970; `NEVER` if only what it waits for wakes it."""
    wants: tuple[WakeCondition, ...] = ()


class TaskTried(Record, frozen=True):
    """A worker executes a run that other workers died with, one such run at a time."""
