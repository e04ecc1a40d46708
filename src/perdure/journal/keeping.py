"""How long checkpoints and threads are kept: rules by name, which are state of the agent, and journalled as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from .. import codec
from ..objects import reference

OURS = "perdure:"
"""How namespaces begin that Perdure keeps for itself: nobody is shown them who does not name one."""

SPACE = f"{OURS}retention"
"""The namespace of an agent's state that has its rules; a key is the pattern of names that it is about."""

THREADS = f"{OURS}threads"
"""That with the rules for threads, by patterns of their ids."""

MEMORIES = f"{OURS}memories"
"""That with the rules for memories, by their kind."""

REPLAYS = f"{OURS}replays"
"""That with what replays came to, of which the events were folded."""

DOCUMENTS = f"{OURS}workspace"
"""That with the documents of the workspace."""


class Keep(msgspec.Struct, frozen=True):
    """A rule: the newest so many, and those younger than so many milliseconds. 0 says nothing."""

    last: int = 0
    milliseconds: int = 0
    idle: int = 0
    """Of a thread: milliseconds without anything new, after which all of it goes."""


EVERYTHING = Keep()


def stored_form(keep: Keep) -> dict[str, int]:
    """The rule as a value of the state."""
    idle = {"idle": keep.idle} if keep.idle else {}
    return {"last": keep.last, "milliseconds": keep.milliseconds, **idle}


def policies_in(rows: Sequence[tuple[Any, ...]]) -> dict[str, Keep]:
    """The rules in rows of `entries_of`, by pattern."""
    return {key: _rule(value) for key, value, *_ in rows if not reference(value)}


def _rule(packed: bytes) -> Keep:
    found = codec.decode(packed[1:])
    return Keep(int(found["last"]), int(found["milliseconds"]), int(found.get("idle", 0)))


def keep_of(policies: Mapping[str, Keep], name: str) -> Keep:
    """The rule for a name: its own, else that of the longest pattern that fits; else everything is kept."""
    if name in policies:
        return policies[name]
    fitting = [pattern for pattern in policies if fnmatchcase(name, pattern)]
    return policies[max(fitting, key=lambda pattern: (len(pattern), pattern))] if fitting else EVERYTHING
