"""What happened in a run, as rows of a picture.

Made of the entries alone. Nothing is unpacked here: who draws a row asks for its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from .. import records as r
from ..journal.fold import told_by
from .spans import DOUBT, POINT, WAIT, WORK, Opening, Picture, Row, Spending, alike, together


def picture_of(
    events: Sequence[r.Event], status: str, now: int, unfold: bool, tell: Callable[[r.Event], str]
) -> Picture:
    """The rows of a run. `status`: how it stands, empty when a process has it. `unfold`: a row for each call in a loop.

    `tell` says in words what has no form of its own.
    """
    builder = _Builder(unfold, tell)
    for event in events:
        builder.take(event)
    return builder.end(status, now)


def loop_of(scope: str) -> str:
    """The outermost loop around a scope: all up to the label of the item; empty outside of loops."""
    return scope.partition(":")[0] if ":" in scope else ""


class _Builder:
    def __init__(self, unfold: bool, tell: Callable[[r.Event], str]) -> None:
        self._unfold, self._tell = unfold, tell
        self.rows: list[Row] = []
        self.openings: list[Opening] = []
        self.spent = Spending()
        self.folded = ""
        self._calls: dict[r.Call, Row] = {}
        """Calls that were begun and have not ended."""
        self._intents: dict[int, r.EffectIntended] = {}
        self._waits: dict[int, Row] = {}
        self._loops: dict[str, Row] = {}
        self._items: dict[str, set[str]] = {}
        self._writes: dict[str, Row] = {}
        self._gone: set[int] = set()
        """Rows that have become part of another."""
        self._counts: dict[str, int] = {}
        self._last = 0
        self._marked = ""
        """What the last entry was, if nobody has drawn its kind yet: it may say why the process went."""

    def take(self, event: r.Event) -> None:
        """One entry more."""
        handler = _HANDLERS.get(type(event.record))
        if handler is not None:
            handler(self, event, event.record)
            self._marked = ""
        else:
            self._mark(event)
            self._marked = _words(type(event.record).__name__)
        self._last = max(self._last, event.at)
        if self.openings:
            self.openings[-1].ended = max(self.openings[-1].ended, event.at)

    def end(self, status: str, now: int) -> Picture:
        """No more entries: what is open is at work, or was left by a process that is gone."""
        if self.openings and not self.openings[-1].how and status:
            self._killed("" if status in _UNTOLD else status)
        at = self._last if status else max(now, self._last)
        for row in self.rows:
            if row.phase:
                row.status = {WORK: "running", WAIT: "waiting", DOUBT: "in doubt"}[row.phase]
                row.leave(at)
        for label, items in self._items.items():
            self._loops[label].count = len(items)
        left = [row for row in self.rows if id(row) not in self._gone]
        rows = sorted(left, key=lambda row: (row.begun, row.seq))
        if not self._unfold:
            rows = [row for _, group in groupby(rows, alike) for row in together(list(group))]
        return Picture(rows, self.openings, self.spent, self._counts, self.folded)

    def _row(self, what: str, name: str, event: r.Event, **more: Any) -> Row:
        row = Row(what, name, event.seq, more.pop("begun", event.at), **more)
        self.rows.append(row)
        return row

    def _mark(self, event: r.Event) -> None:
        """Something that nobody has drawn yet: told in words, where it happened."""
        row = self._row("note", _words(type(event.record).__name__), event, parts=[(POINT, event.at, event.at)])
        row.notes.append(self._tell(event))

    # -- processes ----------------------------------------------------------------------------------------------------

    def started(self, event: r.Event, it: r.RunStarted) -> None:
        self._open(event, it.holder, resumed=False)

    def resumed(self, event: r.Event, it: r.RunResumed) -> None:
        if self.openings and not self.openings[-1].how:
            self._killed()
        self._open(event, it.holder, resumed=True)

    def _open(self, event: r.Event, holder: Any, resumed: bool) -> None:
        it = Opening(event.seq, event.at, f"process {holder.pid}", holder.host, resumed, ended=event.at)
        self.openings.append(it)

    def _killed(self, how: str = "") -> None:
        self.openings[-1].how = how or self._marked or "killed"
        self._stopped()

    def _stopped(self) -> None:
        """Nobody is at work any more: of a body that had begun, nobody knows whether it acted."""
        for row in self._calls.values():
            if row.phase == WORK:
                row.enter(DOUBT, self._last)

    def closed(self, event: r.Event, how: str, told: str = "") -> None:
        self._last = max(self._last, event.at)
        self._stopped()
        if self.openings:
            self.openings[-1].how, self.openings[-1].told = how, told

    def stopped(self, event: r.Event, it: r.RunCancelled | r.RunPaused, how: str) -> None:
        if it.order:
            self.closed(event, how, told_by(it))
        else:
            self._mark(event)  # no process had it open, and how the last one ended stays as it is

    def ordered(self, event: r.Event, it: r.RunCancelled | r.RunPaused) -> None:
        """Somebody has ended the run, or lets it rest: through its process, or when there was none."""
        if it.order and self.openings and not self.openings[-1].how:
            how = "cancelled" if isinstance(it, r.RunCancelled) else "paused"
            self.closed(event, how, f"{it.reason or 'no reason given'}, says {it.by}")
            return
        if self.openings and not self.openings[-1].how:
            self._killed()
        self._mark(event)

    def replayed(self, event: r.Event, it: r.Replayed) -> None:
        if self.openings:
            last = self.openings[-1]
            last.skipped += sum(one.steps for one in it.saved)
            last.saved = last.saved.plus(one.usage for one in it.saved)

    # -- steps and effects --------------------------------------------------------------------------------------------

    def step_done(self, event: r.Event, it: r.StepDone) -> None:
        row = self._call("step", it.call, event)
        row.enter(WORK, event.at - it.took_us // 1000)
        row.result = it.result
        self._done(row, it.call, event, it)

    def step_failed(self, event: r.Event, it: r.StepFailed) -> None:
        row = self._call("step", it.call, event)
        row.leave(event.at)
        row.parts.append((POINT, event.at, event.at))
        row.status, row.notes = "failed", [*row.notes, it.text]
        self._calls.pop(it.call, None)

    def attempt_failed(self, event: r.Event, it: r.AttemptFailed) -> None:
        row = self._call("step", it.call, event)
        row.parts.append((POINT, event.at, event.at))
        row.enter(WAIT, event.at)
        row.tries = it.attempt + 1

    def intended(self, event: r.Event, it: r.EffectIntended) -> None:
        self._intents[event.seq] = it
        self._call("effect", it.call, event).enter(WORK, event.at)

    def again(self, event: r.Event, it: r.EffectAgain) -> None:
        if row := self._effect(event, it.intent):
            row.enter(WORK, event.at)
            row.tries += 1

    def effect_done(self, event: r.Event, it: r.EffectDone) -> None:
        if row := self._effect(event, it.intent):
            row.result = it.result
            if it.how != "body":
                row.notes.append("settled by its check" if it.how == "check" else f"settled by {it.note or 'a person'}")
            self._done(row, self._intents[it.intent].call, event, it)

    def effect_failed(self, event: r.Event, it: r.EffectFailed) -> None:
        if row := self._effect(event, it.intent):
            row.leave(event.at)
            row.status = "given up" if it.final else "failed"
            row.notes.append(it.text)
            self._calls.pop(self._intents[it.intent].call, None)

    def doubted(self, event: r.Event, it: r.EffectDoubted) -> None:
        if row := self._effect(event, it.intent):
            row.enter(DOUBT, event.at)
            row.notes.append(it.text)

    def _effect(self, event: r.Event, intent: int) -> Row | None:
        it = self._intents.get(intent)
        return None if it is None else self._call("effect", it.call, event)

    def _call(self, what: str, call: r.Call, event: r.Event) -> Row:
        """The row of a call that has not ended."""
        row = self._calls.get(call)
        if row is None:
            row = self._calls[call] = Row(what, call.name, event.seq, event.at)
            if call.scope:
                row.notes.append(f"in {call.scope.rstrip('/')}")
            self.rows.append(row)
        return row

    def _done(self, row: Row, call: r.Call, event: r.Event, it: r.StepDone | r.EffectDone) -> None:
        row.leave(event.at)
        row.status = "done"
        self._counts[row.what] = self._counts.get(row.what, 0) + 1
        row.begun = min([row.begun, *(begin for _, begin, _ in row.parts)])
        row.spent = row.spent.plus(it.usage)
        self.spent = self.spent.plus(it.usage)
        if written := len(it.writes) + len(it.landed):
            row.count = written
        self._calls.pop(call, None)
        self._landed(event, it.landed)
        if loop_of(call.scope) and not self._unfold:
            self._fold(row, call)

    # -- loops --------------------------------------------------------------------------------------------------------

    def _fold(self, row: Row, call: r.Call) -> None:
        """What is done in an item is a part of the row of its loop."""
        self._gone.add(id(row))
        loop = self._loop(call.scope, row.seq, row.begun)
        loop.parts += row.parts
        loop.spent += row.spent
        loop.begun = min(loop.begun, row.begun)
        loop.tries = max(loop.tries, row.tries)
        if not loop.name and loop_of(call.scope).startswith("~"):
            loop.name = row.name  # a loop whose own name is only known by its digest, such as that of `run.map`
        elif row.name not in (loop.name, *loop.notes):
            loop.notes.append(row.name)
        self._items[loop_of(call.scope)].add(_item_of(call.scope))

    def _loop(self, scope: str, seq: int, at: int) -> Row:
        label = loop_of(scope)
        if label not in self._loops:
            name = "" if label.startswith("~") or label == "1" else f"#{label}" if label.isdigit() else label
            row = self._loops[label] = Row("each", name, seq, at)
            self.rows.append(row)
            self._items[label] = set()
        return self._loops[label]

    def item_done(self, event: r.Event, it: r.ItemDone) -> None:
        self.spent = self.spent.plus(it.usage)
        self._landed(event, it.landed)
        if not loop_of(it.scope):
            return
        loop = self._loop(it.scope, event.seq, event.at)
        loop.parts.append((POINT, event.at, event.at))
        loop.spent = loop.spent.plus(it.usage)
        self._items[loop_of(it.scope)].add(_item_of(it.scope))

    # -- waits and writes ---------------------------------------------------------------------------------------------

    def wait_began(self, event: r.Event, it: r.WaitBegan) -> None:
        row = self._waits[event.seq] = self._row(it.kind, "" if it.kind == "sleep" else it.text, event)
        row.enter(WAIT, event.at)
        if it.kind == "sleep":
            row.notes.append(it.text)

    def wait_ended(self, event: r.Event, it: r.WaitEnded) -> None:
        row = self._waits.pop(it.wait, None)
        if row is None:
            return
        row.leave(event.at)
        row.status = {"timeout": "timed out", "refused": "refused"}.get(it.how, "done")
        row.result = it.value
        if it.by:
            row.notes.append(f"by {it.by}")

    def asked(self, event: r.Event, it: r.QuestionAsked) -> None:
        pass  # about an effect, whose row tells that it is in doubt

    def answered(self, event: r.Event, it: r.QuestionClosed) -> None:
        pass  # the effect says by whom, and what came of it

    def wrote(self, event: r.Event, it: r.Wrote) -> None:
        self.spent = self.spent.plus(it.usage)
        self._landed(event, it.landed)
        name = _WRITES.get(it.write.op)
        if name is not None:
            row = self._writes.get(name)
            if row is None:
                row = self._writes[name] = self._row(name, "", event)
            row.count += 1
            row.parts.append((POINT, event.at, event.at))

    def _landed(self, event: r.Event, landed: Iterable[r.Landing]) -> None:
        for it in landed:
            if isinstance(it, r.CheckpointMade):
                row = self._row("checkpoint", it.name, event, parts=[(POINT, event.at, event.at)])
                row.notes.append(f"version {it.version}")

    def was_spent(self, event: r.Event, it: r.Spent) -> None:
        self.spent = self.spent.plus(it.usage)

    def was_folded(self, event: r.Event, it: r.Folded) -> None:
        self.folded = it.archive


def _words(name: str) -> str:
    """The name of a class as words: RunPaused is `run paused`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _item_of(scope: str) -> str:
    return scope.partition("/")[0]


_UNTOLD = (r.Status.CRASHED, r.Status.RUNNING, r.Status.WAITING)
"""Of a process that had the run and has said nothing: it was killed."""
_WRITES = {
    r.Op.SET: "state",
    r.Op.DELETE: "state",
    r.Op.MESSAGE: "messages",
    r.Op.PIN: "messages",
    r.Op.COMPACT: "messages",
    r.Op.EVENT: "events",
}
_HANDLERS: dict[type[r.Record], Callable[[_Builder, r.Event, Any], None]] = {
    r.RunStarted: _Builder.started,
    r.RunResumed: _Builder.resumed,
    r.RunFinished: lambda builder, event, it: builder.closed(event, "finished"),
    r.RunFailed: lambda builder, event, it: builder.closed(event, "failed", it.text),
    r.RunInterrupted: lambda builder, event, it: builder.closed(event, "interrupted", it.reason),
    r.RunCancelled: lambda builder, event, it: builder.stopped(event, it, "cancelled"),
    r.RunPaused: lambda builder, event, it: builder.stopped(event, it, "paused"),
    r.TaskParked: lambda builder, event, it: builder.closed(event, "parked", "it waits, and its worker has left it"),
    r.RunCancelled: _Builder.ordered,
    r.RunPaused: _Builder.ordered,
    r.Forked: lambda builder, event, it: builder.closed(event, "forked", f"from {it.of}, after entry {it.cut}"),
    r.Replayed: _Builder.replayed,
    r.StepDone: _Builder.step_done,
    r.StepFailed: _Builder.step_failed,
    r.AttemptFailed: _Builder.attempt_failed,
    r.EffectIntended: _Builder.intended,
    r.EffectAgain: _Builder.again,
    r.EffectDone: _Builder.effect_done,
    r.EffectFailed: _Builder.effect_failed,
    r.EffectDoubted: _Builder.doubted,
    r.ItemDone: _Builder.item_done,
    r.WaitBegan: _Builder.wait_began,
    r.WaitEnded: _Builder.wait_ended,
    r.QuestionAsked: _Builder.asked,
    r.QuestionClosed: _Builder.answered,
    r.Wrote: _Builder.wrote,
    r.Spent: _Builder.was_spent,
    r.Folded: _Builder.was_folded,
}
