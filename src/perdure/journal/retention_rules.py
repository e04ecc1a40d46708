"""Retention rules for checkpoints, threads and memories. They are agent state, and journalled as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from perdure.journal.objects import reference
from perdure.values import codec

OURS = "perdure:"
"""The prefix of internal namespaces, which listings omit."""

SPACE = f"{OURS}retention"
"""The state namespace of the rules for checkpoints; a key is a pattern of names."""

THREADS = f"{OURS}threads"
"""The namespace of the rules for threads; a key is a pattern of thread ids."""

MEMORIES = f"{OURS}memories"
"""The namespace of the rules for memories; a key is a kind."""

REPLAYS = f"{OURS}replays"
"""The namespace of replay results whose events were compacted."""

DOCUMENTS = f"{OURS}workspace"
"""The namespace of the workspace documents."""


class RetentionRule(msgspec.Struct, frozen=True):
    """Keep the newest `last` versions, and those younger than `milliseconds`. 0 means no limit."""

    last: int = 0
    milliseconds: int = 0
    idle: int = 0
    """For a thread: delete it after this many milliseconds without new checkpoints."""


EVERYTHING = RetentionRule()


def to_state_value(keep: RetentionRule) -> dict[str, int]:
    """Return the rule as a state value."""
    idle = {"idle": keep.idle} if keep.idle else {}
    return {"last": keep.last, "milliseconds": keep.milliseconds, **idle}


def policies_in(rows: Sequence[tuple[Any, ...]]) -> dict[str, RetentionRule]:
    """Read the rules from rows of `agent_state_of`, by pattern."""
    return {key: _rule(value) for key, value, *_ in rows if not reference(value)}


def _rule(packed: bytes) -> RetentionRule:
    found = codec.decode(packed[1:])
    return RetentionRule(int(found["last"]), int(found["milliseconds"]), int(found.get("idle", 0)))


def keep_of(policies: Mapping[str, RetentionRule], name: str) -> RetentionRule:
    """Return the rule for a name: its own, else that of the longest matching pattern, else EVERYTHING."""
    if name in policies:
        return policies[name]
    fitting = [pattern for pattern in policies if fnmatchcase(name, pattern)]
    return policies[max(fitting, key=lambda pattern: (len(pattern), pattern))] if fitting else EVERYTHING
