"""What a run has recorded, for a client that looks at it as a whole."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.kernel.protocol import Protocol
from perdure.run.clients.session import ClientSession, current_run
from perdure.run.function import EXPLICIT
from perdure.run.ledger import RecordedCall


class CallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded call."""

    entry: int
    kind: str
    """`step` or `effect`."""
    name: str
    status: str
    """`done`, `failed`, `started` (an effect without an outcome) or `retrying`."""
    scope: str = ""
    nth: int = 0
    id: str | None = None
    digest: str = ""
    """Of its arguments; empty if it has an id."""
    key: str = ""
    result: Any = None


def list_calls(session: ClientSession, after: int, limit: int) -> Protocol[list[CallRecord]]:
    """Return calls in the order of their entries, from the first one after an entry."""
    run = yield from current_run(session)
    calls = [(nth, one) for calls in run.ledger.calls.values() for nth, one in enumerate(calls) if one.seq > after]
    calls.sort(key=lambda call: call[1].seq)
    found = []
    for nth, one in calls[:limit]:
        result = (yield from run.load(one.result)) if one.done else None
        found.append(_record(nth, one, result))
    return found


def _record(nth: int, one: RecordedCall, result: Any) -> CallRecord:
    status = "done" if one.done else "failed" if one.failed else "started" if one.fence else "retrying"
    explicit = one.ident.startswith(EXPLICIT)
    return CallRecord(
        one.seq,
        "effect" if one.effect else "step",
        one.name,
        status,
        one.path,
        nth,
        one.ident[len(EXPLICIT) :].decode() if explicit else None,
        "" if explicit else one.ident[1:].hex(),
        one.key,
        result,
    )
