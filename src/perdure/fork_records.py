"""The records of runs that branch off others, and of those that go back. `records.py` has all others."""

from __future__ import annotations

from .plan_records import Record


class Override(Record, frozen=True):
    """A recorded call has another result in the fork."""

    seq: int
    """The entry that ended it."""
    result: bytes


class OpenQuestion(Record, frozen=True):
    """Something that the origin waited for at the cut, and that the fork waits for by itself."""

    seq: int
    about: int
    kind: str
    text: str
    at: int


class Forked(Record, frozen=True):
    """The first entry of a run that has the beginning of another one: its entries up to `cut` come before this one.

    It has the number after the cut, so that every number means one entry of the fork, wherever that is stored.
    """

    agent: str
    run: str
    origin: int
    """The stream that has the entry `cut`; never one that only shares it."""
    of: str
    """The run that was forked."""
    cut: int
    head: bytes
    """The link of the entry `cut`: the beginning is that one, and no other."""
    fence: int
    """Not below any of the origin, so that no number of a fence stands for two holders."""
    input: bytes = b""
    """Another input than the origin's, if any."""
    input_digest: bytes = b""
    overrides: tuple[Override, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()


class Back(Record, frozen=True):
    """A key of a run's own state has the value again that it had; empty: it was not there."""

    key: str
    value: bytes = b""


class Undone(Record, frozen=True):
    """The run goes back to right after the entry `to`: what it recorded since then is not there for it any more.

    On replay the code first goes through all of it, then through this, then through what came after.
    """

    to: int
    steps: int
    inside: bool
    """Asked for by the code of the run, which asks for it again on replay; else by somebody while it was not open."""
    kept: tuple[int, ...] = ()
    """The intents of effects after `to` that stay recorded, because they have happened, or may have."""
    state: tuple[Back, ...] = ()
    closes: tuple[int, ...] = ()
    """Questions that are not asked any more."""
    by: str = ""
