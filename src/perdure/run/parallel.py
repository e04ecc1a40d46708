"""`run.map`: one step for many items, several at a time, each recorded separately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from perdure.errors import EffectInsideStep, WrongValue
from perdure.kernel.protocol import Protocol, ProtocolOutcome, Together
from perdure.kernel.scope import Frame, frame_of
from perdure.run.core import RunCore
from perdure.run.durable import Durable
from perdure.run.item import ItemKey, ItemLoop, iterable
from perdure.run.order_handling import stop_if_ordered
from perdure.values.numbers import require_whole_number

AT_ONCE = 16
"""Default number of concurrent items."""


def map_items(
    run: RunCore,
    step: Durable[..., Any],
    items: Iterable[Any],
    key: ItemKey,
    at_once: int,
    errors: str,
    name: str,
    was: Sequence[str | int] = (),
) -> Protocol[list[Any]]:
    """Return the results in the order of the items."""
    if errors not in ("raise", "return"):
        raise WrongValue(f'errors={errors!r}: must be "raise" or "return"')
    require_whole_number("max_concurrency", at_once, 1)
    outer = frame_of(run)
    if outer.inside:
        raise EffectInsideStep(
            "run.map() inside a step or an effect: its items could not be recorded separately",
            hint="call it in the run itself",
        )
    if run.has_orders:
        yield from stop_if_ordered(run)
    values = list(iterable(items))
    before = was or () if name else [*was, *(f"map {old}" for old in step.was)]
    loop = ItemLoop(run, values, key, name or f"map {step.name}", before)
    jobs = [
        partial(step.call_in_frame, Frame(run, loop.path(value, index), outer, "", None), (value,), {})
        for index, value in enumerate(values)
    ]
    outcomes: list[ProtocolOutcome] = yield Together(jobs, at_once, stops=errors == "raise")
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    if failed and errors == "raise":
        raise failed[0]
    return [outcome.value if outcome.error is None else outcome.error for outcome in outcomes]
