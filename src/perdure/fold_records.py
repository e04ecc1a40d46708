"""The records of what models cost, and of folding, which carries it. `records.py` has all others."""

from __future__ import annotations

from .plan_records import Record


class Usage(Record, frozen=True):
    """What calls of a model came to, as its provider reported it; one call, or the sum of several."""

    model: str
    provider: str = ""
    step: str = ""
    """The step or effect that made the calls; empty outside of them."""
    calls: int = 1
    unpriced: int = 0
    """Calls of which nobody knows the cost: they are not in `cost`."""
    input_tokens: int = 0
    """All of them, those from the cache too."""
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    cost: int = 0
    """In billionths of a dollar, by the prices of the day when it was recorded."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.model,
            self.provider,
            self.step,
            self.calls + other.calls,
            self.unpriced + other.unpriced,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cost + other.cost,
        )


class Saved(Record, frozen=True):
    """What was remembered and not done again: steps, their time, and their calls of one model."""

    steps: int
    took_us: int
    usage: Usage


class Carried(Record, frozen=True):
    """A key of a run's own state, as it was when the run was folded."""

    key: str
    value: bytes
    version: int
    at: int


class CarriedUsage(Record, frozen=True):
    """What a run spent on a model in a step on a day (since 1970, UTC), when it was folded."""

    day: int
    usage: Usage


class CarriedSavings(Record, frozen=True):
    """What resuming a run had saved of a model on a day, when it was folded."""

    day: int
    saved: Saved


class Floor(Record, frozen=True):
    """Before this revision and this time, changes of a namespace are missing."""

    owner: int
    space: str
    revision: int
    at: int


class Folded(Record, frozen=True):
    """The entries of this stream up to a number were archived, and all but some of them removed."""

    upto: int
    head: bytes
    """The link of that entry: the next one is chained to it."""
    kept: bytes
    """Those that were kept: the number in four bytes, and a mark of the entry in 32."""
    archive: str
    """The name of the file that has the last of them, and names the file with those before."""
    digest: bytes
    """Of what is in that file."""
    resumes: int = 0
    done: int = 0
    """Steps and effects that were done."""
    state: tuple[Carried, ...] = ()
    floors: tuple[Floor, ...] = ()
    usage: tuple[CarriedUsage, ...] = ()
    savings: tuple[CarriedSavings, ...] = ()
