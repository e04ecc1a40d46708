"""Opens turns: which run a user's message belongs to, and what stands in its way.

A turn is a run of the agent. Its number, the user's message and the lease land in one commit (`run/turn_start.py`);
that commit fails if the thread has changed since it was read, and then the thread is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.data import state
from perdure.errors import (
    AlreadyReplied,
    InputChanged,
    NoTurn,
    RunBusy,
    RunExists,
    RunFinished,
    TurnUnfinished,
    VersionConflict,
    WrongType,
)
from perdure.journal import objects
from perdure.journal.agent_writes import SetKey
from perdure.kernel.awaitables import is_async
from perdure.kernel.program_line import format_value
from perdure.kernel.protocol import Pause, Protocol, Read
from perdure.kernel.scope import current_frame
from perdure.run.core import RunCore, core_of
from perdure.run.finish import end_run
from perdure.run.ledger import Ledger
from perdure.run.lifecycle import ClaimedRun, load, open_run
from perdure.run.listing import RunSummary, summary_of
from perdure.run.order_delivery import give_order
from perdure.run.order_handling import PendingOrder
from perdure.run.turn_start import TurnStart, TurnTaken
from perdure.run.writes import call_once, list_buffered_writes, record_value, set_result, write
from perdure.store.rows import read_run, require_run_row
from perdure.values import codec
from perdure.values.limits import HOLDER_LOOK_SECONDS, WAIT_POLL_SECONDS
from perdure.work.threads import conversations
from perdure.work.threads.conversations import QueuedInput, ThreadIndex, read_index, run_id_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

NO_INPUT: Any = object()
"""`thread.turn()`: go on with what there is."""
REPLY, REPLY_TEXT = "reply", "reply-text"
"""The keys of the message that is the reply; with the second one, the message was made of a text or a value."""
_LIVE = (r.RunStatus.RUNNING, r.RunStatus.WAITING, r.RunStatus.CANCELLING)


class TurnRequest(msgspec.Struct, frozen=True):
    """What the caller wants of a thread."""

    thread: str
    given: Any = NO_INPUT
    id: str | None = None
    on_unfinished: str = "error"
    wait: float | None = 0.0
    """Seconds to wait for another holder of the thread, and for a person. None: without end, parked in a worker."""

    def is_queued_as(self, queued: QueuedInput) -> bool:
        """Whether this is the message that waits in the queue. Raises `InputChanged` if only the id is the same."""
        if self.given is NO_INPUT:
            return False
        same = codec.digest(self.given, "input") == codec.digest(queued.input, "input")
        if self.id == queued.id and not same:
            raise InputChanged(
                f"message {self.id!r} waits as {format_value(queued.input)}, not as {format_value(self.given)}"
            )
        return self.id == queued.id if self.id is not None else same


class LastTurn(msgspec.Struct, frozen=True):
    """The last turn of a thread, as far as it decides about the next one."""

    number: int
    run: RunSummary
    digest: bytes
    doubtful: bool = False
    """Whether the outcome of an effect is unknown, or a person has to answer."""
    reply: r.RunWrite | None = None

    @property
    def busy(self) -> bool:
        return self.run.status in _LIVE and bool(self.run.holder)

    @property
    def in_the_way(self) -> bool:
        """Whether a new input has to wait for it."""
        if self.run.status.over:
            return False
        closed = self.run.status == r.RunStatus.FAILED or self.reply is not None
        return self.doubtful or not closed


class _PlannedTurn(msgspec.Struct, frozen=True):
    """The run to open."""

    run: str
    given: Any = None
    start: TurnStart | None = None
    queued: str = ""


def check_turn_function(function: object, *, awaits: bool) -> None:
    """Refuse what cannot be called as a turn."""
    if not callable(function):
        raise WrongType(f"@agent.turn takes a function, not {function!r}")
    if not awaits and is_async(function):
        name = getattr(function, "__name__", type(function).__name__)
        raise WrongType(f"{name} is async: use AsyncAgent, whose turns are awaited")


# -- opening ----------------------------------------------------------------------------------------------------------


def open_turn(engine: Engine, request: TurnRequest) -> Protocol[RunCore]:
    """Open the turn that a request is about: a new one, one that is resumed, or one that has finished."""
    yield Read(engine.ensure_agent)
    yield Read(conversations.refuse_foreign, (engine, request.thread))
    until = None if request.wait is None else engine.clock.boot_ms() + int(request.wait * 1000)
    while True:
        try:
            planned = yield from _plan(engine, request)
            run = yield from open_run(
                engine,
                planned.run,
                planned.given,
                wait=request.wait,
                on_change="error",
                parallel=False,
                turn=planned.start,
            )
        except (TurnTaken, VersionConflict):
            continue  # somebody has changed the thread since it was read
        except RunBusy:
            if until is not None and engine.clock.boot_ms() >= until:
                raise
            yield from _wait_for_holder(engine, request)
            continue
        if planned.queued:
            yield from state.commit(engine, [conversations.queue_drop(engine, request.thread, planned.queued)])
        return run


def _wait_for_holder(engine: Engine, request: TurnRequest) -> Protocol[None]:
    """Wait a moment for the turn that is open elsewhere. A task without other work is parked until that turn ends."""
    frame = current_frame()
    parking = core_of(frame).parking if frame is not None and request.wait is None else None
    if frame is None or parking is None:
        yield Pause(WAIT_POLL_SECONDS)
        return
    index: ThreadIndex = yield Read(read_index, (engine, request.thread))
    run = yield Read(run_id_of, (engine, index, index.turns))
    ends = r.WakeCondition("run", stream=engine.stream, agent=engine.name, run=run)
    waiter = parking.wait(core_of(frame), ends, engine.clock.wall_ms() + int(HOLDER_LOOK_SECONDS * 1000))
    try:
        yield Pause(WAIT_POLL_SECONDS)
        parking.leave_if_idle()
    finally:
        parking.stop_waiting(waiter)


def _plan(engine: Engine, request: TurnRequest) -> Protocol[_PlannedTurn]:
    index: ThreadIndex = yield Read(read_index, (engine, request.thread))
    last: LastTurn | None = yield Read(read_last_turn, (engine, index))
    known = yield from _find_known_turn(engine, request, index, last)
    if known is not None:
        yield from _require_open(engine, request, known, last)
        return known
    queued = index.queued[0] if index.queued else None
    if last is not None and not last.run.status.over:
        if last.busy:
            raise RunBusy(f"turn {last.number} of thread {request.thread!r} is open in {last.run.holder}")
        yield from _clear(engine, request, last)
        if last.reply is not None:
            return (yield from _plan(engine, request))
    if request.given is NO_INPUT:
        if queued is None:
            raise NoTurn(f"thread {request.thread!r} has no unfinished turn, and none is queued")
        return (yield from _plan_new_turn(engine, index, queued.input, queued.id, queued.id))
    if queued is not None and not request.is_queued_as(queued):
        raise TurnUnfinished(
            f"thread {request.thread!r} has a queued message, which comes first",
            hint="thread.turn() without input opens it; @agent.turn does it first",
        )
    ident = queued.id if queued is not None else request.id
    taken = queued.id if queued is not None else ""
    return (yield from _plan_new_turn(engine, index, request.given, ident, taken))


def _find_known_turn(
    engine: Engine, request: TurnRequest, index: ThreadIndex, last: LastTurn | None
) -> Protocol[_PlannedTurn | None]:
    """The turn that a request names by its id, or resumes."""
    given = None if request.given is NO_INPUT else request.given
    if request.id is not None:
        number = yield Read(conversations.number_of, (engine, request.thread, request.id))
        if number > index.turns:
            raise TurnTaken(f"turn {number} of thread {request.thread!r} has begun since the thread was read")
        if number:
            return _PlannedTurn((yield Read(run_id_of, (engine, index, number))), given)
    if last is None or last.run.status.over:
        return None
    same = request.given is NO_INPUT or (request.id is None and codec.digest(given, "input") == last.digest)
    return _PlannedTurn(last.run.id, given) if same else None


def _require_open(engine: Engine, request: TurnRequest, known: _PlannedTurn, last: LastTurn | None) -> Protocol[None]:
    """Refuse an earlier turn that failed: the message after it has closed it, as later turns went on without it."""
    if last is None or known.run == last.run.id:
        return
    row = yield Read(require_run_row, (engine.store, engine.name, known.run))
    run: RunSummary = yield Read(summary_of, (engine.store, row))
    if not run.status.over:
        raise RunFinished(
            f"turn {known.run!r} failed ({run.error}), and a later turn of thread {request.thread!r} has closed it",
            hint="the message is still in the thread; to have it answered now, send it again under another id=",
        )


def _clear(engine: Engine, request: TurnRequest, last: LastTurn) -> Protocol[None]:
    """A new input comes after a turn that has not ended: close that one, or refuse."""
    what = f"turn {last.number} of thread {request.thread!r}"
    if last.doubtful:
        raise TurnUnfinished(
            f"{what} is in doubt: the outcome of an effect is unknown, or a person has to answer",
            hint=f"answer with `perdure answer {last.run.id}`, then thread.turn() resumes it",
        )
    if last.reply is not None:
        yield from _finish_replied(engine, last)
    elif last.in_the_way and request.on_unfinished == "abandon":
        told = PendingOrder(r.Order.CANCEL, "abandoned: another message came", "the thread")
        yield from give_order(engine, engine.name, last.run.id, told)
    elif last.in_the_way:
        raise TurnUnfinished(f"{what} is {last.run.status}, and has not replied")


def _finish_replied(engine: Engine, last: LastTurn) -> Protocol[None]:
    """Close a turn whose process died after the reply: the reply is its result."""
    run = yield from open_run(engine, last.run.id, None, wait=0, on_change="error", parallel=True)
    assert last.reply is not None
    message = yield from run.load(last.reply.value)
    value = message["content"] if last.reply.key == REPLY_TEXT else message
    run.view.result, run.result_objects = run.pack(value, "result")
    yield from end_run(run, None)


def _plan_new_turn(
    engine: Engine, index: ThreadIndex, given: Any, request: str | None, queued: str
) -> Protocol[_PlannedTurn]:
    number = index.turns + 1
    run = f"{index.thread}#{number}"
    there = yield Read(read_run, (engine.store, engine.name, run))
    if there is not None and (yield Read(read_index, (engine, index.thread))).turns < number:
        text = f"run {run!r} exists, and is not a turn of thread {index.thread!r}"
        raise RunExists(text, hint="use another thread id; nothing was written")
    message, made = objects.pack(engine.store, to_message("user", given), "message")
    snapshot, also = objects.pack(engine.store, index.state, "thread state")
    asks = conversations.head_write(engine, msgspec.structs.replace(index, turns=number))
    if request is not None:
        asks.append(conversations.id_write(engine, index.thread, request, number))
    start = TurnStart(message, snapshot, [*made, *also], asks, conversations.require_unchanged(engine, index))
    return _PlannedTurn(run, given, start, queued)


def to_message(role: str, given: Any) -> Any:
    """Return a message: a text or another value becomes the content of one."""
    return given if _is_message(given) else {"role": role, "content": given}


def _is_message(given: Any) -> bool:
    """Whether a value says who speaks: as a dict, or as an object of a provider or a framework."""
    if isinstance(given, Mapping):
        return "role" in given or "type" in given
    return isinstance(getattr(given, "role", getattr(given, "type", None)), str)


# -- the last turn ----------------------------------------------------------------------------------------------------


def read_last_turn(engine: Engine, index: ThreadIndex) -> LastTurn | None:
    """Return the last turn of a thread."""
    if index.turns < index.first or index.turns == index.shared:
        return None
    row = require_run_row(engine.store, engine.name, f"{index.thread}#{index.turns}")
    run = summary_of(engine.store, row)
    if run.status.over or (run.status in _LIVE and run.holder):
        return LastTurn(index.turns, run, row.input_digest)
    ledger, _ = load(engine, ClaimedRun(run.stream, 0, True, run.origin > 0))
    doubtful = bool(ledger.list_in_doubt()) or run.status == r.RunStatus.WAITING
    return LastTurn(index.turns, run, row.input_digest, doubtful, reply_in(ledger))


def reply_in(ledger: Ledger) -> r.RunWrite | None:
    """Return the recorded reply of a turn."""
    written = [write for writes in ledger.operations.values() for write in writes]
    written += [write for calls in ledger.calls.values() for call in calls for write in call.writes]
    written += [write for landed in ledger.landed.values() for writes in landed for write in writes]
    return next(filter(_is_reply, written), None)


def _is_reply(write: r.RunWrite) -> bool:
    return write.op == r.WriteOp.MESSAGE and bool(write.key)


def turn_before(engine: Engine, request: TurnRequest) -> TurnRequest | None:
    """Return what must be done before a request: an unfinished turn, or a queued message. None if it comes next."""
    index = read_index(engine, request.thread)
    if request.id is not None and conversations.number_of(engine, request.thread, request.id):
        return None
    last = read_last_turn(engine, index)
    before = TurnRequest(request.thread, wait=request.wait)
    if last is not None and not last.run.status.over and not last.busy:
        if request.id is None and codec.digest(request.given, "input") == last.digest:
            return None
        if last.in_the_way:
            return before
    if last is not None and last.busy:
        return None
    return before if index.queued and not request.is_queued_as(index.queued[0]) else None


def enqueue(engine: Engine, request: TurnRequest) -> Protocol[None]:
    """Keep a user's message durably until the turn before it has ended."""
    writes = yield Read(list_queue_writes, (engine, request))
    if writes:
        yield from state.commit(engine, writes)


def list_queue_writes(engine: Engine, request: TurnRequest) -> list[SetKey]:
    """Return the write that queues a user's message; none if it waits already, or has become a turn."""
    index = read_index(engine, request.thread)
    known = request.id is not None and conversations.number_of(engine, request.thread, request.id)
    if known or any(request.is_queued_as(queued) for queued in index.queued):
        return []
    return [conversations.queue_write(engine, index, request.id or engine.clock.key(), request.given)]


def choose_request_id(engine: Engine) -> Protocol[str]:
    """Return an id for a message without one. A resumed run gets the recorded id, so that it queues nothing twice."""
    frame = current_frame()
    if frame is None or frame.run.store is not engine.store:
        return engine.clock.key()
    run = core_of(frame)
    chosen: str = yield from record_value(run, "message id", partial(call_once, run, engine.clock.key))
    return chosen


# -- replying ---------------------------------------------------------------------------------------------------------


def reply(run: RunCore, value: Any) -> Protocol[None]:
    """Write the assistant's message, which is the turn's result too. There is one in a turn."""
    if run.view.replied or any(map(_is_reply, list_buffered_writes(run))):
        raise AlreadyReplied(f"turn {run.id!r} has its reply already")
    key = REPLY if _is_message(value) else REPLY_TEXT
    yield from write(run, r.WriteOp.MESSAGE, key, to_message("assistant", value), "reply")
    set_result(run, value)


def reply_with_returned(run: RunCore, value: Any) -> Protocol[None]:
    """Take what a turn function has returned as its reply, unless it gave a reply or a result by itself."""
    if value is not None and not run.view.replied and not run.view.result:
        yield from reply(run, value)
