"""What is sent to runs: numbered inside the commit, so that a run takes one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .. import records
from ..store.base import Script, Statement, Store


class Signal(msgspec.Struct, frozen=True):
    """An event for a run, which need not wait for it yet, nor even exist."""

    owner: int
    run: str
    name: str
    packed: bytes
    objects: Sequence[Statement]
    by: str

    @property
    def place(self) -> tuple[int, str, str]:
        return (self.owner, self.run, self.name)


def numbered(signals: Sequence[Signal], _: Store) -> Script[tuple[list[records.Landing], list[Statement]]]:
    """What they come to, under the locks of their names; and the objects that go with it."""
    places = sorted({signal.place for signal in signals})
    rows = yield [
        *(Statement("lock_space", (owner, f"signal {run}/{name}")) for owner, run, name in places),
        *(Statement("last_signal", place) for place in places),
    ]
    last = {place: found[0][0] if found else 0 for place, found in zip(places, rows[len(places) :], strict=True)}
    landed: list[records.Landing] = []
    for it in signals:
        last[it.place] += 1
        landed.append(records.SignalSent(*it.place, last[it.place], it.packed, it.by))
    return landed, [statement for it in signals for statement in it.objects]
