"""Records of model costs, and of compaction, which carries them."""

from __future__ import annotations

from perdure.records.base import Record


class ModelUsage(Record, frozen=True):
    """Token counts and cost of model calls as reported by the provider: one call, or the sum of several."""

    model: str
    provider: str = ""
    step: str = ""
    """The step or effect that made the calls; empty outside of them."""
    calls: int = 1
    unpriced: int = 0
    """Calls of unknown cost: they are not in `cost`."""
    input_tokens: int = 0
    """All input tokens, including those from the cache."""
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    cost: int = 0
    """In billionths of a dollar, at the prices of the day it was recorded."""

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
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


class SavedWork(Record, frozen=True):
    """Work that a resume did not repeat: steps, their time, and their calls of one model."""

    steps: int
    took_us: int
    usage: ModelUsage


class CarriedState(Record, frozen=True):
    """A key of a run's own state at the time the run was compacted."""

    key: str
    value: bytes
    version: int
    at: int


class CarriedUsage(Record, frozen=True):
    """What a run had spent on a model in a step on a day (since 1970, UTC) when it was compacted."""

    day: int
    usage: ModelUsage


class CarriedSavings(Record, frozen=True):
    """What resuming a run had saved of a model on a day when it was compacted."""

    day: int
    saved: SavedWork


class CompactionFloor(Record, frozen=True):
    """The compaction floor of a namespace: changes before this revision and time are missing."""

    owner: int
    space: str
    revision: int
    at: int


class StreamCompacted(Record, frozen=True):
    """The entries of this stream up to a number were archived, and all but some of them removed."""

    upto: int
    head: bytes
    """The chain link of that entry. The next entry is chained to it."""
    kept: bytes
    """The entries that were kept: the number in four bytes, and a digest of the entry in 32."""
    archive: str
    """The archive file with the last of these entries. It names the file with the earlier ones."""
    digest: bytes
    """The digest of that file."""
    resumes: int = 0
    done: int = 0
    """How many steps and effects were done."""
    state: tuple[CarriedState, ...] = ()
    floors: tuple[CompactionFloor, ...] = ()
    usage: tuple[CarriedUsage, ...] = ()
    savings: tuple[CarriedSavings, ...] = ()
