"""What a queue allows: rules by name, which are state of the agent themselves, and journalled as such."""

from __future__ import annotations

from typing import Any

import msgspec

from .. import codec
from ..objects import reference
from .keeping import OURS

SPACE = f"{OURS}queues"
"""The namespace of an agent's state that has them; a key is the name of a queue."""


class Rules(msgspec.Struct, frozen=True):
    """How much of a queue may be at work at a time. 0 says nothing."""

    concurrency: int = 0
    per_key: int = 0
    rate: int = 0
    """So many runs may begin in `rate_ms` milliseconds."""
    rate_ms: int = 0
    paused: bool = False

    @property
    def limits(self) -> bool:
        """Whether anything has to be counted before a run may begin."""
        return bool(self.concurrency or self.per_key or self.rate)


FREE = Rules()


def stored_form(rules: Rules) -> dict[str, Any]:
    """The rules as a value of the state."""
    return msgspec.structs.asdict(rules)


def rules_in(value: Any) -> Rules:
    """And back; what a later version has added is left alone."""
    known = {name: value[name] for name in Rules.__struct_fields__ if name in (value or {})}
    return msgspec.convert(known, Rules)


def rules_of(packed: bytes) -> Rules:
    """The rules in a row of `entries`."""
    return rules_in(codec.decode(packed[1:])) if packed and not reference(packed) else FREE
