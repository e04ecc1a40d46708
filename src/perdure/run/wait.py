"""Waits of a run for a person, an event or a time. Each is asked once, durably, across crashes.

A wait is two entries: the first makes it visible, the second records its outcome. It ends by an answer, an event sent
to the run, or the clock.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import EffectInsideStep, NotStorable, RunWaiting, WaitTimeout, WrongType, WrongValue
from perdure.journal import objects
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Pause, Protocol, Read
from perdure.kernel.scope import Frame, frame_of
from perdure.platform.failpoints import Site
from perdure.run.core import PROCEED, RunCore, core_of
from perdure.run.function import DIGEST, EXPLICIT
from perdure.run.order_handling import read_orders, stop_if_ordered
from perdure.run.parking import LOOK_SECONDS, RunParking
from perdure.run.recorded_waits import AGAIN, RecordedWait, withdrawn
from perdure.store.base import Statement, is_storable_name
from perdure.values import codec
from perdure.values.durations import Duration, seconds_of
from perdure.values.limits import ORDER_LOOK_SECONDS, WAIT_POLL_SECONDS
from perdure.values.log import warn

SLEEP_POLL_SECONDS = 1.0
"""How often a sleeping run reads the clock, which may be set meanwhile."""

NO_DEFAULT: Any = object()


class WaitRequest(msgspec.Struct, frozen=True):
    """A request to wait."""

    kind: str
    ident: bytes
    text: str
    until: int = 0
    choices: bytes = b""
    objects: Sequence[Statement] = ()
    want: Callable[[RecordedWait], r.WakeCondition | None] = lambda waited: None
    """Returns the condition, besides the time, that wakes the run after a worker has left it."""
    polls: bool = False
    """Whether to poll, because nothing notifies this process."""
    again: float = 0.0
    """Seconds after which a worker that has left the run checks again; 0 is never."""


class RehearsedWait(RecordedWait, eq=False, gc=False):
    """In a rehearsal: a wait without a recorded outcome, and the value that replaces it."""

    result: Any = None


WaitPoll = Callable[[RecordedWait], Protocol[bool]]
"""Checks whether the awaited thing has come, and then ends the wait."""


def ask(
    run: RunCore,
    question: str,
    choices: Sequence[Any] | None,
    schema: Any,
    timeout: Duration | None,
    default: Any,
    id: str | None,
) -> Protocol[Any]:
    """Wait for a person's answer."""
    frame = place_of(run, "ask")
    listed = None if choices is None else list(choices)
    ident = _ident(id, [question, listed])
    packed, made = objects.pack(run.store, listed, "choices") if listed is not None else (b"", ())
    wait = WaitRequest("ask", ident, _question(question), deadline(run, timeout), packed, made, _answer_to(run))

    def check_answer(value: Any) -> Any:
        if listed is not None and value not in listed:
            raise WrongValue(f"{value!r} is none of {', '.join(map(repr, listed))}")
        return convert(value, schema)

    return (yield from _await_answer(frame, wait, check_answer, default))


def approve(run: RunCore, question: str, timeout: Duration | None, default: Any, id: str | None) -> Protocol[bool]:
    """Wait for a yes or a no."""
    frame = place_of(run, "approve")
    wait = WaitRequest(
        "approve", _ident(id, question), _question(question), deadline(run, timeout), want=_answer_to(run)
    )

    def check_answer(value: Any) -> Any:
        if not isinstance(value, bool):
            raise WrongValue(f"{value!r} is neither True nor False")
        return value

    result: bool = yield from _await_answer(frame, wait, check_answer, default)
    return result


def sleep(run: RunCore, until: Duration | datetime, id: str | None) -> Protocol[None]:
    """Wait until a time. It is fixed when the code first gets here."""
    frame = place_of(run, "sleep")
    # Not identified by the time: computed from the clock, it differs each time for the same sleep.
    at = (
        _parse_deadline(until)
        if isinstance(until, datetime)
        else run.clock.wall_ms() + int(seconds_of(until, "sleep") * 1000)
    )
    shown = datetime.fromtimestamp(at / 1000, UTC).astimezone().isoformat(" ", "seconds")
    wait = WaitRequest("sleep", DIGEST if id is None else _ident(id, None), f"until {shown}", at)

    def look(waited: RecordedWait) -> Protocol[bool]:
        yield from ()
        return False

    yield from wait_for(frame, wait, look)


def wait_event(run: RunCore, name: str, timeout: Duration | None, default: Any) -> Protocol[Any]:
    """Wait for an event sent to the run, before or after it gets here. Each event is received once."""
    frame = place_of(run, "wait_event")
    owner = yield Read(lambda: run.engine.stream)
    ident = check_storable_name(name, "event's name").encode()
    taken = run.ledger.taken.setdefault(name, set())

    def want(waited: RecordedWait) -> r.WakeCondition:
        return r.WakeCondition("event", _find_free_number(taken), owner, run=run.id, name=name)

    wait = WaitRequest("event", ident, f"event {name!r}", deadline(run, timeout), want=want)

    def look(waited: RecordedWait) -> Protocol[bool]:
        number = _take_turn(run, taken)
        try:
            rows = yield Read(run.store.read, ("get_signal", (owner, run.id, name, number)))
            if rows:
                [(value, by)] = rows
                yield from end_wait(run, waited, "event", value, by, number)
        finally:
            if not waited.how:
                taken.discard(number)
        return bool(waited.how)

    waited = yield from wait_for(frame, wait, look)
    return (yield from _value(run, waited, wait, default, lambda value: value))


def _take_turn(run: RunCore, taken: set[int]) -> int:
    """Reserve the number of the next event, so that concurrent waiters for one name receive one each."""
    with run.lock:
        number = _find_free_number(taken)
        taken.add(number)
    return number


def _find_free_number(taken: Set[int]) -> int:
    number = 1
    while number in taken:
        number += 1
    return number


def convert(value: Any, schema: Any) -> Any:
    """Convert an answer to the requested type. Raises `ValueError` if it does not fit."""
    if schema is None:
        return value
    if hasattr(schema, "model_validate"):
        return schema.model_validate(value)
    return msgspec.convert(value, schema)


# -- internals --------------------------------------------------------------------------------------------------------


def place_of(run: RunCore, what: str) -> Frame:
    """Return the current frame. Raises inside a body."""
    frame = frame_of(run)
    if frame.inside:
        raise EffectInsideStep(
            f"run.{what}() inside a step or an effect: a body that waits cannot be continued",
            hint="wait in the run itself, and pass the result to the step",
        )
    return frame


def _ident(id: str | None, asked: Any) -> bytes:
    """Return the identity of a wait when the run is resumed: its id, or the digest of its question."""
    if id is not None:
        return EXPLICIT + check_storable_name(id, "an id").encode()
    return DIGEST + codec.digest(asked, "question")


def _answer_to(run: RunCore) -> Callable[[RecordedWait], r.WakeCondition]:
    return lambda waited: r.WakeCondition("answer", waited.seq, run.head.stream)


def _question(text: object) -> str:
    if not isinstance(text, str):
        raise WrongType(f"a question must be a str, not {text!r}")
    if not is_storable_name(text):
        raise NotStorable(f"a question must not contain NUL characters or lone surrogates: {text!r}")
    return text


def _parse_deadline(when: datetime) -> int:
    if when.tzinfo is None:
        when = when.astimezone()
    return max(1, int(when.timestamp() * 1000))  # 0 is never


def deadline(run: RunCore, timeout: Duration | None) -> int:
    """Return when a wait times out; 0 is never."""
    return 0 if timeout is None else run.clock.wall_ms() + int(seconds_of(timeout, "timeout") * 1000)


def _await_answer(frame: Frame, wait: WaitRequest, fits: Callable[[Any], Any], default: Any) -> Protocol[Any]:
    """Wait until somebody gives an acceptable answer."""
    run = core_of(frame)

    def look(waited: RecordedWait) -> Protocol[bool]:
        rows = yield Read(run.store.read, ("get_answer", (run.head.stream, waited.seq)))
        if rows:
            _, packed, by, _ = rows[0]
            value = yield from run.load(packed)
            yield from end_wait(run, waited, "answer" if _is_acceptable(value, fits) else "refused", packed, by)
        return bool(rows)

    waited = yield from wait_for(frame, wait, look)
    return (yield from _value(run, waited, wait, default, fits))


def _is_acceptable(value: Any, fits: Callable[[Any], Any]) -> bool:
    try:
        fits(value)
    except ValueError as error:
        warn("an answer was refused, and the question is asked again: %s", error)
        return False
    return True


def _value(
    run: RunCore, waited: RecordedWait, wait: WaitRequest, default: Any, fits: Callable[[Any], Any]
) -> Protocol[Any]:
    if isinstance(waited, RehearsedWait):
        return waited.result
    if waited.how != "timeout":
        return fits((yield from run.load(waited.value)))
    if default is NO_DEFAULT:
        raise WaitTimeout(f"timed out: {wait.text}")
    return default


def wait_for(frame: Frame, wait: WaitRequest, look: WaitPoll) -> Protocol[RecordedWait]:
    """Perform one wait from its start, which may be in an earlier opening, to its end."""
    run = core_of(frame)
    # An explicit id is one wait, however often the code gets here.
    nth = 0 if wait.ident.startswith(EXPLICIT) else frame.count(f"\0wait {wait.kind}", wait.ident)
    call = r.CallIdentity(frame.path, f"wait {wait.kind}", wait.ident, nth)
    waits = run.ledger.waits.setdefault((call.scope, call.name, call.ident), [])
    while True:
        waited = waits[nth] if nth < len(waits) else None
        if waited is None or waited.how in AGAIN:
            if run.rehearsed:
                yield from run.settle()
            if (stand_in := run.begin("wait", wait.text)) is not PROCEED:
                return RehearsedWait(0, wait.kind, 0, result=stand_in)
            if run.has_orders:
                yield from stop_if_ordered(run, cleanup=False)
            waited = yield from _begin(run, call, wait)
            waits[nth:] = [waited]
        waited.asked = True
        if not waited.how:
            if run.rehearsed:
                yield from run.settle()
            if (stand_in := run.begin("waiting", wait.text, why="it is already waiting")) is not PROCEED:
                return RehearsedWait(0, wait.kind, 0, result=stand_in)
            yield from _wait_until_ended(run, waited, wait, look)
        if waited.how not in AGAIN:
            return waited


def _begin(run: RunCore, call: r.CallIdentity, wait: WaitRequest) -> Protocol[RecordedWait]:
    began = r.WaitBegan(call, run.head.seq, wait.kind, wait.text, wait.until, wait.choices)
    # Withdraw questions of an earlier version of the code: their answers would lead nowhere.
    instead = run.ledger.find_unreached_waits(call.scope, wait.kind)
    seq = yield from run.commit(Site.WAIT_BEGIN, *withdrawn(instead), began, objects=wait.objects)
    for other in instead:
        other.how = "withdrawn"
    return RecordedWait(seq, wait.kind, wait.until)


def _wait_until_ended(run: RunCore, waited: RecordedWait, wait: WaitRequest, look: WaitPoll) -> Protocol[None]:
    """Wait until the end is recorded."""
    parking = run.parking
    if parking is None:
        yield from _wait_here(run, waited, wait, look)
        return
    look_at = run.clock.wall_ms() + int(wait.again * 1000) if wait.again else 0
    until = min((at for at in (waited.until, look_at) if at), default=0)
    waiter = parking.wait(run, wait.want(waited), until)
    try:
        yield from _wait_here(run, waited, wait, look, parking)
    finally:
        parking.stop_waiting(waiter)


def _is_always_true() -> bool:
    return True


def _wait_here(
    run: RunCore, waited: RecordedWait, wait: WaitRequest, look: WaitPoll, parking: RunParking | None = None
) -> Protocol[None]:
    began = run.clock.boot_ms()
    may_have_come: Callable[[], bool] = _is_always_true if wait.polls else run.store.watch(run.head.stream)
    while True:
        if may_have_come():
            if (yield from look(waited)):
                return
            yield from read_orders(run)
        if run.has_orders:
            yield from stop_if_ordered(run, cleanup=False)
        left = (waited.until - run.clock.wall_ms()) / 1000 if waited.until else SLEEP_POLL_SECONDS
        if left <= 0:
            yield from end_wait(run, waited, "time" if waited.kind == "sleep" else "timeout")
            return
        if run.wait is not None:
            left = min(left, run.wait - (run.clock.boot_ms() - began) / 1000)
            if left <= 0:
                raise RunWaiting(f"run {run.id!r} waits: {wait.text}", hint=_hint(run, wait))
        if parking is not None:
            parking.leave_if_idle()
            left = min(left, LOOK_SECONDS)
        yield Pause(min(left, ORDER_LOOK_SECONDS if waited.kind == "sleep" else WAIT_POLL_SECONDS))


def end_wait(
    run: RunCore, waited: RecordedWait, how: str, value: bytes = b"", by: str = "", number: int = 0
) -> Protocol[None]:
    """Record the end of a wait."""
    yield from run.commit(Site.WAIT_END, r.WaitEnded(waited.seq, how, value, by, number))
    waited.how, waited.value, waited.by = how, value, by


def _hint(run: RunCore, wait: WaitRequest) -> str:
    run_id, store = shlex.quote(run.id), run.store_option
    if wait.kind == "approve":
        return f"answer with `perdure answer {run_id}{store} --yes` or `--no`, then start the run again"
    if wait.kind == "ask":
        return f"answer with `perdure answer {run_id} VALUE{store}`, then start the run again"
    if wait.kind == "event":
        return f"send it with `perdure send {run_id} NAME{store}`, then start the run again"
    return "start the run again after that time"
