"""Where the simulation takes hold of Perdure: who a process is, what time it is, and faults put in on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from perdure.journal import leases
from perdure.platform import process
from perdure.run import effect, order_handling, step
from tests.simulation.planted_faults import SABOTAGES
from tests.simulation.unblocking import commits, outages
from tests.simulation.world import Steps

if TYPE_CHECKING:
    from tests.simulation.history import History


def _sleep(seconds: float) -> Steps:
    yield max(1, int(seconds * 1000))


@contextmanager
def install_seams(history: History) -> Iterator[None]:
    """For the length of a history, Perdure's code sees its world."""
    world = history.world

    def here() -> Any:
        assert world.current is not None
        return world.current

    clock = SimpleNamespace(monotonic=lambda: world.now / 1000, sleep=_sleep)
    stopwatch = SimpleNamespace(perf_counter_ns=lambda: world.now * 1_000_000)
    patches: tuple[tuple[Any, str, Any], ...] = (
        (leases, "identify_this_process", lambda: here().holder),
        (process, "boot_id", lambda: here().host.boot),
        (process, "_namespace", lambda pid: here().holder.namespace),
        (process, "_start_time", lambda pid: here().host.alive.get(pid)),
        (process, "_exists", lambda pid: pid in here().host.alive),
        (order_handling, "mark_descendants", lambda holder: None),
        (process, "host_name", lambda: here().host.name),
        (effect, "time", stopwatch),
        (step, "time", stopwatch),
        (commits, "time", clock),
        (outages, "time", clock),
        (outages, "_CHANCE", world.random),
        *(patch for name in sorted(history.broken) for patch in SABOTAGES[name].patches),
    )
    before = [(module, name, getattr(module, name)) for module, name, _ in patches]
    try:
        for module, name, value in patches:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
