"""Queues from the outside: their contents and their limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data import state
from perdure.errors import WrongValue
from perdure.journal.queue_rules import SPACE, QueueLimits, rules_in, rules_of, to_state_value
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read
from perdure.store.base import Store
from perdure.values.durations import Duration, seconds_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_RATE = re.compile(r"(\d+)\s*/\s*(\d*)\s*(s|m|h|d)")


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue as it is now."""

    name: str
    queued: int = 0
    """Runs that may start now or at a given time."""
    running: int = 0
    parked: int = 0
    """Runs that wait for something and are not loaded in any process."""
    dead: int = 0
    """Runs that have failed for good."""
    oldest_at: int = 0
    """When the oldest of them was queued, in milliseconds since 1970."""
    rules: QueueLimits = QueueLimits()
    waiting_tasks: tuple[str, ...] = ()
    """The tasks of queued and parked runs: a worker must declare them."""

    @property
    def paused(self) -> bool:
        return self.rules.paused

    def __repr__(self) -> str:
        told = f"{self.queued} queued, {self.running} running, {self.parked} parked, {self.dead} dead"
        return f"<Queue {self.name!r}: {told}{', paused' if self.paused else ''}>"


def change_rules(engine: Engine, queue: str, **changes: Any) -> Protocol[None]:
    """Change some rules of a queue; the others stay."""
    check_storable_name(queue, "the name of a queue", empty=False)
    yield Read(engine.ensure_agent)
    owner = yield Read(lambda: engine.stream)

    def make(value: Any) -> Any:
        return to_state_value(msgspec.structs.replace(rules_in(value), **changes))

    yield from state.change(engine, [state.ask_update(engine, (owner, SPACE, queue), make, None)])


def check_limits(
    concurrency: int | None, per_key: int | None, rate: str | tuple[int, Duration] | None
) -> dict[str, int]:
    """Check the limits of a queue. None removes a limit."""
    for name, value in (("concurrency", concurrency), ("per_key", per_key)):
        if value is not None and (type(value) is not int or value < 1):
            raise WrongValue(f"{name}={value!r}: must be an int from 1, or None for no limit")
    count, milliseconds = _rate(rate)
    return {"concurrency": concurrency or 0, "per_key": per_key or 0, "rate": count, "rate_ms": milliseconds}


def _rate(rate: str | tuple[int, Duration] | None) -> tuple[int, int]:
    if rate is None:
        return 0, 0
    found = _RATE.fullmatch(rate.strip()) if isinstance(rate, str) else None
    if found is not None:
        rate = (int(found[1]), f"{found[2] or 1}{found[3]}")
    if isinstance(rate, str) or type(rate[0]) is not int or rate[0] < 1:
        raise WrongValue(f'rate={rate!r}: must be a count per time, such as "10/s", "100/m" or (10, "5s")')
    return rate[0], max(1, int(seconds_of(rate[1], "rate") * 1000))


def list_queues(store: Store, owner: int) -> list[QueueInfo]:
    """Return the queues of an agent that have runs or rules."""
    rows = store.read("agent_state_of", (owner, SPACE, store.clock.wall_ms()))
    found = {key: QueueInfo(key, rules=rules_of(value)) for key, value, *_ in rows}
    for queue, task, status, count, oldest, _ in store.read("count_tasks", (owner,)):
        before = found.get(queue) or QueueInfo(queue)
        changes: dict[str, Any] = {status: getattr(before, status) + count}
        changes["oldest_at"] = min(before.oldest_at or oldest, oldest)
        if status in ("queued", "parked"):
            changes["waiting_tasks"] = (*before.waiting_tasks, task)
        found[queue] = msgspec.structs.replace(before, **changes)
    return [found[name] for name in sorted(found)]
