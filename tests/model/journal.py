"""What is remembered: records in program order, scope in scope, each one a small state machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

Ident: TypeAlias = tuple[Hashable, ...]
"""How a record is found again in its scope. The first element is its kind: a key of TRANSITIONS."""

Code: TypeAlias = Generator[tuple[str, str], None, Any]
"""An operation under way: yields (point, path), returns what the operation returns."""

TRANSITIONS: dict[str, dict[str, set[str]]] = {
    # pending: an attempt failed and the count is durable. failed: no attempt is left.
    "step": {
        "new": {"pending", "done", "failed"},
        "pending": {"pending", "done", "failed"},
        "failed": {"pending", "done", "failed"},
    },
    # doubt: the body raised and check did not know, or the question about it is closed. asked: it is open.
    "effect": {
        "new": {"intent"},
        "intent": {"intent", "pending", "done", "failed", "doubt", "asked"},
        "pending": {"intent"},
        "doubt": {"intent", "done", "failed", "asked"},
        "asked": {"doubt", "done"},
        "failed": {"intent"},
    },
    "item": {"open": {"done"}},
    "write": {"new": {"done"}},
    "run": {
        "new": {"running"},
        "running": {"running", "waiting", "interrupted", "failed", "finished"},
        "waiting": {"running", "waiting", "interrupted", "failed", "finished"},
        "interrupted": {"running", "waiting"},
        "failed": {"running", "waiting"},
    },
}
"""A state that is not a key has no way out: what is done stays done."""

UNRESOLVED = {"intent", "doubt", "asked"}


def check_transition(kind: str, before: str, after: str) -> None:
    assert after in TRANSITIONS[kind].get(before, ()), f"{kind}: {before} -> {after}"


class Written(NamedTuple):
    """One write, evaluated."""

    what: Literal["state", "delete", "message", "event", "result"]
    key: str
    value: Any


@dataclass(slots=True, eq=False)
class Record:
    """A call, a write or an item. Compared by identity: two calls are never the same one."""

    ident: Ident
    state: str = "new"
    writes: tuple[Written, ...] = ()
    result: Any = None
    error: type[Exception] | None = None
    failures: int = 0
    past: bool = False
    """The run went past this failure, so that it is raised again on resume."""
    final: bool = False
    """A person decided that it failed: never run again."""
    key: int = 0
    fence: int = 0
    since: float = 0.0
    children: list[Record] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return str(self.ident[0])

    @property
    def writes_messages(self) -> bool:
        return any(write.what == "message" for write in self.writes)

    def move(self, to: str, **changes: Any) -> None:
        check_transition(self.kind, self.state, to)
        self.state = to
        for name, value in changes.items():
            setattr(self, name, value)


def durable(records: Iterable[Record], buffered: bool = False) -> list[Record]:
    """A copy of what is on disk: the writes in the body of an open item are only in the process's memory."""
    kept = []
    for record in records:
        if record.kind == "write" and buffered:
            continue
        children = durable(record.children, record.state == "open")
        if record.kind == "item" and record.state == "open" and not children:
            continue
        kept.append(replace(record, children=children))
    return kept


def flatten(records: Iterable[Record]) -> Iterator[Record]:
    """The records and what is in them, in program order."""
    for record in records:
        yield record
        yield from flatten(record.children)


def iterate_landed(records: Iterable[Record], buffered: bool = False) -> Iterator[Record]:
    """The records on disk that have written something, in program order."""
    for record in records:
        if record.writes and not (buffered and record.kind == "write"):
            yield record
        yield from iterate_landed(record.children, record.state == "open")


def writes_of(records: Iterable[Record]) -> Iterator[Written]:
    """What the records wrote, in program order; calls without an outcome have written nothing."""
    for record in records:
        yield from record.writes
        yield from writes_of(record.children)


@dataclass(frozen=True, slots=True)
class View:
    """Writes, compacted."""

    state: dict[str, int]
    messages: tuple[str, ...]
    events: tuple[str, ...]
    result: int | None

    @staticmethod
    def from_writes(writes: Iterable[Written]) -> View:
        every = list(writes)
        last = {write.key: write for write in every if write.what in ("state", "delete")}
        return View(
            {key: write.value for key, write in last.items() if write.what == "state"},
            tuple(write.value for write in every if write.what == "message"),
            tuple(write.key for write in every if write.what == "event"),
            next((item.value for item in reversed(every) if item.what == "result"), None),
        )


class Frame:
    """One process's way through one scope."""

    def __init__(self, records: list[Record], address: Ident = (), parent: Frame | None = None) -> None:
        self.records = records
        self.address = address
        self.parent = parent
        self.item: Record | None = None
        self._position = 0
        self._counts: Counter[Ident] = Counter()

    def innermost(self) -> Frame:
        """This scope, or the one around it once `run.item_done()` has closed this one."""
        closed = self.item is not None and self.item.state == "done"
        return self.parent.innermost() if closed and self.parent else self

    def nth(self, *ident: Hashable) -> int:
        """How often this has been asked before, in this scope and attempt."""
        self._counts[ident] += 1
        return self._counts[ident] - 1

    def find(self, ident: Ident) -> Record | None:
        return next((record for record in self.records if record.ident == ident), None)

    def add(self, record: Record) -> None:
        """Section 5, "Program order wins": after all that the code has come to, before what it has not."""
        self.records.insert(self._position, record)
        self._position += 1

    def reach(self, record: Record) -> None:
        self._position = max(self._position, self.records.index(record) + 1)

    def find_named(self, kind: str, name: str) -> Sequence[Record]:
        return [record for record in self.records if record.ident[:2] == (kind, name)]
