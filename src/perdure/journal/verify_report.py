"""The findings of `verify`, which locate the damage, and its report."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """The severity of a finding."""

    DAMAGE = "damage"
    """Data differs from what was written."""
    UNSIGNED = "unsigned"
    """No damage, but no signature either: anybody who can write the file could have rewritten it."""


class FindingKind(StrEnum):
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


class VerifyFinding(msgspec.Struct, frozen=True):
    """One finding and its location; `stream` and `seq` are 0 where they do not apply."""

    what: FindingKind
    text: str
    stream: int = 0
    seq: int = 0
    run: str = ""
    """The run that the stream belongs to, or the stream's name."""
    severity: Severity = Severity.DAMAGE


class ArrivedAgent(msgspec.Struct, frozen=True):
    """An agent that was imported from a file; see `records.AgentArrived`."""

    agent: str
    how: str
    at: int
    store: str
    """The store that the agent came from."""
    number: str
    file: str


class VerifyReport(msgspec.Struct, frozen=True):
    """What was verified, and the findings."""

    streams: int
    entries: int
    seals: int
    objects: int
    erased: int
    """Entries whose payload was erased; their digest keeps the chain."""
    unsealed: int
    """Entries after the last signed head of their stream: an open run has some."""
    findings: tuple[VerifyFinding, ...]
    left_off: int
    """Damage findings beyond the limit of the report."""
    arrivals: tuple[ArrivedAgent, ...] = ()
    """Agents that moved here or are copies. The same file with two numbers means the same agent twice."""

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged; missing signatures are no damage."""
        return not self.left_off and all(finding.severity != Severity.DAMAGE for finding in self.findings)


FINDINGS_MAX = 1000


class FindingList:
    """Collects up to FINDINGS_MAX findings and counts the rest."""

    def __init__(self) -> None:
        self.kept: list[VerifyFinding] = []
        self.left_off = 0

    def add(self, finding: VerifyFinding) -> None:
        """Keep a finding, or count it."""
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(finding)
        else:
            self.left_off += finding.severity == Severity.DAMAGE
