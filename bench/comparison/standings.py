"""The records of a comparison: who takes part, and what each came to."""

from __future__ import annotations

import msgspec

SQLITE = "SQLite"
POSTGRES = "PostgreSQL"
TITLES = {"perdure": "Perdure", "dbos": "DBOS", "langgraph": "LangGraph", "floor": "bare commit"}
KINDS = {"perdure": "", "dbos": "step", "langgraph": "task", "floor": "insert"}


class Entrant(msgspec.Struct, frozen=True):
    """A system on a store. `kind` is "step", or "effect" for what Perdure does with the outside world."""

    system: str
    store: str
    kind: str = "step"

    @property
    def title(self) -> str:
        """As people read it, without the store."""
        kind = KINDS[self.system] or self.kind
        return TITLES[self.system] if self.system == "floor" else f"{TITLES[self.system]} {kind}"

    @property
    def ours(self) -> bool:
        """Whether it lives in our own environment."""
        return self.system in ("perdure", "floor")


class Speed(msgspec.Struct, frozen=True):
    """Of a chain of calls, each with a result of 1 KB; `cpu_ms` is processor time of the client, all threads."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    server_cpu_ms: float | None = None


class Costs(msgspec.Struct, frozen=True):
    """Of one call. What could not be counted is None; a file has no round trips."""

    statements: float
    syncs: float | None
    trips: float | None
    bytes: float


class Return(msgspec.Struct, frozen=True):
    """After SIGKILL in a new process, up to the end of the first new call.

    `short_ms`: from the death on, after 10 calls, Python and imports included. `long_ms`: from the end of the imports
    on, after 1,000 calls. `replay_ms`: going through these 1,000 alone.
    """

    short_ms: float
    long_ms: float
    replay_ms: float
    repeated: int
    """How many finished calls were run again, though they had returned before the kill."""


class Standing(msgspec.Struct, frozen=True):
    """What an entrant came to."""

    entrant: Entrant
    version: str
    durability: str
    speed: Speed
    costs: Costs | None = None
    back: Return | None = None


class Crash(msgspec.Struct, frozen=True):
    """One cell of the crash matrix: an effect, a death, a new process."""

    system: str
    store: str
    cell: str
    happened: list[int]
    """How often the effect had happened in the end, per trial."""
    noticed: str
    """What the program was told after the restart."""

    @property
    def times(self) -> str:
        """How often the effect happened, as people read it."""
        if len(set(self.happened)) == 1:
            return str(self.happened[0])
        often = [
            f"{times} in {self.happened.count(times)} of {len(self.happened)}" for times in sorted(set(self.happened))
        ]
        return ", ".join(often)
