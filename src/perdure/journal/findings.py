"""What `verify` has to say: findings that name the entry, and a report of them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How bad it is."""

    DAMAGE = "damage"
    """Something is not as it was written."""
    UNSIGNED = "unsigned"
    """Nothing is wrong, but nobody has signed it: whoever can write the file could have rewritten it."""


class What(StrEnum):
    """What happened to an entry, a seal, a stream or an object."""

    EDITED = "edited"
    ADDED = "added"
    REMOVED = "removed"
    TRUNCATED = "truncated"
    REWRITTEN = "rewritten"
    UNREADABLE = "unreadable"
    SEAL = "seal"
    STREAM = "stream"
    OBJECT = "object"
    FILE = "file"
    ANCHOR = "anchor"
    ROLLED_BACK = "rolled back"
    FORKED = "forked"
    UNSIGNED = "unsigned"


class Finding(msgspec.Struct, frozen=True):
    """One thing, and where: `stream` and `seq` are 0 where they do not apply."""

    what: What
    text: str
    stream: int = 0
    seq: int = 0
    run: str = ""
    """The run that the stream belongs to, or the stream's name."""
    severity: Severity = Severity.DAMAGE


class Arrived(msgspec.Struct, frozen=True):
    """An agent that came out of a file; see `house_records.AgentArrived`."""

    agent: str
    how: str
    at: int
    store: str
    """The one that it came from."""
    number: str
    file: str


class Report(msgspec.Struct, frozen=True):
    """All that was looked at, and what was found."""

    streams: int
    entries: int
    seals: int
    objects: int
    erased: int
    """Entries whose payload was erased; their digest keeps the chain."""
    unsealed: int
    """Entries after the last signed head of their stream: an open run has some."""
    findings: tuple[Finding, ...]
    left_off: int
    """Findings beyond the number that is kept."""
    arrivals: tuple[Arrived, ...] = ()
    """Agents that moved here, or are copies. One file that has arrived under two numbers is one agent twice."""

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged. What is merely unsigned is no damage."""
        return not self.left_off and all(finding.severity != Severity.DAMAGE for finding in self.findings)


FINDINGS_MAX = 1000


class Findings:
    """Collects findings, up to a number that fits into memory and into a reader's patience."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.left_off = 0

    def add(self, finding: Finding) -> None:
        """Keep it, or count it."""
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(finding)
        else:
            self.left_off += finding.severity == Severity.DAMAGE
