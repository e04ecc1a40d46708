"""Replays one recorded run with the current code.

A recorded call returns its recorded result. An unrecorded one gets a placeholder, and the code continues. Whatever the
code has not reached in the end is what a resume would not find. A resume may start anywhere, so the bodies of done
items are replayed too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from perdure import records as r
from perdure.errors import PerdureError
from perdure.journal import objects
from perdure.journal.append import StreamHead
from perdure.kernel.program_line import find_calling_line, format_call, format_value
from perdure.kernel.protocol import Pause, Protocol
from perdure.kernel.scope import Frame, current_frame
from perdure.platform.failpoints import Site
from perdure.run.core import PROCEED, RunCore
from perdure.run.cost import RunAccount
from perdure.run.function import CallOptions, DurableFunction
from perdure.run.ledger import Ledger, RecordedCall
from perdure.run.listing import RunSummary
from perdure.run.order_handling import iterate_enclosing_runs
from perdure.run.rehearse.placeholders import OPAQUE, RECORDED, ReplayStop, UnrecordedResult
from perdure.run.rehearse.recorded import RecordedContents, parts_of
from perdure.run.rehearse.verdict import (
    FAILS,
    RUN_STEPS,
    NewOperation,
    ReplayEnd,
    ReplayFinding,
    ReplayResult,
    judge_unreached,
    list_operations,
)
from perdure.run.step import describe

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.run.rehearse.rehearsal import Rehearsal

NEW_MAX = 10_000
"""Limit for a loop that never ends because it waits for a result that is a placeholder."""

_REACHED = ("doubt", "retry", "waiting")
"""Kinds that are recorded but have not ended."""
_OF_STEPS = (Site.STEP_DONE, Site.STEP_FAILED, Site.ATTEMPT_FAILED, Site.CREDIT)
_OF_CODE = (Site.WRITE, Site.ITEM_DONE, Site.RUN_END, *_OF_STEPS)
"""Commits of code outside of effects. The code continues as if they were durable."""


SETTLED_ROUNDS, PAUSED_ROUNDS, PAUSE_SECONDS = 40, 20, 0.001
"""How often other tasks get a turn, and finally a short pause, before they count as waiting for something else."""


class RehearsedRun(RunCore):
    """A run that is only replayed."""

    rehearsed = True

    def __init__(
        self,
        rehearsal: Rehearsal,
        engine: Engine,
        run_id: str,
        found: tuple[Ledger, StreamHead],
        summary: RunSummary | None,
    ) -> None:
        ledger, head = found
        super().__init__(engine, run_id, ledger, head, resumed=True)
        self.account = RunAccount(ledger, self.head.stream, credits=False)
        self.rehearsal = rehearsal
        self.summary = summary
        """None for an unrecorded run that the code would start inside another."""
        self.was_finished, self.finished = self.finished, False
        self.contents = RecordedContents(
            ledger, lambda: parts_of(self.store, head.stream) if summary is not None else []
        )
        self.findings: list[ReplayFinding] = []
        self.new: list[NewOperation] = []
        self.then = ""
        self.over = False
        """Whether its replay has ended."""
        self.cut = ReplayEnd()
        """Why the replay ended before the code did, if it did."""
        self._refused = False
        self._result: ReplayFinding | None = None

    def find(self, kind: str, text: str, line: str = "", hint: str = "") -> None:
        """Add a finding, once."""
        finding = ReplayFinding(kind, text, line, hint)
        if finding not in self.findings:
            self.findings.append(finding)

    def refuse(self, error: PerdureError) -> None:
        """Record that the run cannot continue, so that nothing would be done twice."""
        self._refused = True
        self.find("diverges", error.message, hint=error.hint)

    def stop(self, cut: str = "", hint: str = "") -> ReplayStop:
        """End the replay of this run and the enclosing ones, whatever the program does afterwards."""
        for run in iterate_enclosing_runs(self):
            if isinstance(run, RehearsedRun) and not run.over:
                run.over, run.cut = True, ReplayEnd(cut, hint)
        return ReplayStop(cut)

    # -- what the run would do ----------------------------------------------------------------------------------------

    def begin(
        self,
        kind: str,
        what: str,
        arguments: Mapping[str, Any] | None = None,
        why: str = "",
        call: r.CallIdentity | None = None,
    ) -> Any:
        text, line = format_call(what, arguments) if arguments is not None else what, find_calling_line()
        new = (
            NewOperation(kind, what, text, line)
            if call is None
            else NewOperation(kind, what, text, line, call.ident, call.scope)
        )
        self.check_open()
        if not self.is_left():
            if self.was_finished:
                self.note(new)
            self.then = f"continues with {text}" + (f" ({why})" if why else "") + (f" at {line}" if line else "")
            raise self.stop()
        if len(self.rehearsal.new) + len(self.rehearsal.handed) >= NEW_MAX:
            raise self.stop(f"it keeps starting unrecorded calls, {NEW_MAX:,} times so far", RUN_STEPS)
        if kind not in _REACHED:
            self.note(new)
        if kind == "step" and self.rehearsal.rules.run_steps and call is not None:
            return self._find_earlier_result(call)
        return None if kind in ("run", "checkpoint") else self._stand_in(new)

    def settle(self) -> Protocol[None]:
        """Let other tasks of the event loop reach their recorded calls first, as long as they make progress."""
        rounds = 0
        while _has_other_tasks() and rounds < SETTLED_ROUNDS and not self.over and self.is_left():
            before = self.rehearsal.progress
            yield Pause(0.0 if rounds < SETTLED_ROUNDS - PAUSED_ROUNDS else PAUSE_SECONDS)
            gets_on = self.rehearsal.opening or self.rehearsal.progress != before
            rounds = 0 if gets_on else rounds + 1

    def note(self, new: NewOperation) -> None:
        """Record an unrecorded operation that would start."""
        self.new.append(new)
        self.rehearsal.new.append(new)

    def is_left(self) -> bool:
        """Whether any recorded operation of an open run has not been reached."""
        runs = [*_iterate_rehearsed(self), *(run for run in self.rehearsal.runs if not run.over)]
        return any(run.contents.is_left(self.rehearsal.opened) for run in runs)

    def _find_earlier_result(self, call: r.CallIdentity) -> Any:
        """Return the result of a step that already ran in this rehearsal: it runs only once."""
        if (self.id, call) not in self.rehearsal.ran:
            return PROCEED
        done, made = self.rehearsal.ran[self.id, call]
        self.land(current_frame() or self.root, done.writes)
        return objects.decode_packed(done.result, made)

    def _stand_in(self, new: NewOperation) -> Any:
        mode = self.rehearsal.mode
        if mode is RECORDED and (twin := self._find_same_call(new)) is not None:
            return self.unpack(twin.result)
        self.rehearsal.handed.append(new)
        if mode is OPAQUE or mode is RECORDED:
            return UnrecordedResult(lambda: _make_stop(self, new))
        return mode

    def _find_same_call(self, new: NewOperation) -> RecordedCall | None:
        """Find an unreached call with the same identity in another scope or under another name."""
        for run in _iterate_rehearsed(self):
            for one in run.contents.calls:
                same = one.done and one.ident == new.ident and (one.name == new.name or one.path == new.scope)
                if same and id(one) not in self.rehearsal.twins and not run.contents.is_reached(one):
                    self.rehearsal.twins[id(one)] = one
                    return one
        return None

    def match(
        self, frame: Frame, function: DurableFunction, options: CallOptions, arguments: dict[str, Any], ident: bytes
    ) -> tuple[RecordedCall | None, int]:
        """Match a call. After the end of the replay, calls of the code prove nothing."""
        self.check_replaying()
        self.rehearsal.progress += 1
        return super().match(frame, function, options, arguments, ident)

    def check_replaying(self) -> None:
        """Raise if the replay has ended."""
        if self.over:
            raise ReplayStop(self.cut.text)

    def check_open(self) -> None:
        self.check_replaying()
        if self.ledger.compaction is not None:
            self.find("stops", f"it was compacted: its steps are in the archive {self.ledger.compaction.archive}")
            raise self.stop(f"run {self.id!r} was compacted")

    def compare(
        self, what: str, recorded: bytes, value: Any, *, telemetry: bool = False, line: str = ""
    ) -> Protocol[bool]:
        yield from ()
        packed, _ = self.pack(value, what)
        finding = None
        if packed != recorded:
            text = f"{what} is {format_value(value)}, but was recorded as {format_value(self.unpack(recorded))}"
            # New operations may explain the difference.
            finding = ReplayFinding("differs" if self.rehearsal.new else "diverges", text, line or find_calling_line())
        if what == "result":
            self._result = finding  # the last one counts
        elif finding is not None:
            self.find(finding.kind, finding.text, finding.line)
        return True

    # -- items --------------------------------------------------------------------------------------------------------

    def is_item_done(self, path: str) -> bool:
        self.check_replaying()
        done = super().is_item_done(path)
        self.contents.reach_item(path)
        if not done and not self.contents.has_begun(path) and self.is_left():
            label = path.rstrip("/").rpartition("/")[2]
            self.note(NewOperation("item", f"item {label.partition(':')[2]}", f"item {label}", find_calling_line()))
        return False  # even if it is done: the calls of its body show whether this loop executed it

    def skip_item(self, path: str) -> None:
        """Do nothing: a rehearsal saves nothing."""

    def rename_loop(self, old: str, new: str) -> None:
        self.contents.move(old, new)
        super().rename_loop(old, new)

    def land(self, frame: Frame, writes: tuple[r.RunWrite, ...]) -> None:
        self.contents.landed.update(map(id, writes))
        super().land(frame, writes)

    def land_item(self, item: Frame, writes: tuple[r.RunWrite, ...]) -> None:
        """Apply the recorded writes of a done item, not those that its body made now."""
        if item.path not in self.ledger.items or item.parent is None:
            super().land_item(item, writes)
            return
        for landed in self.ledger.landed.get(item.path, ()):
            self.land(item.parent, tuple(write for write in landed if id(write) not in self.contents.landed))

    # -- writes
    # -----------------------------------------------------------------------------------------------------------

    def commit(self, site: Site, *entries: r.Record, objects: Any = (), **_: Any) -> Protocol[int]:
        """Write nothing. The code sees the run's own writes as if they were durable."""
        yield from ()
        if site != Site.RUN_END:
            self.check_open()
        if site not in _OF_CODE:
            raise self.stop(f"it would commit {site}, which a rehearsal does not do" if self.is_left() else "")
        for entry in entries:
            if isinstance(entry, r.StepDone):
                self.rehearsal.ran[self.id, entry.call] = entry, tuple(objects)
            elif isinstance(entry, r.Wrote) and (self.was_finished or self.is_left()):
                what = entry.write.key or entry.write.op.name.lower()
                self.note(NewOperation("write", what, f"a write of {what!r}", find_calling_line()))
        return self.head.seq

    def commit_with(self, site: Site, *_: Any, **__: Any) -> Protocol[tuple[r.AgentChange, ...]]:
        yield from self.commit(site)
        return ()

    def end(self, error: BaseException | None) -> None:
        if self.over:
            return
        self.over = True
        if isinstance(error, ReplayStop):
            self.cut = ReplayEnd(str(error))
        elif isinstance(error, PerdureError):
            self.refuse(error)
        elif error is not None and self.summary is not None and describe(error) == self.summary.error:
            self.then = f"fails as before: {self.summary.error}"
        elif error is not None:
            self._raise(f"it raises {type(error).__name__}: {error}")
        else:
            self.then = "ends the same way" if self.was_finished else "would finish"
            if self._result is not None:
                self.findings.append(self._result)

    def _raise(self, problem: str) -> None:
        handed = self.rehearsal.handed
        if handed:  # some C code raises TypeError for an object of unknown type
            self.cut = ReplayEnd(f"{problem}, perhaps because the result of {handed[-1].text} is unknown", RUN_STEPS)
            return
        self.cut = ReplayEnd(problem)
        self.find("diverges" if self.was_finished else "differs", problem)

    # -- results
    # ----------------------------------------------------------------------------------------------------------

    def report(self) -> ReplayResult:
        """Return the report of this run."""
        assert self.summary is not None
        left, lost = self.contents.list_unreached(self.rehearsal.opened), self.find_lost()
        then = "" if any(finding.kind in FAILS for finding in lost) else self.then or self.cut.text
        findings = [*self.findings, *lost]
        if self.new:
            findings.append(ReplayFinding("new", f"it starts {list_operations(self.new)}, which is not recorded"))
        asked = sum(self.contents.is_reached(one) for one in self.contents.calls)
        new = tuple(map(str, self.new))
        return ReplayResult(
            self.engine.name,
            self.id,
            self.summary.status,
            tuple(findings),
            asked,
            then,
            new,
            tuple(left),
        )

    def find_lost(self) -> list[ReplayFinding]:
        """Return what the unreached operations mean; nothing for a run that cannot continue."""
        if self._refused or any(finding.kind == "stops" for finding in self.findings):
            return []
        left = self.contents.list_unreached(self.rehearsal.opened)
        return judge_unreached(left, self.rehearsal.new, self.cut, self.rehearsal.rules)


def _has_other_tasks() -> bool:
    """Whether this event loop has other tasks."""
    try:
        return len(asyncio.all_tasks()) > 1
    except RuntimeError:
        return False


def _iterate_rehearsed(run: RunCore) -> Iterator[RehearsedRun]:
    return (one for one in iterate_enclosing_runs(run) if isinstance(one, RehearsedRun))


def _make_stop(run: RehearsedRun, new: NewOperation) -> ReplayStop:
    """End the replay because the code uses an unrecorded result: its next action is unknown."""
    frame = current_frame()
    here = frame.run if frame is not None and isinstance(frame.run, RehearsedRun) else run
    line = find_calling_line()
    if not here.over and not here.is_left():
        here.then = f"continues with {new}"
        return here.stop()
    hint = RUN_STEPS if new.kind == "step" else ""
    return here.stop(f"it uses the result of {new.text}{f' at {line}' if line else ''}", hint)
