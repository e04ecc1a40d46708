"""Records of forks, of undo, and of replays that differ."""

from __future__ import annotations

from perdure.records.base import Record


class ResultOverride(Record, frozen=True):
    """A recorded call that has another result in the fork."""

    seq: int
    """The entry that ended the call."""
    result: bytes


class OpenQuestion(Record, frozen=True):
    """A question or wait that was open at the cut. The fork waits for it on its own."""

    seq: int
    about: int
    kind: str
    text: str
    at: int


class Forked(Record, frozen=True):
    """The first entry of a fork. The entries of the origin up to `cut` come before it.

    It has the number after the cut, so every number identifies one entry of the fork, wherever that is stored.
    """

    agent: str
    run: str
    origin: int
    """The stream that holds the entry `cut`, not one that only shares it."""
    of: str
    """The run that was forked."""
    cut: int
    head: bytes
    """The chain link of the entry `cut`, which pins the shared beginning."""
    fence: int
    """At least as high as any of the origin, so that no fencing token stands for two holders."""
    input: bytes = b""
    """An input that differs from the origin's, if any."""
    input_digest: bytes = b""
    overrides: tuple[ResultOverride, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()


class StateReset(Record, frozen=True):
    """A key of a run's own state that was reset; an empty value means that it did not exist."""

    key: str
    value: bytes = b""


class Undone(Record, frozen=True):
    """The run goes back to right after the entry `to`. It no longer sees what it recorded since then.

    On replay the code first passes through all of it, then through this entry, then through what came after.
    """

    to: int
    steps: int
    inside: bool
    """Whether the code of the run asked for it, and asks again on replay.

    Otherwise someone did while it was not open.
    """
    kept: tuple[int, ...] = ()
    """The intents of effects after `to` that stay recorded, because they have happened or may have."""
    state: tuple[StateReset, ...] = ()
    closes: tuple[int, ...] = ()
    """Questions that are closed."""
    by: str = ""


class ReplayDiffered(Record, frozen=True):
    """The code reported another event, progress or usage than recorded. The recorded one stays."""

    what: str
    line: str
    """The line of the program; empty if unknown."""
