"""`run.map`: one step for many items, several at a time, each remembered by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from ..errors import EffectInsideStep
from .core import RunCore
from .durable import Durable
from .items import ItemKey, Loop
from .obeying import heed
from .requests import Outcome, Protocol, Together
from .scope import Frame, frame_of

AT_ONCE = 16
"""How many items are at work when nobody says otherwise."""


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
    """The results, in the order of the items."""
    if errors not in ("raise", "return"):
        raise ValueError(f'errors={errors!r}: choose "raise" or "return"')
    if at_once < 1:
        raise ValueError(f"max_concurrency={at_once}: at least one item must be at work")
    outer = frame_of(run)
    if outer.inside:
        raise EffectInsideStep(
            "run.map() inside a step or an effect: its items could not be remembered by themselves",
            hint="call it in the run itself",
        )
    if run.is_told:
        yield from heed(run)
    values = list(items)
    before = was or () if name else [*was, *(f"map {old}" for old in step.was)]
    loop = Loop(run, values, key, name or f"map {step.name}", before)
    jobs = [
        partial(step.within, Frame(run, loop.path(value, index), outer, "", None), (value,), {})
        for index, value in enumerate(values)
    ]
    outcomes: list[Outcome] = yield Together(jobs, at_once, stops=errors == "raise")
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    if failed and errors == "raise":
        raise failed[0]
    return [outcome.value if outcome.error is None else outcome.error for outcome in outcomes]
