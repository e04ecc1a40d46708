"""One entry of a run in full: arguments, result, error, attempts, key, writes, usage, raw."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.run.prices import NANOS
from perdure.run.usage import format_dollars

ValueReader = Callable[[bytes], Any]
_PACKED = ("input", "result", "error", "arguments", "value", "choices")
_SHOWN = ("text", "reason", "how", "by", "note", "key", "kind", "task", "attempt", "cause", "before", "line", "what")


class EntryAttempt(msgspec.Struct, frozen=True):
    """A failed attempt of a call."""

    seq: int
    at: int
    attempt: int
    error: Any


class EntryDetails(msgspec.Struct, frozen=True):
    """What the page shows of an entry."""

    seq: int
    kind: str
    name: str
    at: int
    took_ms: float
    values: list[tuple[str, Any]]
    """Arguments, result and the like, unpacked."""
    facts: list[tuple[str, str]]
    attempts: list[EntryAttempt]
    writes: list[tuple[str, str, Any]]
    usage: list[str]
    raw: Any
    command: str


def describe_entry(
    entry: r.JournalEntry, around: Sequence[r.JournalEntry], read: ValueReader, agent: str, run: str
) -> EntryDetails:
    """Return an entry in full. `around` has the entries near it, among them the attempts and the intent of its call."""
    record: Any = entry.record
    intent = next((one.record for one in around if one.seq == getattr(record, "intent", 0)), None)
    call = getattr(record, "call", None) or getattr(intent, "call", None)
    values = [
        (name, read(packed))
        for one in (intent, record)
        for name in _PACKED
        if isinstance(packed := getattr(one, name, None), bytes) and packed
    ]
    facts = [(name, str(getattr(record, name))) for name in _SHOWN if getattr(record, name, "")]
    facts += [("key", str(key))] if (key := getattr(intent, "key", "")) else []
    holder = getattr(record, "holder", None)
    facts += [("process", str(holder))] if holder is not None else []
    attempts = [
        EntryAttempt(one.seq, one.at, one.record.attempt, read(one.record.error))
        for one in around
        if isinstance(one.record, r.AttemptFailed) and one.record.call == call
    ]
    usage = [_usage(one) for one in getattr(record, "usage", ())]
    named = "" if call is None else f"{call.scope}{call.name}"
    command = shlex.join(["perdure", "show", run, "--agent", agent, "--at", str(entry.seq)])
    took = getattr(record, "took_us", 0) / 1000
    writes = _writes(record, read)
    return EntryDetails(
        entry.seq, entry.kind, named, entry.at, took, values, facts, attempts, writes, usage, raw_entry(record), command
    )


def raw_entry(record: r.Record) -> Any:
    """Return an entry as data. Packed values are in base64."""
    return msgspec.to_builtins(record, str_keys=True)


def _writes(record: Any, read: ValueReader) -> list[tuple[str, str, Any]]:
    found = [*getattr(record, "writes", ()), *([record.write] if isinstance(record, r.Wrote) else [])]
    shown = [(one.op.name.lower(), one.key, read(one.value) if one.value else None) for one in found]
    for change in getattr(record, "landed", ()):
        named = getattr(change, "name", "") or getattr(change, "key", "") or getattr(change, "kind", "")
        shown.append(
            (type(change).__name__, str(named), read(value) if (value := getattr(change, "value", b"")) else None)
        )
    return shown


def _usage(usage: r.ModelUsage) -> str:
    cost = format_dollars(usage.cost / NANOS) if usage.calls > usage.unpriced else "cost unknown"
    return f"{usage.model}: {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {cost}"
