"""One recorded run, as today's code goes through it.

A call that is recorded returns what is recorded. One that is not gets a stand-in for its result, and the code goes on:
what it has not come to in the end is what a resume would not find. A run is gone through as if it could have stopped
anywhere: so the bodies of done items are entered too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import objects
from .. import records as r
from ..errors import PerdureError
from ..failpoints import Site
from ..journal.append import Head
from ..run.account import Account
from ..run.core import PROCEED, RunCore
from ..run.functions import Function, Options
from ..run.ledger import Ledger, Recorded
from ..run.lines import called, calling_line, shown
from ..run.obeying import around
from ..run.requests import Pause, Protocol
from ..run.scope import Frame, current
from ..run.steps import describe
from ..runs import RunSummary
from .recorded import Contents, parts_of
from .reports import FAILS, RUN_STEPS, Cut, Finding, New, Replay, judged, listed
from .stand_ins import OPAQUE, RECORDED, Stops, Unrecorded

if TYPE_CHECKING:
    from ..engine import Engine
    from .passes import Rehearsal

NEW_MAX = 10_000
"""A loop that waits for something may never end when that is stood in for."""

_REACHED = ("doubt", "retry", "waiting")
"""What is recorded, and has not ended."""
_OF_STEPS = (Site.STEP_DONE, Site.STEP_FAILED, Site.ATTEMPT_FAILED, Site.CREDIT)
_OF_CODE = (Site.WRITE, Site.ITEM_DONE, Site.RUN_END, *_OF_STEPS)
"""Commits that the code outside of effects makes: the code goes on as if they were durable."""


SETTLED_ROUNDS, PAUSED_ROUNDS, PAUSE_SECONDS = 40, 20, 0.001
"""How often other tasks get a turn, and at last a moment, until they are taken to wait for something else."""


class RehearsedRun(RunCore):
    """A run that is only replayed."""

    rehearsed = True

    def __init__(
        self, rehearsal: Rehearsal, engine: Engine, run_id: str, found: tuple[Ledger, Head], summary: RunSummary | None
    ) -> None:
        ledger, head = found
        super().__init__(engine, run_id, ledger, head, resumed=True)
        self.account = Account(ledger, credits=False)
        self.rehearsal = rehearsal
        self.summary = summary
        """None of a run that is not recorded, which the code would begin inside of another."""
        self.was_finished, self.finished = self.finished, False
        self.contents = Contents(ledger, lambda: parts_of(self.store, head.stream) if summary is not None else [])
        self.findings: list[Finding] = []
        self.new: list[New] = []
        self.then = ""
        self.over = False
        """Its replay has ended."""
        self.cut = Cut()
        """Why its replay has ended before the code did, if it has."""
        self._refused = False
        self._result: Finding | None = None

    def find(self, kind: str, text: str, line: str = "", hint: str = "") -> None:
        """Note something; the same thing in a loop once."""
        finding = Finding(kind, text, line, hint)
        if finding not in self.findings:
            self.findings.append(finding)

    def refuse(self, error: PerdureError) -> None:
        """It cannot go on: so nothing is done twice either."""
        self._refused = True
        self.find("diverges", error.message, hint=error.hint)

    def stop(self, cut: str = "", hint: str = "") -> Stops:
        """The replay of this run and of those around it is over, whatever the program does on its way out."""
        for run in around(self):
            if isinstance(run, RehearsedRun) and not run.over:
                run.over, run.cut = True, Cut(cut, hint)
        return Stops(cut)

    # -- what the run would do ----------------------------------------------------------------------------------------

    def begin(
        self,
        kind: str,
        what: str,
        arguments: Mapping[str, Any] | None = None,
        why: str = "",
        call: r.Call | None = None,
    ) -> Any:
        told, line = called(what, arguments) if arguments is not None else what, calling_line()
        new = New(kind, what, told, line) if call is None else New(kind, what, told, line, call.ident, call.scope)
        self.must_be_open()
        if not self.is_left():
            if self.was_finished:
                self.note(new)
            self.then = f"goes on with {told}" + (f" ({why})" if why else "") + (f" at {line}" if line else "")
            raise self.stop()
        if len(self.rehearsal.new) + len(self.rehearsal.handed) >= NEW_MAX:
            raise self.stop(f"it goes on and on with what is not recorded, {NEW_MAX:,} times so far", RUN_STEPS)
        if kind not in _REACHED:
            self.note(new)
        if kind == "step" and self.rehearsal.rules.run_steps and call is not None:
            return self._ran_before(call)
        return None if kind in ("run", "checkpoint") else self._stand_in(new)

    def settle(self) -> Protocol[None]:
        """Other tasks of the event loop may still come to what is recorded: they go first, as long as they get on."""
        rounds = 0
        while _has_company() and rounds < SETTLED_ROUNDS and not self.over and self.is_left():
            before = self.rehearsal.progress
            yield Pause(0.0 if rounds < SETTLED_ROUNDS - PAUSED_ROUNDS else PAUSE_SECONDS)
            gets_on = self.rehearsal.opening or self.rehearsal.progress != before
            rounds = 0 if gets_on else rounds + 1

    def note(self, new: New) -> None:
        """Something begins that is not recorded."""
        self.new.append(new)
        self.rehearsal.new.append(new)

    def is_left(self) -> bool:
        """Whether something recorded, in this run or in another one that is open, was not asked for yet."""
        runs = [*_rehearsed(self), *(run for run in self.rehearsal.runs if not run.over)]
        return any(run.contents.is_left(self.rehearsal.opened) for run in runs)

    def _ran_before(self, call: r.Call) -> Any:
        """A step runs once, however often the run is gone through."""
        if (self.id, call) not in self.rehearsal.ran:
            return PROCEED
        done, made = self.rehearsal.ran[self.id, call]
        self.land(current() or self.root, done.writes)
        return objects.opened(done.result, made)

    def _stand_in(self, new: New) -> Any:
        mode = self.rehearsal.mode
        if mode is RECORDED and (twin := self._twin(new)) is not None:
            return self.unpack(twin.result)
        self.rehearsal.handed.append(new)
        if mode is OPAQUE or mode is RECORDED:
            return Unrecorded(lambda: _looked_at(self, new))
        return mode

    def _twin(self, new: New) -> Recorded | None:
        """The same call in another place, or under another name, which the code has not asked for."""
        for run in _rehearsed(self):
            for one in run.contents.calls:
                same = one.done and one.ident == new.ident and (one.name == new.name or one.path == new.scope)
                if same and id(one) not in self.rehearsal.twins and not run.contents.asked_for(one):
                    self.rehearsal.twins[id(one)] = one
                    return one
        return None

    def match(
        self, frame: Frame, function: Function, options: Options, arguments: dict[str, Any], ident: bytes
    ) -> tuple[Recorded | None, int]:
        """What the code asks for after it has caught the end of its replay is not what it would ask for."""
        self.must_go_on()
        self.rehearsal.progress += 1
        return super().match(frame, function, options, arguments, ident)

    def must_go_on(self) -> None:
        """The replay has not ended."""
        if self.over:
            raise Stops(self.cut.text)

    def must_be_open(self) -> None:
        self.must_go_on()
        if self.ledger.folded is not None:
            self.find("stops", f"it was folded: its steps are in the archive {self.ledger.folded.archive}")
            raise self.stop(f"run {self.id!r} was folded")

    def compare(self, what: str, recorded: bytes, value: Any) -> None:
        packed, _ = self.pack(value, what)
        finding = None
        if packed != recorded:
            text = f"{what} is {shown(value)}, and was recorded as {shown(self.unpack(recorded))}"
            # What is new may well change it. A resume keeps what is recorded.
            finding = Finding("differs" if self.rehearsal.new else "diverges", text, calling_line())
        if what == "result":
            self._result = finding  # the last one counts
        elif finding is not None:
            self.find(finding.kind, finding.text, finding.line)

    # -- items --------------------------------------------------------------------------------------------------------

    def passes_over(self, path: str) -> bool:
        self.must_go_on()
        done = super().passes_over(path)
        self.contents.reach_item(path)
        if not done and not self.contents.has_begun(path) and self.is_left():
            label = path.rstrip("/").rpartition("/")[2]
            self.note(New("item", f"item {label.partition(':')[2]}", f"item {label}", calling_line()))
        return False  # not even if it is done: whether this is the loop that did it shows in the calls of its body

    def pass_item(self, path: str) -> None:
        """Nothing is saved by this: it is a rehearsal."""

    def rename_loop(self, old: str, new: str) -> None:
        self.contents.move(old, new)
        super().rename_loop(old, new)

    def land(self, frame: Frame, writes: tuple[r.Write, ...]) -> None:
        self.contents.landed.update(map(id, writes))
        super().land(frame, writes)

    def land_item(self, item: Frame, writes: tuple[r.Write, ...]) -> None:
        """What is recorded of a done item counts, and not what its body has written now."""
        if item.path not in self.ledger.items or item.parent is None:
            super().land_item(item, writes)
            return
        for landed in self.ledger.landed.get(item.path, ()):
            self.land(item.parent, tuple(write for write in landed if id(write) not in self.contents.landed))

    # -- what would be written ----------------------------------------------------------------------------------------

    def commit(self, site: Site, *entries: r.Record, objects: Any = (), **_: Any) -> Protocol[int]:
        """Nothing is written; what the run writes of its own is seen by the code all the same."""
        yield from ()
        if site != Site.RUN_END:
            self.must_be_open()
        if site not in _OF_CODE:
            raise self.stop(f"it would commit {site}, which is not done here" if self.is_left() else "")
        for entry in entries:
            if isinstance(entry, r.StepDone):
                self.rehearsal.ran[self.id, entry.call] = entry, tuple(objects)
            elif isinstance(entry, r.Wrote) and (self.was_finished or self.is_left()):
                what = entry.write.key or entry.write.op.name.lower()
                self.note(New("write", what, f"a write of {what!r}", calling_line()))
        return self.head.seq

    def commit_with(self, site: Site, *_: Any, **__: Any) -> Protocol[tuple[r.Landing, ...]]:
        yield from self.commit(site)
        return ()

    def end(self, error: BaseException | None) -> None:
        if self.over:
            return
        self.over = True
        if isinstance(error, Stops):
            self.cut = Cut(str(error))
        elif isinstance(error, PerdureError):
            self.refuse(error)
        elif error is not None and self.summary is not None and describe(error) == self.summary.error:
            self.then = f"fails as before: {self.summary.error}"
        elif error is not None:
            self._raise(f"it raises {type(error).__name__}: {error}")
        else:
            self.then = "comes to the same end" if self.was_finished else "would finish"
            if self._result is not None:
                self.findings.append(self._result)

    def _raise(self, told: str) -> None:
        handed = self.rehearsal.handed
        if handed:  # some code in C raises TypeError for an object that it does not know
            self.cut = Cut(f"{told}, perhaps because what {handed[-1].text} returns is not known", RUN_STEPS)
            return
        self.cut = Cut(told)
        self.find("diverges" if self.was_finished else "differs", told)

    # -- what has become of it ----------------------------------------------------------------------------------------

    def told(self) -> Replay:
        """The report of this run."""
        assert self.summary is not None
        left, lost = self.contents.left(self.rehearsal.opened), self.lost()
        then = "" if any(finding.kind in FAILS for finding in lost) else self.then or self.cut.text
        findings = [*self.findings, *lost]
        if self.new:
            findings.append(Finding("new", f"it begins {listed(self.new)}, which is not recorded"))
        asked = sum(self.contents.asked_for(one) for one in self.contents.calls)
        new = tuple(map(str, self.new))
        return Replay(
            self.engine.name,
            self.id,
            self.summary.status,
            tuple(findings),
            asked,
            then,
            new,
            tuple(left),
        )

    def lost(self) -> list[Finding]:
        """What it means that some of what is recorded was not reached; nothing, in a run that cannot go on."""
        if self._refused or any(finding.kind == "stops" for finding in self.findings):
            return []
        left = self.contents.left(self.rehearsal.opened)
        return judged(left, self.rehearsal.new, self.cut, self.rehearsal.rules)


def _has_company() -> bool:
    """Whether there are other tasks in this event loop."""
    try:
        return len(asyncio.all_tasks()) > 1
    except RuntimeError:
        return False


def _rehearsed(run: RunCore) -> Iterator[RehearsedRun]:
    return (one for one in around(run) if isinstance(one, RehearsedRun))


def _looked_at(run: RehearsedRun, new: New) -> Stops:
    """The code uses a result that is not recorded: what it would do next is not known."""
    frame = current()
    here = frame.run if frame is not None and isinstance(frame.run, RehearsedRun) else run
    line = calling_line()
    if not here.over and not here.is_left():
        here.then = f"goes on with {new}"
        return here.stop()
    hint = RUN_STEPS if new.kind == "step" else ""
    return here.stop(f"it uses what {new.text} returns{f' at {line}' if line else ''}", hint)
