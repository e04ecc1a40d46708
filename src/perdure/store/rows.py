"""Rows of the named queries as records: the one place outside SQL that knows the order of columns.

`RunRow(*row)` decodes a row. Every query that returns such rows selects the columns in the order of the fields; a test
compares both dialects.
"""

from __future__ import annotations

import msgspec


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A run: `get_run`, `find_runs`, `children_of`, `all_runs`."""

    stream: int
    agent: str
    id: str
    status: str
    input_digest: bytes
    parent: int
    started_at: int
    changed_at: int
    resumes: int
    outcome: int
    """The entry that ended or stopped the run; 0 while there is none."""
    error: str
    forked_from: int
    forked_at: int

    @property
    def is_fork(self) -> bool:
        return self.forked_from > 0
