"""The base class of all records."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """The content of a journal entry.

    Unknown fields of a later version are refused, not ignored: ignoring them would build incomplete views, and collect
    objects that only they refer to.
    """
