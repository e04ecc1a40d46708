"""Orders to a run that is open here: heard with its next commit, or by the ear; obeyed at its next boundary.

A boundary is the beginning and the end of a step, an effect or an item, a write in the open, and every wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from ..errors import RunCancelled, RunPaused, RunStopped, RunWasCancelled, RunWasPaused
from ..failpoints import Site
from ..limits import ORDER_LOOK_AFTER_SECONDS
from .requests import Protocol, Read

if TYPE_CHECKING:
    from ..store.base import Store
    from .core import RunCore

_CLEANING: ContextVar[tuple[int, ...]] = ContextVar("perdure_cleaning", default=())
"""The streams of the runs that clean up here."""

_STREAM = "_perdure_stream"


class Told(msgspec.Struct, frozen=True):
    """What a run was told, and has not obeyed yet."""

    order: r.Order
    reason: str
    by: str
    number: int = 0


def around(run: RunCore) -> Iterator[RunCore]:
    """The run and those that it is part of, outwards."""
    at: RunCore | None = run
    while at is not None:
        yield at
        at = at.outer


def heed(run: RunCore, *, cleanup: bool = True) -> Protocol[None]:
    """Stop here, if the run or one around it was told so. Asked only when `run.is_told`: nearly never.

    What cleans up goes on, unless `cleanup` is False: a cancelled run waits for nobody.
    """
    if any(it.head.ordered != it.heard for it in around(run)):
        yield from listen(run)
    stopped = stopped_here(run, cleanup=cleanup)
    if stopped is not None:
        raise stopped


def listen(run: RunCore) -> Protocol[None]:
    """Find out what the run, and those around it, were told."""
    runs = list(around(run))
    rows = yield Read(run.store.read, ("standing_orders", (_listed(runs),)))
    tell(runs, rows)


def tell(runs: Iterable[RunCore], rows: Iterable[Sequence[Any]]) -> None:
    """Let runs know of their standing orders. Bodies that can be stopped are, at once."""
    found = {row[0]: row[1:] for row in rows}
    for run in runs:
        run.heard = run.head.ordered
        if run.head.stream not in found or run.cleanup is not None:
            continue
        number, order, reason, by = found[run.head.stream]
        run.heard = run.head.ordered = number
        told = Told(r.Order(order), reason, by, number)
        run.order = None if told.order == r.Order.RESUME else told
        run.interrupt()


def _listed(runs: Iterable[RunCore]) -> str:
    return f"[{','.join(str(run.head.stream) for run in runs)}]"  # JSON, without the time to import it


def cleans_up(run: RunCore) -> bool:
    """Whether the code here cleans up after this run, or one in it."""
    cleaning = _CLEANING.get()
    return bool(cleaning) and run.head.stream in cleaning


def stopped_here(run: RunCore, *, cleanup: bool = True) -> RunStopped | None:
    """What stops the code here, going by what was heard; of several runs around each other, the outermost one ends."""
    cleans, stopped = False, None
    for it in around(run):
        cleans = cleans or (cleanup and cleans_up(it))
        if it.order is not None and not (cleans and it.order.order == r.Order.CANCEL):
            stopped = stop(it, it.order)
    return stopped


def stop(run: RunCore, told: Told) -> RunStopped:
    """The exception that leaves the block of a run."""
    run.stopped = True
    kind = RunCancelled if told.order == r.Order.CANCEL else RunPaused
    error = kind(in_words(run.id, told), hint=hint(run.id, told), reason=told.reason, by=told.by, run=run.id)
    error.__dict__[_STREAM] = run.head.stream
    return error


def refusal(run_id: str, told: Told) -> RunStopped:
    """The same outside of any block: for who opens it, and for who has left it."""
    kind = RunWasCancelled if told.order == r.Order.CANCEL else RunWasPaused
    return kind(in_words(run_id, told), hint=hint(run_id, told), reason=told.reason, by=told.by, run=run_id)


def in_words(run_id: str, told: Told) -> str:
    """Who has done what, and why."""
    what = "was cancelled" if told.order == r.Order.CANCEL else "is paused"
    return f"run {run_id!r} {what} by {told.by}" + (f": {told.reason}" if told.reason else "")


def hint(run_id: str, told: Told) -> str:
    """What to do now."""
    return RunCancelled.hint if told.order == r.Order.CANCEL else f"go on with agent.runs.resume({run_id!r})"


def entry_of(told: Told) -> r.Record:
    """What a run records when it obeys."""
    kind = r.RunCancelled if told.order == r.Order.CANCEL else r.RunPaused
    return kind(told.reason, told.by, told.number)


def stopped_in(error: BaseException | None) -> RunStopped | None:
    """The stop that an exception is, or that is among those of a group."""
    if isinstance(error, RunStopped):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(stopped_in, error.exceptions)), None)
    return None


def is_of(error: RunStopped, run: RunCore) -> bool:
    """Whether it is this run that was told to stop, and not one around it."""
    return bool(error.__dict__.get(_STREAM) == run.head.stream)


class Cleaning:
    """The code within may do new things although the run is cancelled."""

    def __init__(self, run: RunCore) -> None:
        self._run = run
        self._token: Token[tuple[int, ...]] | None = None

    def begin(self) -> Protocol[None]:
        """Recorded once, so that a process that dies meanwhile can be followed by one that goes on with it."""
        run = self._run
        told = next((it.order for it in around(run) if it.order is not None), None)
        self._token = _CLEANING.set((*_CLEANING.get(), run.head.stream))
        if told is not None and told.order == r.Order.CANCEL and run.cleanup is None and not run.finished:
            run.cleanup = r.CleanupBegan(told.reason, told.by, told.number)
            yield from run.commit(Site.CLEANUP, run.cleanup)

    def end(self) -> None:
        """From here on it stops again."""
        if self._token is not None:
            _CLEANING.reset(self._token)
            self._token = None


class Ear:
    """Looks, in the heart's thread, for orders to the runs that are open here: they may commit nothing for hours."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[int, tuple[RunCore, int]] = {}
        self._after_ms = 0 if store.one_host else int(ORDER_LOOK_AFTER_SECONDS * 1000)
        self._may_be_told: Any = None

    def opened(self, run: RunCore) -> None:
        """Listen for this one too."""
        self._runs[run.head.stream] = run, self._store.clock.boot_ms()

    def closed(self, run: RunCore) -> None:
        """And now no more."""
        self._runs.pop(run.head.stream, None)

    def look(self) -> None:
        """On a server, short ones are left alone: they hear of it with their commits, and must not cost more."""
        since = self._store.clock.boot_ms() - self._after_ms
        runs = [run for run, opened_at in list(self._runs.values()) if opened_at <= since]
        if not runs:
            self._may_be_told = None
            return
        if self._may_be_told is None:
            self._may_be_told = self._store.watch(0)
        if self._may_be_told():
            tell(runs, self._store.read("standing_orders", (_listed(runs),)))
        for run in runs:
            if run.order is not None:
                run.interrupt()  # what has begun since it was told
