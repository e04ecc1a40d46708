"""Turns the journal entries of a run into rows over time. Values stay packed until a row is drawn."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import msgspec

from perdure import records as r

TimeSpan = tuple[int, int]

WORK, WAIT, DOUBT = "work", "wait", "doubt"
_LEFT = {"released": "waited", "expired": "taken over"}
"""How a process ended that wrote no last entry, by what became of its lease. A dead one was killed."""
_WRITES = dict.fromkeys((r.WriteOp.MESSAGE, r.WriteOp.PIN, r.WriteOp.COMPACT), "messages")
_WRITES |= {r.WriteOp.SET: "state", r.WriteOp.DELETE: "state", r.WriteOp.EVENT: "events"}


class TimelineRow(msgspec.Struct):
    """One call, loop, wait, child run, checkpoint or other entry of a run."""

    what: str
    name: str
    seq: int
    begun: int
    ended: int
    scope: str = ""
    status: str = "done"
    phase: str = WORK
    took_ms: int = 0
    usage: list[r.ModelUsage] = []
    tries: int = 1
    count: int = 0
    """The number of items of a loop, or of writes."""
    result: bytes = b""
    notes: list[str] = []

    def absorb(self, row: TimelineRow) -> None:
        """Add the time and the cost of another row."""
        self.begun, self.ended = min(self.begun, row.begun), max(self.ended, row.ended)
        self.took_ms, self.tries = self.took_ms + row.took_ms, max(self.tries, row.tries)
        self.usage += row.usage


class SectionOpening(msgspec.Struct):
    """One process that held the run."""

    seq: int
    begun: int
    process: str
    host: str
    resumed: bool
    ended: int
    """When it last wrote."""
    how: str = ""
    """How it ended; empty while it holds the run."""
    told: str = ""
    skipped: int = 0
    """Recorded steps that it skipped."""
    saved: list[r.ModelUsage] = []


class RunTimeline(msgspec.Struct):
    """A run as rows and processes, ordered by time."""

    rows: list[TimelineRow]
    openings: list[SectionOpening]
    usage: list[r.ModelUsage]
    counts: Counter[str]
    """Completed calls, including those inside loops."""

    @property
    def begun(self) -> int:
        return min((record.begun for record in self.openings), default=0)

    @property
    def ended(self) -> int:
        return max([record.ended for record in self.openings] + [row.ended for row in self.rows], default=0)

    @property
    def down_ms(self) -> int:
        return sum(max(0, after.begun - before.ended) for before, after in pairwise(self.openings))


class TimelineBuilder:
    """Builds the rows of a run from its entries. `tell` describes an entry that has no row of its own."""

    def __init__(self, tell: Callable[[r.JournalEntry], str]) -> None:
        self._tell = tell
        self._rows: list[TimelineRow] = []
        self._openings: list[SectionOpening] = []
        self._usage: list[r.ModelUsage] = []
        self._open: dict[r.CallIdentity | int, TimelineRow] = {}
        """Calls that have not ended, and waits by their entry."""
        self._intents: dict[int, r.CallIdentity] = {}
        self._written: dict[str, TimelineRow] = {}
        self._last = 0

    def add(self, event: r.JournalEntry) -> None:
        """Handle the next entry."""
        if not (self._process(event) or self._call(event) or self._wait(event)):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event.kind).lower()
            self._row("note", words, event).notes.append(self._tell(event))
        self._usage += getattr(event.record, "usage", ())
        for landed in getattr(event.record, "landed", ()):
            if isinstance(landed, r.CheckpointMade):
                self._row("checkpoint", landed.name, event).notes.append(f"version {landed.version}")
        self._last = max(self._last, event.at)
        if self._openings and not self._openings[-1].how:
            self._openings[-1].ended = self._last

    def picture(self, status: str, now: int, items: bool) -> RunTimeline:
        """Return the rows. `status` is empty while a process holds the run; `items` keeps a row for each call."""
        if status:
            self._close("killed" if status in ("crashed", "running") else status, self._last)
        for row in self._open.values():
            row.ended = self._last if status else max(now, self._last)
        counts = Counter(row.what for row in self._rows if row.what in ("step", "effect") and row.status == "done")
        return RunTimeline(_group_loops(self._rows, items), self._openings, self._usage, counts)

    def _row(self, what: str, name: str, event: r.JournalEntry, **more: Any) -> TimelineRow:
        self._rows.append(TimelineRow(what, name, event.seq, event.at, event.at, **more))
        return self._rows[-1]

    def _close(self, how: str, at: int, told: str = "") -> None:
        """End the current process. An effect that it had started is in doubt."""
        if self._openings and not self._openings[-1].how:
            self._openings[-1].how, self._openings[-1].told, self._openings[-1].ended = how, told, at
        for row in self._open.values():
            if row.what == "effect":
                row.status, row.phase = "in doubt", DOUBT

    def _process(self, event: r.JournalEntry) -> bool:
        match record := event.record:
            case r.RunStarted() | r.RunResumed():
                resumed, process = isinstance(record, r.RunResumed), f"process {record.holder.pid}"
                self._close(_LEFT.get(getattr(record, "before", ""), "killed"), self._last)
                self._openings.append(
                    SectionOpening(event.seq, event.at, process, record.holder.host, resumed, event.at)
                )
            case r.RunFinishedEntry() | r.TaskParked():
                self._close("finished" if isinstance(record, r.RunFinishedEntry) else "parked", event.at)
            case r.RunFailed():
                self._close("failed", event.at, record.text)
            case r.RunInterrupted():
                self._close("interrupted", event.at, record.reason)
            case r.Forked():
                self._close("forked", event.at, f"from {record.of}, after entry {record.cut}")
            case r.RunCancelledEntry() | r.RunPausedEntry() if record.order:
                how = "cancelled" if isinstance(record, r.RunCancelledEntry) else "paused"
                self._close(how, event.at, f"{record.reason or 'no reason given'}, by {record.by}")
            case r.Replayed() if self._openings:
                self._openings[-1].skipped += sum(saved.steps for saved in record.saved)
                self._openings[-1].saved += [saved.usage for saved in record.saved]
            case _:
                return isinstance(record, r.Spent | r.QuestionAsked | r.QuestionClosed)
        return True

    def _call(self, event: r.JournalEntry) -> bool:
        record = event.record
        if isinstance(record, r.EffectIntended):
            self._intents[event.seq] = record.call
        call = getattr(record, "call", None) or self._intents.get(getattr(record, "intent", 0))
        if call is None or isinstance(record, r.WaitBegan):
            return False
        row = self._open.get(call) or self._row("effect" if event.seq in self._intents else "step", call.name, event)
        self._open[call], row.scope, row.ended = row, call.scope, event.at
        match record:
            case r.StepDone() | r.EffectDone():
                row.status, row.took_ms, row.usage = "done", record.took_us // 1000, list(record.usage)
                row.begun, row.result = min(row.begun, event.at - row.took_ms), record.result
                row.count = len(record.writes) + len(record.landed)
                if isinstance(record, r.EffectDone) and record.how != "body":
                    row.notes.insert(
                        0, f"settled by {'its check' if record.how == 'check' else record.note or 'a person'}"
                    )
            case r.StepFailedEntry() | r.EffectFailed():
                row.status = "given up" if getattr(record, "final", False) else "failed"
                row.notes.append(record.text)
            case r.EffectDoubted():
                row.status, row.phase = "in doubt", DOUBT
                row.notes.append(record.text)
            case r.AttemptFailed():
                row.status, row.tries = "waiting", record.attempt + 1
            case _:
                row.status, row.tries = "running", row.tries + isinstance(record, r.EffectAgain)
        if row.status in ("done", "given up", "failed"):
            del self._open[call]
        return True

    def _wait(self, event: r.JournalEntry) -> bool:
        match record := event.record:
            case r.ItemDone():
                self._row("item", "", event, scope=record.scope, usage=list(record.usage))
            case r.WaitBegan():
                self._open[event.seq] = self._row(record.kind, record.text, event, status="waiting", phase=WAIT)
            case r.WaitEnded():
                if (row := self._open.pop(record.wait, None)) is not None:
                    row.ended, row.took_ms, row.result = event.at, event.at - row.begun, record.value
                    row.status = {"timeout": "timed out", "refused": "refused"}.get(record.how, "done")
                    row.notes += [f"by {record.by}"] if record.by else []
            case r.Wrote():
                if (name := _WRITES.get(record.write.op)) is not None:
                    row = self._written.get(name) or self._row(name, "", event)
                    self._written[name], row.count, row.ended = row, row.count + 1, event.at
            case _:
                return False
        return True


def _group_loops(rows: Iterable[TimelineRow], items: bool) -> list[TimelineRow]:
    """Order rows by time, and show a loop as one row."""
    found, loops, labels = list[TimelineRow](), dict[str, TimelineRow](), dict[str, set[str]]()
    for row in sorted(rows, key=lambda row: (row.begun, row.seq)):
        loop, inside, _ = row.scope.partition(":")
        if not inside or (row.what != "item" and (items or row.status != "done")):
            found += [row] if row.what != "item" else []
            continue
        if loop not in loops:
            name = "" if loop.startswith("~") or loop == "1" else f"#{loop}" if loop.isdigit() else loop
            found.append(loops.setdefault(loop, TimelineRow("each", name, row.seq, row.begun, row.ended)))
        loops[loop].absorb(row)
        if not loops[loop].name and loop.startswith("~"):  # `run.map`: its scope is a digest
            loops[loop].name = row.name
        elif row.name not in ("", loops[loop].name, *loops[loop].notes):
            loops[loop].notes.append(row.name)
        labels.setdefault(loop, set()).add(row.scope.partition("/")[0])
        loops[loop].count = len(labels[loop])
    return found


class TimeAxis:
    """Maps times to columns. A long idle stretch takes a few columns with a cut mark."""

    def __init__(self, busy: Iterable[TimeSpan], begun: int, ended: int, width: int) -> None:
        spans = [(max(begun, a), min(b, ended)) for a, b in merge_spans(busy) if b >= begun and a <= ended]
        worked = sum(b - a for a, b in spans)
        longest = max(worked / 8, 50) if worked else ended - begun
        self._times, self._weights, cuts = [begun], [0.0], list[int]()
        for a, b in [*spans, (ended, ended)]:
            idle = a - self._times[-1]
            cuts += [self._times[-1] + idle // 2] if idle > longest else []
            self._times += [a, b]
            self._weights += [(here := self._weights[-1] + min(idle, longest)), here + b - a]
        self._scale = (width - 1) / (self._weights[-1] or 1)
        self.cuts = [self.column(at) for at in cuts]

    def column(self, at: int) -> int:
        """Return the column of a time; earlier and later times are at the edges."""
        at = min(max(at, self._times[0]), self._times[-1])
        place = min(bisect_right(self._times, at), len(self._times) - 1)
        (a, b), (low, high) = self._times[place - 1 : place + 1], self._weights[place - 1 : place + 1]
        return int((low + (high - low) * ((at - a) / (b - a) if b > a else 0)) * self._scale)


def merge_spans(spans: Iterable[TimeSpan]) -> list[TimeSpan]:
    """Return the same times without overlaps."""
    found: list[TimeSpan] = []
    for begun, ended in sorted(spans):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((begun, ended))
    return found
