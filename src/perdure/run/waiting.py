"""What a run waits for: a person, an event, a time. Asked once, durably, however often the process dies meanwhile.

A wait is two entries of the run: one when it begins, which makes it visible, and one when it has ended, which has its
outcome. What ends it comes from elsewhere: an answer, an event sent to the run, or the clock.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime
from typing import Any

import msgspec

from .. import codec, objects
from .. import records as r
from ..durations import Duration, seconds_of
from ..errors import EffectInsideStep, RunWaiting, WaitTimeout
from ..failpoints import Site
from ..limits import ORDER_LOOK_SECONDS, WAIT_POLL_SECONDS
from ..store.base import Statement
from .core import PROCEED, RunCore
from .functions import DIGEST, EXPLICIT
from .obeying import heed, listen
from .parking import LOOK_SECONDS, Parking
from .requests import Pause, Protocol, Read
from .scope import Frame, frame_of
from .waits import AGAIN, Waited, withdrawn
from .writes import named

logger = logging.getLogger("perdure")

SLEEP_POLL_SECONDS = 1.0
"""The clock may be set while a run sleeps: it is looked at again so often."""

NO_DEFAULT: Any = object()


class Wait(msgspec.Struct, frozen=True):
    """What is waited for."""

    kind: str
    ident: bytes
    text: str
    until: int = 0
    choices: bytes = b""
    objects: Sequence[Statement] = ()
    want: Callable[[Waited], r.Want | None] = lambda waited: None
    """What wakes the run when a worker has left it, besides the time."""
    polls: bool = False
    """Whether nobody tells this process when it may have come."""
    again: float = 0.0
    """Seconds after which a worker that has left the run looks in any case; 0 is never."""


class StoodIn(Waited, eq=False, gc=False):
    """In a rehearsal, a wait whose outcome is not recorded, and what stands in for it."""

    result: Any = None


Look = Callable[[Waited], Protocol[bool]]
"""Looks whether what is waited for has come, and then ends the wait."""


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
    wait = Wait("ask", ident, _question(question), deadline(run, timeout), packed, made, _answer_to(run))

    def fits(value: Any) -> Any:
        if listed is not None and value not in listed:
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, listed))}")
        return convert(value, schema)

    return (yield from _answered(frame, wait, fits, default))


def approve(run: RunCore, question: str, timeout: Duration | None, default: Any, id: str | None) -> Protocol[bool]:
    """Wait for a yes or a no."""
    frame = place_of(run, "approve")
    wait = Wait("approve", _ident(id, question), _question(question), deadline(run, timeout), want=_answer_to(run))

    def fits(value: Any) -> Any:
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is neither True nor False")
        return value

    result: bool = yield from _answered(frame, wait, fits, default)
    return result


def sleep(run: RunCore, until: Duration | datetime, id: str | None) -> Protocol[None]:
    """Wait until a time comes. It is fixed when the run first comes here."""
    frame = place_of(run, "sleep")
    # Not by how long: "until" computed from the clock is another value each time, and the same sleep.
    at = _at(until) if isinstance(until, datetime) else run.clock.wall_ms() + int(seconds_of(until, "sleep") * 1000)
    shown = datetime.fromtimestamp(at / 1000, UTC).astimezone().isoformat(" ", "seconds")
    wait = Wait("sleep", DIGEST if id is None else _ident(id, None), f"until {shown}", at)

    def look(waited: Waited) -> Protocol[bool]:
        yield from ()
        return False

    yield from wait_for(frame, wait, look)


def wait_event(run: RunCore, name: str, timeout: Duration | None, default: Any) -> Protocol[Any]:
    """Wait for an event that somebody sends to the run, before or after it comes here; each is taken once."""
    frame = place_of(run, "wait_event")
    owner = yield Read(lambda: run.engine.stream)
    taken = run.ledger.taken.setdefault(name, set())

    def want(waited: Waited) -> r.Want:
        return r.Want("event", _free_number(taken), owner, run=run.id, name=name)

    ident = named(name, "event's name").encode()
    wait = Wait("event", ident, f"event {name!r}", deadline(run, timeout), want=want)

    def look(waited: Waited) -> Protocol[bool]:
        number = _take_turn(run, taken)
        try:
            rows = yield Read(run.store.read, ("get_signal", (owner, run.id, name, number)))
            if rows:
                yield from end_wait(run, waited, "event", rows[0][0], rows[0][1], number)
        finally:
            if not waited.how:
                taken.discard(number)
        return bool(waited.how)

    waited = yield from wait_for(frame, wait, look)
    return (yield from _value(run, waited, wait, default, lambda value: value))


def _take_turn(run: RunCore, taken: set[int]) -> int:
    """The number of the next event; two that wait for one name, in threads or tasks, take one each."""
    with run.lock:
        number = _free_number(taken)
        taken.add(number)
    return number


def _free_number(taken: Set[int]) -> int:
    number = 1
    while number in taken:
        number += 1
    return number


def convert(value: Any, schema: Any) -> Any:
    """An answer as the type that was asked for; ValueError when it is none."""
    if schema is None:
        return value
    if hasattr(schema, "model_validate"):
        return schema.model_validate(value)
    return msgspec.convert(value, schema)


# -- inside -----------------------------------------------------------------------------------------------------------


def place_of(run: RunCore, what: str) -> Frame:
    """Where the code is, which may not be inside a body."""
    frame = frame_of(run)
    if frame.inside:
        raise EffectInsideStep(
            f"run.{what}() inside a step or an effect: a body that waits cannot be continued",
            hint="wait in the run itself, and pass what comes of it to the step",
        )
    return frame


def _ident(id: str | None, asked: Any) -> bytes:
    """What a wait is known by when the run is resumed: its id, else what it says."""
    if id is not None:
        return EXPLICIT + named(id, "an id").encode()
    return DIGEST + codec.digest(asked, "question")


def _answer_to(run: RunCore) -> Callable[[Waited], r.Want]:
    return lambda waited: r.Want("answer", waited.seq, run.head.stream)


def _question(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"a question is a str, not {text!r}")
    return text


def _at(when: datetime) -> int:
    if when.tzinfo is None:
        when = when.astimezone()
    return max(1, int(when.timestamp() * 1000))  # 0 is never


def deadline(run: RunCore, timeout: Duration | None) -> int:
    """When a wait ends by itself; 0 is never."""
    return 0 if timeout is None else run.clock.wall_ms() + int(seconds_of(timeout, "timeout") * 1000)


def _answered(frame: Frame, wait: Wait, fits: Callable[[Any], Any], default: Any) -> Protocol[Any]:
    """Wait until somebody has answered, again and again until the answer fits."""
    run = frame.run

    def look(waited: Waited) -> Protocol[bool]:
        rows = yield Read(run.store.read, ("get_answer", (run.head.stream, waited.seq)))
        if rows:
            _, packed, by, _ = rows[0]
            value = yield from run.load(packed)
            yield from end_wait(run, waited, "answer" if _is_fit(value, fits) else "refused", packed, by)
        return bool(rows)

    waited = yield from wait_for(frame, wait, look)
    return (yield from _value(run, waited, wait, default, fits))


def _is_fit(value: Any, fits: Callable[[Any], Any]) -> bool:
    try:
        fits(value)
    except ValueError as error:
        logger.warning("an answer does not fit, and is asked for again: %s", error)
        return False
    return True


def _value(run: RunCore, waited: Waited, wait: Wait, default: Any, fits: Callable[[Any], Any]) -> Protocol[Any]:
    if isinstance(waited, StoodIn):
        return waited.result
    if waited.how != "timeout":
        return fits((yield from run.load(waited.value)))
    if default is NO_DEFAULT:
        raise WaitTimeout(f"nothing came in time: {wait.text}")
    return default


def wait_for(frame: Frame, wait: Wait, look: Look) -> Protocol[Waited]:
    """One wait, from its beginning, which may be long ago, to its end."""
    run = frame.run
    # An explicit id stands for one wait, however often the code comes there.
    nth = 0 if wait.ident.startswith(EXPLICIT) else frame.count(f"\0wait {wait.kind}", wait.ident)
    call = r.Call(frame.path, f"wait {wait.kind}", wait.ident, nth)
    waits = run.ledger.waits.setdefault((call.scope, call.name, call.ident), [])
    while True:
        waited = waits[nth] if nth < len(waits) else None
        if waited is None or waited.how in AGAIN:
            if run.rehearsed:
                yield from run.settle()
            if (stand_in := run.begin("wait", wait.text)) is not PROCEED:
                return StoodIn(0, wait.kind, 0, result=stand_in)
            if run.is_told:
                yield from heed(run, cleanup=False)
            waited = yield from _begin(run, call, wait)
            waits[nth:] = [waited]
        waited.asked = True
        if not waited.how:
            if run.rehearsed:
                yield from run.settle()
            if (stand_in := run.begin("waiting", wait.text, why="it waits already")) is not PROCEED:
                return StoodIn(0, wait.kind, 0, result=stand_in)
            yield from _hold(run, waited, wait, look)
        if waited.how not in AGAIN:
            return waited


def _begin(run: RunCore, call: r.Call, wait: Wait) -> Protocol[Waited]:
    began = r.WaitBegan(call, run.head.seq, wait.kind, wait.text, wait.until, wait.choices)
    # What an earlier version of the code has asked here: nobody is to answer a question that leads nowhere.
    instead = run.ledger.unasked_waits(call.scope, wait.kind)
    seq = yield from run.commit(Site.WAIT_BEGIN, *withdrawn(instead), began, objects=wait.objects)
    for other in instead:
        other.how = "withdrawn"
    return Waited(seq, wait.kind, wait.until)


def _hold(run: RunCore, waited: Waited, wait: Wait, look: Look) -> Protocol[None]:
    """Until it has ended, and that is recorded."""
    parking = run.parking
    if parking is None:
        yield from _hold_here(run, waited, wait, look)
        return
    look_at = run.clock.wall_ms() + int(wait.again * 1000) if wait.again else 0
    until = min((at for at in (waited.until, look_at) if at), default=0)
    waiter = parking.wait(run, wait.want(waited), until)
    try:
        yield from _hold_here(run, waited, wait, look, parking)
    finally:
        parking.go_on(waiter)


def _always() -> bool:
    return True


def _hold_here(run: RunCore, waited: Waited, wait: Wait, look: Look, parking: Parking | None = None) -> Protocol[None]:
    began = run.clock.boot_ms()
    may_have_come: Callable[[], bool] = _always if wait.polls else run.store.watch(run.head.stream)
    while True:
        if may_have_come():
            if (yield from look(waited)):
                return
            yield from listen(run)
        if run.is_told:
            yield from heed(run, cleanup=False)
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
    run: RunCore, waited: Waited, how: str, value: bytes = b"", by: str = "", number: int = 0
) -> Protocol[None]:
    """It has come, or its time has."""
    yield from run.commit(Site.WAIT_END, r.WaitEnded(waited.seq, how, value, by, number))
    waited.how, waited.value, waited.by = how, value, by


def _hint(run: RunCore, wait: Wait) -> str:
    it, store = shlex.quote(run.id), run.store_option
    if wait.kind in ("ask", "approve"):
        return f"answer with `perdure answer {it} VALUE{store}`, then start it again"
    if wait.kind == "event":
        return f"send it with `perdure send {it} NAME{store}`, then start it again"
    return "start it again when the time has come"
