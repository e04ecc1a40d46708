"""The records of this comparison: which savers take part, and what each came to."""

from __future__ import annotations

import msgspec

from ..comparison.standings import POSTGRES, SQLITE

MEMORY = "memory"
KINDS = {"dicts": "dict messages", "messages": "LangChain messages"}


class Entry(msgspec.Struct, frozen=True):
    """A saver on a store."""

    saver: str
    store: str

    @property
    def ours(self) -> bool:
        """Whether it lives in our own environment."""
        return "Perdure" in self.saver

    @property
    def blocking(self) -> bool:
        """Whether it is called in threads."""
        return not self.saver.startswith("Async")


ENTRIES = [
    Entry("InMemorySaver", MEMORY),
    Entry("SqliteSaver", SQLITE),
    Entry("AsyncSqliteSaver", SQLITE),
    Entry("PerdureSaver", SQLITE),
    Entry("Async PerdureSaver", SQLITE),
    Entry("PostgresSaver", POSTGRES),
    Entry("AsyncPostgresSaver", POSTGRES),
    Entry("PerdureSaver", POSTGRES),
    Entry("Async PerdureSaver", POSTGRES),
]


class Times(msgspec.Struct, frozen=True):
    """Of some calls, in milliseconds."""

    p50: float
    p99: float


class Talked(msgspec.Struct, frozen=True):
    """What a conversation came to: `put` and `put_writes` of all steps, both together at its ends, its reads."""

    put: Times
    writes: Times
    first: Times
    last: Times
    last_put: Times
    """Of `put` alone, in the last hundred steps."""
    get: Times
    fresh_get_ms: float | None
    """The first one of a new process."""
    bytes: dict[int, int]
    """On disk, by the number of steps."""


class Looped(msgspec.Struct, frozen=True):
    """What a graph came to: milliseconds for a step and for `get_state` at its end, bytes on disk."""

    ms: float
    get_ms: float
    bytes: int | None = None


class SaverStanding(msgspec.Struct, frozen=True):
    """What a saver came to."""

    entry: Entry
    version: str
    durability: str
    talks: dict[str, Talked]
    loop: Looped
    alone: float
    """Steps per second of one conversation."""
    together: float
    """Of eight at once, all added up."""
    delta: Looped | None = None
    """A graph of 1,000 steps with a DeltaChannel."""
    plain: Looped | None = None
    """The same graph with an ordinary reducer."""
