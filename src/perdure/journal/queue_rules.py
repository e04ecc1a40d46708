"""Limits of queues, by queue name. They are agent state, and journalled as such."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.journal.objects import reference
from perdure.journal.retention_rules import OURS
from perdure.values import codec

SPACE = f"{OURS}queues"
"""The state namespace of the limits; a key is the name of a queue."""


class QueueLimits(msgspec.Struct, frozen=True):
    """How many runs of a queue may execute at a time. 0 means no limit."""

    concurrency: int = 0
    per_key: int = 0
    rate: int = 0
    """Runs that may begin in `rate_ms` milliseconds."""
    rate_ms: int = 0
    paused: bool = False

    @property
    def limits(self) -> bool:
        """Whether a run may begin only after counting others."""
        return bool(self.concurrency or self.per_key or self.rate)


FREE = QueueLimits()


def to_state_value(rules: QueueLimits) -> dict[str, Any]:
    """Return the limits as a state value."""
    return msgspec.structs.asdict(rules)


def rules_in(value: Any) -> QueueLimits:
    """Read limits from a state value; fields of later versions are ignored."""
    known = {name: value[name] for name in QueueLimits.__struct_fields__ if name in (value or {})}
    return msgspec.convert(known, QueueLimits)


def rules_of(packed: bytes) -> QueueLimits:
    """Read limits from a packed value of `agent_state`."""
    return rules_in(codec.decode(packed[1:])) if packed and not reference(packed) else FREE
