"""Checkpoints that are wanted or not wanted any more, decided inside the commit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .. import records
from ..errors import StoreBusy
from ..store.base import Script, Statement


class Mark(msgspec.Struct, frozen=True):
    """A checkpoint to be made, or versions of one to be dropped."""

    owner: int
    name: str
    packed: bytes = b""
    objects: Sequence[Statement] = ()
    labels: tuple[str, ...] = ()
    meta: bytes = b""
    relies_on: int = 0
    """A version whose objects were not written again: it must still be there."""
    drops: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[int, str]:
        return (self.owner, self.name)


class Written(msgspec.Struct, frozen=True):
    """The last checkpoint of a name that this process has made: the next one need not write what it has."""

    version: int
    ids: frozenset[bytes]


class Shelf:
    """What this process remembers of the checkpoints of one agent."""

    def __init__(self) -> None:
        self._last: dict[str, Written] = {}

    def known(self, name: str) -> Written:
        """The last version, if this process knows it."""
        return self._last.get(name) or Written(0, frozenset())

    def remember(self, name: str, version: int, ids: frozenset[bytes]) -> None:
        """This is the last one now."""
        self._last[name] = Written(version, ids)

    def forget(self, name: str) -> None:
        """It is not there any more, or may not be."""
        self._last.pop(name, None)


class Gone(StoreBusy):
    """The version that was relied on has been deleted: what it had must be written again."""


def decided(marks: Sequence[Mark]) -> Script[tuple[list[records.Landing], list[Statement]]]:
    """What they come to, numbered under the locks of their names; and the objects that go with it."""
    if not marks:
        return [], []
    places = sorted({mark.place for mark in marks})
    # Who deletes takes the same lock: what is relied on stays until we have committed.
    rows = yield [
        *(Statement("lock_space", (owner, f"checkpoint {name}")) for owner, name in places),
        *(Statement("last_checkpoint", place) for place in places),
        *(Statement("get_checkpoint", (*mark.place, mark.relies_on)) for mark in marks),
    ]
    last = {place: found[0][0] if found else 0 for place, found in zip(places, rows[len(places) :], strict=False)}
    landed: list[records.Landing] = []
    made: list[Statement] = []
    for mark, relied in zip(marks, rows[2 * len(places) :], strict=True):
        if mark.relies_on and (not relied or relied[0][3]):
            raise Gone
        landed += [records.CheckpointDropped(*mark.place, version) for version in mark.drops]
        if mark.packed:
            last[mark.place] += 1
            landed.append(records.CheckpointMade(*mark.place, last[mark.place], mark.packed, mark.labels, mark.meta))
            made += mark.objects
    return landed, made
