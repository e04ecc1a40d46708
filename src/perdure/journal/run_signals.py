"""Signals to runs, numbered inside the commit so that a run receives them in order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure import records
from perdure.store.base import Script, Statement, Store
from perdure.store.rows import first_number


class SendSignal(msgspec.Struct, frozen=True):
    """A signal for a run, which need not wait for it yet or even exist."""

    owner: int
    run: str
    name: str
    packed: bytes
    objects: Sequence[Statement]
    by: str

    @property
    def place(self) -> tuple[int, str, str]:
        return (self.owner, self.run, self.name)


def number_signals(
    signals: Sequence[SendSignal], _: Store
) -> Script[tuple[list[records.AgentChange], list[Statement]]]:
    """Number the signals under the locks of their names; return the changes and the objects they need."""
    places = sorted({signal.place for signal in signals})
    rows = yield [
        *(Statement("lock_namespace", (owner, f"signal {run}/{name}")) for owner, run, name in places),
        *(Statement("last_signal", place) for place in places),
    ]
    last = {place: first_number(found) for place, found in zip(places, rows[len(places) :], strict=True)}
    landed: list[records.AgentChange] = []
    for item in signals:
        last[item.place] += 1
        landed.append(records.SignalSent(*item.place, last[item.place], item.packed, item.by))
    return landed, [statement for signal in signals for statement in signal.objects]
