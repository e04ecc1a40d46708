"""Rehearsing: recorded runs are replayed by today's code, and nothing is run, waited for or written.

A run is opened without a lease, from its journal, as a finished one is. Recorded calls return what is recorded. The
first call that is not recorded ends the replay of that run, because only the real thing could tell what it returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from . import codec
from . import records as r
from .errors import PerdureError, StoreUnavailable
from .failpoints import Site
from .run.account import Account
from .run.core import RunCore
from .run.ledger import AGAIN, Recorded, Waited, scopes_around
from .run.lifecycle import Claimed, input_changed, load
from .run.lines import called, calling_line, shown
from .run.requests import Protocol, Read
from .run.scope import Frame, current
from .run.steps import describe
from .runs import RunSummary, summary_of
from .store import file_of

if TYPE_CHECKING:
    from .engine import Engine, Place
    from .store.base import Store

SHOWN_MAX = 3
"""Calls that are named one by one."""


class Stops(BaseException):
    """Unwinds the program where its replay ends. No Exception: programs handle those."""


class Finding(msgspec.Struct, frozen=True):
    """Something that a replay has shown."""

    kind: str
    """`diverges`: it cannot go on, or would not have come to the same. `differs`: it goes on, and something recorded is
    not used. `stops`: it could not be replayed further."""
    text: str
    line: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return self.text + (f" ({self.line})" if self.line else "")


class Replay(msgspec.Struct, frozen=True):
    """What became of one recorded run."""

    agent: str
    id: str
    status: r.Status
    findings: tuple[Finding, ...]
    calls: int
    """Recorded calls that the code has asked for."""
    then: str
    """Where it goes on, or how it ends."""

    @property
    def verdict(self) -> str:
        """The worst that was found: diverges, differs, stops, or replays."""
        kinds = {finding.kind for finding in self.findings}
        return next((kind for kind in ("diverges", "differs", "stops") if kind in kinds), "replays")


class RehearsedRun(RunCore):
    """A run that is only replayed."""

    def __init__(self, engine: Engine, summary: RunSummary, *, fork: bool) -> None:
        ledger, head = load(engine, Claimed(summary.stream, 0, True, fork))
        super().__init__(engine, summary.id, ledger, head, resumed=True)
        self.account = Account(ledger, credits=False)
        self.summary = summary
        self.findings: list[Finding] = []
        self.then = ""
        self.over = False
        """Its replay has ended."""
        self._items: set[str] = set()
        self._result: Finding | None = None

    def find(self, kind: str, text: str, line: str = "", hint: str = "") -> None:
        """Note something; the same thing in a loop once."""
        finding = Finding(kind, text, line, hint)
        if finding not in self.findings:
            self.findings.append(finding)

    def stop(self) -> Stops:
        """The replay of this run is over, whatever the program does on its way out."""
        self.over = True
        return Stops(self.id)

    # -- what the run would do ----------------------------------------------------------------------------------------

    def begin(self, what: str, arguments: Mapping[str, Any] | None = None, why: str = "") -> None:
        told, line = called(what, arguments) if arguments is not None else what, calling_line()
        if self.over:
            raise Stops(self.id)
        if self.ledger.folded is not None:
            self.find("stops", f"it was folded: its steps are in the archive {self.ledger.folded.archive}")
        elif self.finished:
            self.find("diverges", f"{told} is not recorded, and the run is finished", line, self._instead(what))
        else:
            self.then = f"goes on with {told}" + (f" ({why})" if why else "") + (f" at {line}" if line else "")
            twice = any(one.effect and one.name == what for one in self._unasked())
            self._leave_out("diverges" if twice else "differs", f"before {told} it has not asked for")
        raise self.stop()

    def must_be_open(self) -> None:
        if self.finished or self.over:
            self.begin("a write")

    def compare(self, what: str, recorded: bytes, value: Any) -> None:
        packed, _ = self.pack(value, what)
        finding = None
        if packed != recorded:
            text = f"{what} is {shown(value)}, and was recorded as {shown(self.unpack(recorded))}"
            finding = Finding("diverges", text, calling_line())
        if what == "result":
            self._result = finding  # the last one counts
        elif finding is not None:
            self.find(*msgspec.structs.astuple(finding))

    def pass_item(self, path: str) -> None:
        self._items.add(path)

    def commit(self, site: Site, *entries: r.Record, **_: Any) -> Protocol[int]:
        """Nothing is written; what the run writes of its own is seen by the code all the same."""
        yield from ()
        if site not in (Site.WRITE, Site.ITEM_DONE, Site.RUN_END) or (self.finished and site != Site.RUN_END):
            self.begin("an item that is done" if site == Site.ITEM_DONE else f"a commit ({site})")
        return self.head.seq

    def commit_with(self, site: Site, *_: Any, **__: Any) -> Protocol[tuple[r.Landing, ...]]:
        yield from self.commit(site)
        return ()

    def end(self, error: BaseException | None) -> None:
        if self.over or isinstance(error, Stops):
            return
        self.over = True
        if isinstance(error, PerdureError):
            self.find("diverges", error.message, hint=error.hint)
        elif error is not None and describe(error) == self.summary.error:
            self.then = f"fails as before: {self.summary.error}"
        elif error is not None:
            self.find("diverges" if self.finished else "differs", f"it raises {type(error).__name__}: {error}")
        else:
            self.then = "comes to the same end" if self.finished else "would finish"
            if self._result is not None:
                self.findings.append(self._result)
            self._leave_out("diverges" if self.finished else "differs", "it does not ask any more for")

    # -- what it has not asked for ------------------------------------------------------------------------------------

    def calls(self) -> list[Recorded]:
        """Every recorded call, in the order of the journal."""
        found = {id(one): one for calls in self.ledger.calls.values() for one in calls if not one.blank}
        return sorted(found.values(), key=lambda one: one.seq)

    def asked_for(self, one: Recorded) -> bool:
        """Whether the code came to it, now or before it went back; or to the item around it, which was done."""
        return one.consumed or one.credited or self._passed(one.path)

    def _passed(self, path: str) -> bool:
        return any(scope in self._items for scope in scopes_around(path))

    def _unasked_waits(self) -> list[Waited]:
        waits = (one for (path, *_), waits in self.ledger.waits.items() if not self._passed(path) for one in waits)
        return [one for one in waits if not one.asked and one.how not in AGAIN]

    def _unasked(self) -> list[Recorded]:
        return [one for one in self.calls() if not self.asked_for(one)]

    def _instead(self, name: str) -> str:
        """What is recorded, and may be the call that the code makes otherwise now."""
        unasked = self._unasked()
        if same := [one for one in unasked if one.name == name]:
            return f"with other arguments it is recorded: {_listed(same)}"
        return f"recorded, and not asked for before it: {_listed(unasked)}; {_RENAMED}" if unasked else ""

    def _leave_out(self, kind: str, text: str) -> None:
        left = _listed([*self._unasked(), *self._unasked_waits()])
        if left:
            self.find(kind, f"{text} {left}, recorded", hint=_RENAMED)

    def told(self) -> Replay:
        """The report of this run."""
        asked = sum(self.asked_for(one) for one in self.calls())
        return Replay(self.engine.name, self.id, self.summary.status, tuple(self.findings), asked, self.then)


_RENAMED = 'if something was renamed, say was="old_name" (docs/code-changes.md)'


def _listed(recorded: Sequence[Recorded | Waited]) -> str:
    named = [f"{one.name if isinstance(one, Recorded) else one.kind} (entry {one.seq})" for one in recorded]
    more = f" and {len(named) - SHOWN_MAX} more" if len(named) > SHOWN_MAX else ""
    return ", ".join(named[:SHOWN_MAX]) + more


class Rehearsal:
    """One pass of a program over recorded runs."""

    def __init__(self) -> None:
        self.runs: list[RehearsedRun] = []
        self.notes: list[str] = []
        """What befell the program outside of runs."""
        self._stores: list[Store] = []

    def enter(self, url: str, enter: Callable[[], Place]) -> Place:
        """Open a store, and let nobody write to it."""
        path = file_of(url)
        if path is not None and not os.path.exists(path):
            raise StoreUnavailable(f"there is no store at {path}", hint="none is made here: say which one with --store")
        place = enter()
        place.store.guard = self._guard
        self._stores.append(place.store)
        return place

    def close(self) -> None:
        """Stores that stay open can be written to again."""
        for store in self._stores:
            store.guard = None

    def open(self, engine: Engine, run_id: str, given: Any, outer: Frame | None) -> Protocol[RunCore]:
        """A recorded run, for the program to go through."""
        rows = yield Read(engine.store.read, ("get_run", (engine.name, run_id)))
        if not rows:
            if outer is not None:
                outer.run.begin(f"run {run_id!r}, a child")
            self.notes.append(f"it would start run {run_id!r}, which is not recorded")
            raise Stops(run_id)
        run = RehearsedRun(engine, summary_of(engine.store, rows[0]), fork=rows[0][11] > 0)
        self.runs.append(run)
        if run.summary.status == r.Status.CANCELLED:
            run.find("stops", "it was cancelled, and is not gone on with")
            raise run.stop()
        if given is not None and codec.digest(given, "input") != rows[0][4]:
            error = yield Read(input_changed, (engine, run_id, given))
            run.find("diverges", error.message, hint=error.hint)
            raise run.stop()
        run.root.parent = outer
        if outer is not None:
            outer.run.child = run
        engine.opened(run)
        return run

    def _guard(self) -> None:
        """Somebody is about to commit something that is not a run's."""
        frame, line = current(), calling_line()
        if frame is not None and isinstance(frame.run, RehearsedRun):
            run = frame.run
            if not run.over:
                run.find("stops", "it writes to the agent in the open, which is not done here", line)
            raise run.stop()
        self.notes.append(f"it writes outside of a run, which is not done here{f' (at {line})' if line else ''}")
        raise Stops("")
