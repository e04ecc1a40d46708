"""Reads the conversation of a thread from the runs that are its turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import ForeignThread, RunBusy, TurnUnfinished
from perdure.journal import objects
from perdure.journal.lineage import events_of
from perdure.kernel.program_line import format_call, format_value
from perdure.kernel.protocol import Protocol, Read
from perdure.run.data_view import view_of
from perdure.run.history import effective
from perdure.run.ledger import Ledger
from perdure.run.listing import RunSummary, summary_of
from perdure.store.rows import require_run_row
from perdure.values.clock import moment
from perdure.work.threads.conversations import ThreadIndex, is_foreign, read_index, run_id_of
from perdure.work.threads.trails import framework_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class TurnInfo(msgspec.Struct, frozen=True):
    """One turn of a thread."""

    number: int
    run: str
    """The id of its run, for `agent.runs.get` and `perdure show`."""
    status: r.RunStatus
    began: datetime
    input: Any
    result: Any = None
    """Its reply; None while it has none."""


class TurnMessages(msgspec.Struct, frozen=True):
    """The messages of one turn, packed, with their positions in it."""

    number: int
    run: str
    messages: tuple[tuple[int, bytes], ...]
    pins: frozenset[int] = frozenset()
    summary: bytes | None = None
    """The packed summary of the turns before it, if the turn has made or undone one."""


def turns_of(engine: Engine, thread: str, numbers: range | None = None) -> list[TurnInfo]:
    """Return the turns of a thread, oldest first; all, or those with these numbers."""
    index = read_index(engine, thread)
    wanted = range(index.first, index.turns + 1) if numbers is None else numbers
    return [_info(engine, index, number) for number in wanted]


def _info(engine: Engine, index: ThreadIndex, number: int) -> TurnInfo:
    run = run_id_of(engine, index, number)
    summary, ledger = _open_turn_run(engine, run)
    assert ledger.started is not None
    done = ledger.finished.result if ledger.finished is not None else b""
    result = objects.unpack(engine.store, done) if done else None
    given = objects.unpack(engine.store, ledger.started.input)
    return TurnInfo(number, run, summary.status, moment(summary.started_at), given, result)


def _open_turn_run(engine: Engine, run: str) -> tuple[RunSummary, Ledger]:
    summary = summary_of(engine.store, require_run_row(engine.store, engine.name, run))
    return summary, Ledger(events_of(engine.store, summary.stream, fork=summary.origin > 0))


def messages_of(engine: Engine, thread: str, *, raw: bool = False) -> list[Any]:
    """Return the messages of a thread; with `raw`, also those of turns that were given up."""
    index = read_index(engine, thread)
    if not index.known and is_foreign(engine, thread):
        return _foreign_messages(engine, thread)
    return [
        objects.unpack(engine.store, value)
        for number in range(index.first, index.turns + 1)
        for _, value in read_turn(engine, index, number, raw=raw).messages
    ]


def _foreign_messages(engine: Engine, thread: str) -> list[Any]:
    """Return the messages that a framework has saved."""
    from perdure.work.threads import listing

    found = listing.state(engine, thread).get("messages")
    if isinstance(found, list):
        return found
    raise ForeignThread(
        f"thread {thread!r} was saved by {framework_of(engine, thread)}, without a list of messages",
        hint=f"agent.threads.state({thread!r}) reads what it has saved",
    )


def read_turn(engine: Engine, index: ThreadIndex, number: int, *, raw: bool = False) -> TurnMessages:
    """Return the messages of one turn that later turns see; with `raw`, all of them."""
    run = run_id_of(engine, index, number)
    summary = summary_of(engine.store, require_run_row(engine.store, engine.name, run))
    events = list(effective(events_of(engine.store, summary.stream, fork=summary.origin > 0)))
    view = view_of(events)
    over = summary.status in (r.RunStatus.FAILED, r.RunStatus.CANCELLED)
    given_up = not view.replied and (over or (number < index.turns and summary.status != r.RunStatus.FINISHED))
    if raw or not given_up:
        said = view.messages if raw else [(one.position, one.value) for one in view.conversation().list_visible()]
        pins = frozenset(at for at, pinned in view.pins.items() if pinned)
        return TurnMessages(number, run, tuple(said), pins, view.summary)
    return TurnMessages(number, run, tuple(_iterate_kept(engine, events)), summary=view.summary)


class _DoneEffect(msgspec.Struct, frozen=True):
    """An effect that happened, and where in the journal."""

    name: str
    arguments: bytes
    result: bytes
    begun: int
    ended: int


class _SaidMessage(msgspec.Struct, frozen=True):
    """A message, and the entry that wrote it."""

    seq: int
    position: int
    value: bytes
    in_effect: bool


def _iterate_kept(engine: Engine, events: Sequence[r.JournalEntry]) -> Iterator[tuple[int, bytes]]:
    """What stays of a turn that was given up: the user's message, and what changed the world.

    A tool call stays with its result. An effect whose result no message tells gets one that tells it.
    """
    said, done = list(_messages(events)), list(_effects(events))
    opened = {one.position: objects.unpack(engine.store, one.value) for one in said}
    kept = {one.position: one.value for one in said[:1]} | {one.position: one.value for one in said if one.in_effect}
    untold = []
    for effect in done:
        pair = _tool_call(said, opened, effect)
        kept |= {one.position: one.value for one in pair}
        untold += [effect] if not pair else []
    yield from sorted(kept.items())
    for number, effect in enumerate(untold):
        yield (
            max(opened, default=0) + 1 + number,
            objects.pack(engine.store, _describe_effect(engine, effect), "message")[0],
        )


def _messages(events: Sequence[r.JournalEntry]) -> Iterator[_SaidMessage]:
    for event in events:
        record = event.record
        writes = (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())
        for write in writes:
            if write.op == r.WriteOp.MESSAGE:
                yield _SaidMessage(event.seq, write.position, write.value, isinstance(record, r.EffectDone))


def _effects(events: Sequence[r.JournalEntry]) -> Iterator[_DoneEffect]:
    intents = {event.seq: event.record for event in events if isinstance(event.record, r.EffectIntended)}
    for event in events:
        if isinstance(event.record, r.EffectDone) and event.record.intent in intents:
            intent = intents[event.record.intent]
            result = event.record.result
            yield _DoneEffect(intent.call.name, intent.arguments, result, event.record.intent, event.seq)


def _tool_call(
    said: Sequence[_SaidMessage], opened: Mapping[int, Any], effect: _DoneEffect
) -> tuple[_SaidMessage, ...]:
    """The message that called tools, and those with their results, when one of them came after the effect."""
    callers = [one for one in said if _has_part(opened[one.position], "tool_use")]
    before = [one for one in callers if one.seq < effect.begun]
    if not before:
        return ()
    end = next((one.seq for one in callers if one.seq > effect.begun), said[-1].seq + 1)
    results = [one for one in said if before[-1].seq < one.seq < end and _has_part(opened[one.position], "tool_result")]
    return (before[-1], *results) if results and results[-1].seq > effect.ended else ()


def _has_part(message: Any, kind: str) -> bool:
    """Whether a message calls tools, or has their results, as a dict or an object of a provider or a framework."""
    speaker = _field(message, "role") or _field(message, "type")
    if speaker == "tool" if kind == "tool_result" else _field(message, "tool_calls"):
        return True
    content = _field(message, "content")
    return any(_field(part, "type") == kind for part in (content if isinstance(content, list) else ()))


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _describe_effect(engine: Engine, effect: _DoneEffect) -> dict[str, str]:
    arguments = objects.unpack(engine.store, effect.arguments) if effect.arguments else {}
    what = format_call(effect.name, arguments if isinstance(arguments, Mapping) else {"arguments": arguments})
    result = format_value(objects.unpack(engine.store, effect.result)) if effect.result else "nothing"
    return {"role": "assistant", "content": f"[This turn ended early. Before that, {what} was done: {result}]"}


def require_quiet(engine: Engine, thread: str) -> Protocol[ThreadIndex]:
    """Return the index of a thread that is neither busy nor in doubt."""
    from perdure.work.threads.turn import read_last_turn

    index: ThreadIndex = yield Read(read_index, (engine, thread))
    last = yield Read(read_last_turn, (engine, index))
    if last is not None and last.busy:
        raise RunBusy(f"turn {last.number} of thread {thread!r} is open in {last.run.holder}")
    if last is not None and last.doubtful and not last.run.status.over:
        raise TurnUnfinished(
            f"turn {last.number} of thread {thread!r} is in doubt, or asks a person",
            hint=f"answer it first: `perdure show {last.run.id}` prints the question, and how to answer",
        )
    return index
