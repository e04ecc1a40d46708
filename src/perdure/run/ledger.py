"""The recorded calls, writes and items of a run, indexed so that the code can be matched against them.

Built when a run is opened, then consumed as the code executes again. No I/O, no decoding of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.kernel.scope import scopes_around
from perdure.platform.process import CLIENT, Holder
from perdure.run.lost_effects import KEY, LostRunEntries, lose
from perdure.run.recorded_waits import RecordedWait
from perdure.run.unstorable import release

if TYPE_CHECKING:
    from perdure.run.data_view import RunDataView


class RecordedCall(msgspec.Struct, eq=False, gc=False):
    """A recorded call of a step or an effect, and its progress."""

    path: str
    name: str
    ident: bytes
    effect: bool
    seq: int = 0
    """The entry of an effect's intent, or of a step's end."""
    since: int = 0
    done: bool = False
    failed: int = 0
    """The entry that records its final failure; 0 if there is none."""
    final: bool = False
    attempts: int = 0
    next_at: int = 0
    result: bytes = b""
    error: bytes = b""
    writes: tuple[r.RunWrite, ...] = ()
    consumed: bool = False
    key: str = ""
    arguments: bytes = b""
    fence: int = 0
    timeout_ms: int = 0
    boot_ms: int = 0
    begun: int = 0
    """The last entry that allowed the body to start. Questions and answers refer to it."""
    running: bool = False
    """Whether the body runs in this process."""
    happened: bool = False
    """Whether it succeeded, but its result could not be stored."""
    doubted: bool = False
    """Whether its body has ended with an unknown outcome."""
    holder: Holder | None = None
    """The process that ran its body, if the entry that names it was lost."""
    keyless: bool = False
    """Whether it may have started under a lost key: then neither its check nor its policy can settle it."""
    took_us: int = 0
    usage: tuple[r.ModelUsage, ...] = ()
    credited: bool = False
    """Whether this opening of the run has passed it or made it."""
    unstorable: int | None = None  # the version of a step whose result could not be stored
    origin: r.CallIdentity | None = None
    """Its identity in the journal, if the code has since renamed it. Later entries keep that identity."""

    @property
    def blank(self) -> bool:
        """Whether this is only a placeholder: nothing is recorded about the call."""
        return not (self.done or self.failed or self.attempts or self.key)

    @property
    def in_doubt(self) -> bool:
        """Whether the effect has started and its outcome is not recorded."""
        return self.fence > 0 and not self.done and not self.failed and not self.running

    def take_writes(self) -> tuple[r.RunWrite, ...]:
        """Return its writes once: a second call with the same id must not apply them again."""
        writes, self.writes = self.writes, ()
        return writes


class UndoPoint(msgspec.Struct, frozen=True):
    """A point at which the code undoes steps."""

    undone: r.Undone
    view: RunDataView
    """The run's data from then on."""
    ledger: Ledger
    before: tuple[r.JournalEntry, ...]
    """The entries that applied until then."""


class Ledger:
    """The recorded part of a run."""

    def __init__(self, events: Iterable[r.JournalEntry]) -> None:
        self.started: r.RunStarted | None = None
        self.calls: dict[tuple[str, str, bytes], list[RecordedCall]] = {}
        self._names: dict[str, str] = {}  # each once: every entry is decoded with a name of its own
        self.effects: dict[tuple[str, str], list[RecordedCall]] = {}
        """By scope and name, in the order of their intents: effects that are not done or not yet matched."""
        self.by_intent: dict[int, RecordedCall] = {}
        self.holders: dict[int, Holder] = {}
        """By fencing token: the process that holds or held it."""
        self.losses: LostRunEntries | None = None
        """What is known about entries that the store has lost."""
        self.taken_at: dict[int, int] = {}
        """By fencing token: when its holder took the run over, by the boot clock of that host."""
        self.items: set[str] = set()
        self.landed: dict[str, list[tuple[r.RunWrite, ...]]] = {}
        """All writes that landed inside an item, by scope. A skipped item applies them."""
        self.item_usage: dict[str, list[tuple[r.ModelUsage, ...]]] = {}
        """Usage of the bodies of done items, by the scope of the item and of each item around it."""
        self.operations: dict[tuple[str, int, str], list[r.RunWrite]] = {}
        """Writes outside of bodies, by scope, operation and key, in order."""
        self.questions: dict[int, int] = {}
        """The open question about each intent."""
        self.waits: dict[tuple[str, str, bytes], list[RecordedWait]] = {}
        """Waits by scope, kind and awaited thing, in order."""
        self.taken: dict[str, set[int]] = {}
        """By name: the numbers of the events that the run has received."""
        self._open_waits: dict[int, tuple[RecordedWait, r.CallIdentity]] = {}
        self.finished: r.RunFinishedEntry | None = None
        self.cleanup: r.CleanupBegan | None = None
        """Set once the run was cancelled and cleans up."""
        self.compaction: r.StreamCompacted | None = None
        """Set if most of its entries were moved to an archive."""
        self.opened_at: list[int] = []
        """The entries that opened the run since it was last closed in order."""
        self.trials: list[int] = []  # entries at which a worker started it with no other suspect run next to it
        self.progress = 0
        """The last entry that shows progress, apart from done steps and effects."""
        self.causes: set[int] = set()
        """The recorded failures that ended an attempt, or at which one was killed."""
        self._failures: list[int] = []
        """The failures of the latest attempt."""
        self.within: dict[str, list[RecordedCall]] | None = None
        """Done calls by each enclosing scope, built on demand."""
        self.by_arguments: dict[tuple[str, bytes], list[RecordedCall]] | None = None
        self.loops: set[str] | None = None
        self.names: set[tuple[str, str]] | None = None
        """Index of `renames`, built on demand."""
        self.latest_start = 0
        """The largest `since`: something was started after that entry."""
        self.forked: r.Forked | None = None
        """In a fork: its own first entry. Earlier entries belong to its origin."""
        self.undos = 0
        """How often the run undid steps. If it did, `undo.py` splits the history into chapters."""
        self.after: UndoPoint | None = None
        """The next point at which the code undoes steps."""
        self.openings = 0
        """How often the run was opened; in a fork, since the fork."""
        self.add_entries(events)

    def add_entries(self, events: Iterable[r.JournalEntry]) -> None:
        """Add entries of the journal."""
        for event in events:
            record = event.record
            handler = _HANDLERS.get(type(record))
            if handler is not None:
                handler(self, event, record)

    def find(self, path: str, name: str, ident: bytes, nth: int) -> RecordedCall | None:
        """Return the nth recorded call with that name and those arguments in a scope."""
        calls = self.calls.get((path, name, ident))
        return calls[nth] if calls is not None and nth < len(calls) else None

    def find_unreached_waits(self, scope: str | None = None, kind: str | None = None) -> list[RecordedWait]:
        """Return the open waits that the code has not reached; all of them, or those of one kind in a scope."""
        return [
            waited
            for waited, call in self._open_waits.values()
            if not waited.asked and not waited.how and (kind is None or (waited.kind, call.scope) == (kind, scope))
        ]

    def has_continued_after(self, failure: RecordedCall) -> bool:
        """Whether the code caught this failure and continued."""
        if failure.final or self.finished is not None:
            return True
        return failure.failed not in self.causes and self.latest_start >= failure.failed

    def find_unconsumed_effect(self, path: str, name: str) -> RecordedCall | None:
        """Return a recorded effect of that name that the code has not reached."""
        return next((one for one in self.effects.get((path, name), ()) if not one.consumed), None)

    def find_first_takeover(self, fence: int, boot: str) -> float:
        """Return when this host, in this boot, first took the run over from the holder of a fencing token."""
        taken = [(at, self.holders[later].boot) for later, at in self.taken_at.items() if later > fence]
        return min((at for at, of in taken if of.removeprefix(CLIENT) == boot), default=math.inf)

    def is_shared(self, recorded: RecordedCall) -> bool:
        """Whether the origin of this fork started an effect, and may still be executing it."""
        return self.forked is not None and 0 < recorded.fence <= self.forked.fence

    def doubtful_effects(self, path: str, name: str) -> list[RecordedCall]:
        """Return the recorded effects of that name whose outcome this run does not know."""
        return [one for one in self.effects.get((path, name), ()) if one.in_doubt]

    def find_write(self, path: str, op: r.WriteOp, key: str, nth: int) -> r.RunWrite | None:
        """Return the nth recorded write of that kind outside of bodies."""
        writes = self.operations.get((path, *operation_key(op, key)))
        return writes[nth] if writes is not None and nth < len(writes) else None

    def track(self, recorded: RecordedCall, nth: int) -> None:
        """Add a call that is being made, so that later calls can be matched with it."""
        recorded.consumed = recorded.credited = True
        calls = self.calls.setdefault((recorded.path, recorded.name, recorded.ident), [])
        calls[nth : nth + 1] = [recorded]
        if recorded.effect:
            self.effects.setdefault((recorded.path, recorded.name), []).append(recorded)

    def track_step(self, path: str, name: str, ident: bytes, result: bytes) -> None:
        """Add a step with an explicit id, so that the next call with that id returns its result."""
        recorded = RecordedCall(path, name, ident, effect=False)
        recorded.done, recorded.result = True, result
        self.track(recorded, 0)

    def untrack(self, recorded: RecordedCall) -> None:
        """Remove a call whose intent could not be written: it has not started."""
        recorded.fence = 0
        self.effects[recorded.path, recorded.name].remove(recorded)
        self.calls[recorded.path, recorded.name, recorded.ident].remove(recorded)

    def list_done_within(self, item: str) -> list[RecordedCall]:
        """Return every done call in an item and the items inside it."""
        if self.within is None:
            self.within = {}
            for (path, _, _), calls in self.calls.items():
                for outer in scopes_around(path):
                    self.within.setdefault(outer, []).extend(one for one in calls if one.done)
        return self.within.get(item, [])

    def close(self, recorded: RecordedCall) -> None:
        """Drop a done effect that the code has reached, so that searches for new effects stay short."""
        effects = self.effects.get((recorded.path, recorded.name), [])
        if recorded in effects:
            effects.remove(recorded)

    def list_in_doubt(self) -> list[RecordedCall]:
        """Return every effect whose outcome is unknown."""
        return [recorded for recorded in self.by_intent.values() if recorded.in_doubt]

    def deaths(self) -> int:
        """Return how many previous openings in a row died without progress."""
        if len(self.opened_at) < 2:
            return 0
        done = [call.seq for calls in self.calls.values() for call in calls if call.done or call.failed]
        latest = max([self.progress, *done])
        return max(0, sum(seq > latest for seq in self.opened_at) - 1)

    def deaths_alone(self) -> int:
        """Return how many of those deaths no other suspect run can have caused."""
        return sum(seq >= self.opened_at[-self.deaths() - 1] for seq in self.trials) if self.deaths() else 0

    def describe_last_done(self) -> str:
        """Describe the last thing that the run did."""
        done = [call for calls in self.calls.values() for call in calls if call.done]
        if not done:
            return "before its first step was done"
        last = max(done, key=lambda call: call.seq)
        return f"after {'effect' if last.effect else 'step'} {last.name} (entry {last.seq})"

    # -- reading the journal ------------------------------------------------------------------------------------

    def _call(self, call: r.CallIdentity, effect: bool) -> RecordedCall:
        key = (call.scope, call.name, call.ident)
        calls = self.calls.get(key)
        if calls is None:
            calls = self.calls[key] = []
        # Calls of one kind may end in another order than they began, so earlier ones can still be missing.
        for _ in range(len(calls), call.nth + 1):
            calls.append(RecordedCall(*key, effect))
        return calls[call.nth]

    def _land(self, path: str, writes: tuple[r.RunWrite, ...]) -> None:
        for outer in scopes_around(path):
            self.landed.setdefault(outer, []).append(writes)

    def _on_started(self, event: r.JournalEntry, record: r.RunStarted) -> None:
        self.started = record
        self.openings = 1
        self.holders[record.fence] = record.holder
        self.opened_at.append(event.seq)
        if record.lost is not None:
            self.losses = lose(self.losses, record.lost, self.by_intent)

    def _on_forked(self, event: r.JournalEntry, record: r.Forked) -> None:
        assert self.started is not None
        given = (record.input, record.input_digest) if record.input else (self.started.input, self.started.input_digest)
        first = self.started
        self.started = r.RunStarted(record.agent, record.run, *given, 0, first.fence, first.holder, first.task)
        self.forked, self.finished, self.openings = record, None, 0
        self.cleanup = None  # it was the origin that was cancelled
        self.taken.clear()  # events are sent to a run id and numbered per run
        self.override(record)

    def override(self, record: r.Forked) -> None:
        """Replace the results of the steps that a fork overrides."""
        for override in record.overrides:
            for recorded in self._find_ended_at(override.seq):
                recorded.done, recorded.failed, recorded.result = True, 0, override.result

    def share(self, latest: Ledger) -> None:
        """Copy the facts that hold for every chapter of the run."""
        self.started, self.forked, self.finished = latest.started, latest.forked, latest.finished
        self.losses = latest.losses
        self.holders, self.taken_at, self.openings = latest.holders, latest.taken_at, latest.openings

    def _find_ended_at(self, seq: int) -> list[RecordedCall]:
        return [one for calls in self.calls.values() for one in calls if one.seq == seq and not one.effect]

    def _on_undone(self, event: r.JournalEntry, record: r.Undone) -> None:
        self.undos += 1

    def _on_resumed(self, event: r.JournalEntry, record: r.RunResumed) -> None:
        self.openings += 1
        self.holders[record.fence] = record.holder
        self.taken_at[record.fence] = record.booted_ms
        self.opened_at.append(event.seq)
        if record.lost is not None:
            self.losses = lose(self.losses, record.lost, self.by_intent)
        # An attempt killed at a failure did not continue after it, whatever a later one records before it.
        self.causes.update(seq for seq in self._failures if seq > self.latest_start)
        self._failures.clear()

    def _on_finished(self, event: r.JournalEntry, record: r.RunFinishedEntry) -> None:
        self.finished = record

    def _on_cleanup(self, event: r.JournalEntry, record: r.CleanupBegan) -> None:
        self.cleanup = record

    def _on_stream_compacted(self, event: r.JournalEntry, record: r.StreamCompacted) -> None:
        self.compaction = record

    def _on_failed(self, event: r.JournalEntry, record: r.RunFailed) -> None:
        self.causes.add(record.cause)
        self.opened_at.clear()

    def _on_left(self, event: r.JournalEntry, record: r.RunInterrupted | r.RunPausedEntry | r.TaskParked) -> None:
        self.opened_at.clear()

    def _on_tried(self, event: r.JournalEntry, record: r.TaskTried) -> None:
        self.trials.append(event.seq)

    def _on_step_done(self, event: r.JournalEntry, record: r.StepDone) -> None:
        call = record.call
        key = (call.scope, self._names.setdefault(call.name, call.name), call.ident)
        if call.nth == 0 and key not in self.calls:  # fast path for nearly all calls of a long run
            recorded = RecordedCall(*key, False, event.seq, record.since, True)
            self.calls[key] = [recorded]
        else:
            recorded = self._call(call, effect=False)
            recorded.seq, recorded.since, recorded.done, recorded.failed = event.seq, record.since, True, 0
        recorded.result, recorded.took_us = record.result, record.took_us
        if record.usage:
            recorded.usage = record.usage
        if record.since > self.latest_start:
            self.latest_start = record.since
        if record.writes:
            recorded.writes = record.writes
            self._land(record.call.scope, record.writes)

    def _on_step_failed(self, event: r.JournalEntry, record: r.StepFailedEntry) -> None:
        recorded = self._call(record.call, effect=False)
        recorded.seq, recorded.since, recorded.failed, recorded.error = event.seq, record.since, event.seq, record.error
        self._failures.append(event.seq)
        recorded.attempts, recorded.next_at, recorded.unstorable = 0, 0, record.unstorable
        self.latest_start = max(self.latest_start, record.since)

    def _on_attempt_failed(self, event: r.JournalEntry, record: r.AttemptFailed) -> None:
        recorded = self._call(record.call, effect=False)
        recorded.attempts, recorded.next_at, recorded.failed = record.attempt, record.next_at, 0
        self.latest_start = max(self.latest_start, event.seq - 1)
        if recorded.effect:
            recorded.fence = 0  # nothing happened, and the body has not started again

    def _on_intended(self, event: r.JournalEntry, record: r.EffectIntended) -> None:
        recorded = self._call(record.call, effect=True)
        recorded.effect = True
        recorded.seq = recorded.begun = event.seq
        recorded.since, recorded.boot_ms = record.since, record.boot_ms
        recorded.key, recorded.arguments, recorded.fence = record.key, record.arguments, record.fence
        recorded.timeout_ms = record.timeout_ms
        recorded.keyless = record.lost == KEY
        if self.losses is not None:
            recorded.holder = self.losses.mark_recorded(record.key)
        self.by_intent[event.seq] = recorded
        self.effects.setdefault((record.call.scope, record.call.name), []).append(recorded)
        self.latest_start = max(self.latest_start, record.since)

    def _on_again(self, event: r.JournalEntry, record: r.EffectAgain) -> None:
        recorded = self.by_intent[record.intent]
        recorded.fence, recorded.boot_ms, recorded.failed, recorded.begun = record.fence, record.boot_ms, 0, event.seq
        recorded.happened = recorded.keyless = recorded.doubted = False
        recorded.holder = None
        self.latest_start = max(self.latest_start, event.seq - 1)

    def _on_effect_done(self, event: r.JournalEntry, record: r.EffectDone) -> None:
        recorded = self.by_intent[record.intent]
        recorded.done, recorded.failed, recorded.result, recorded.writes = True, 0, record.result, record.writes
        recorded.took_us, recorded.usage = record.took_us, record.usage
        if record.how == "answer" or (record.how == "check" and not record.note):
            self.latest_start = max(self.latest_start, event.seq - 1)  # settled in doubt: the code just got here
        if record.writes:
            self._land(recorded.path, record.writes)

    def _on_doubted(self, event: r.JournalEntry, record: r.EffectDoubted) -> None:
        recorded = self.by_intent[record.intent]
        recorded.happened, recorded.doubted = record.happened, True

    def _on_effect_failed(self, event: r.JournalEntry, record: r.EffectFailed) -> None:
        recorded = self.by_intent[record.intent]
        recorded.failed, recorded.error, recorded.final = event.seq, record.error, record.final
        self._failures.append(event.seq)
        recorded.attempts = recorded.next_at = 0

    def _on_item(self, event: r.JournalEntry, record: r.ItemDone) -> None:
        self.items.add(record.scope)
        self.progress = event.seq
        if record.usage:
            for outer in scopes_around(record.scope):
                self.item_usage.setdefault(outer, []).append(record.usage)
        self.latest_start = max(self.latest_start, event.seq - 1)
        if record.writes:
            self._land(record.scope, record.writes)

    def _on_wrote(self, event: r.JournalEntry, record: r.Wrote) -> None:
        write = record.write
        for made in record.landed if write.op == r.WriteOp.CHECKPOINT else ():
            write = msgspec.structs.replace(write, position=getattr(made, "version", write.position))
        recorded = self.operations.setdefault((record.scope, *operation_key(write.op, write.key)), [])
        place = record.instead - 1 if record.instead else len(recorded)
        recorded[place : place + 1] = [write]
        self.latest_start = max(self.latest_start, event.seq - 1)
        self._land(record.scope, (write,))

    def _on_question(self, event: r.JournalEntry, record: r.QuestionAsked) -> None:
        self.questions[record.about] = event.seq
        self.latest_start = max(self.latest_start, event.seq - 1)

    def _on_question_closed(self, event: r.JournalEntry, record: r.QuestionClosed) -> None:
        self.questions = {about: seq for about, seq in self.questions.items() if seq != record.question}
        self.latest_start = max(self.latest_start, event.seq - 1)

    def _on_wait(self, event: r.JournalEntry, record: r.WaitBegan) -> None:
        waits = self.waits.setdefault((record.call.scope, record.call.name, record.call.ident), [])
        waited = RecordedWait(event.seq, record.kind, record.until)
        waits[record.call.nth :] = [waited]  # a wait whose answer was refused starts again
        self._open_waits[event.seq] = waited, record.call
        self.latest_start = max(self.latest_start, record.since)

    def _on_wait_ended(self, event: r.JournalEntry, record: r.WaitEnded) -> None:
        waited, call = self._open_waits.pop(record.wait)
        waited.how, waited.value, waited.by = record.how, record.value, record.by
        self.progress = event.seq
        if record.number:
            self.taken.setdefault(call.ident.decode(), set()).add(record.number)
        self.latest_start = max(self.latest_start, event.seq - 1)


def operation_key(op: r.WriteOp, key: str) -> tuple[r.WriteOp, str]:
    """Return what operations are matched by: messages are one sequence, state goes by key and events by kind."""
    if op == r.WriteOp.DELETE:
        return r.WriteOp.SET, key
    return op, "" if op == r.WriteOp.MESSAGE else key


_HANDLERS: dict[type[r.Record], Callable[[Ledger, r.JournalEntry, Any], None]] = {
    r.RunStarted: Ledger._on_started,
    r.Forked: Ledger._on_forked,
    r.Undone: Ledger._on_undone,
    r.RunResumed: Ledger._on_resumed,
    r.RunFinishedEntry: Ledger._on_finished,
    r.RunFailed: Ledger._on_failed,
    r.CleanupBegan: Ledger._on_cleanup,
    r.RunInterrupted: Ledger._on_left,
    r.RunPausedEntry: Ledger._on_left,
    r.RunReleased: release,
    r.TaskParked: Ledger._on_left,
    r.TaskTried: Ledger._on_tried,
    r.StreamCompacted: Ledger._on_stream_compacted,
    r.StepDone: Ledger._on_step_done,
    r.StepFailedEntry: Ledger._on_step_failed,
    r.AttemptFailed: Ledger._on_attempt_failed,
    r.EffectIntended: Ledger._on_intended,
    r.EffectAgain: Ledger._on_again,
    r.EffectDone: Ledger._on_effect_done,
    r.EffectDoubted: Ledger._on_doubted,
    r.EffectFailed: Ledger._on_effect_failed,
    r.ItemDone: Ledger._on_item,
    r.Wrote: Ledger._on_wrote,
    r.QuestionAsked: Ledger._on_question,
    r.QuestionClosed: Ledger._on_question_closed,
    r.WaitBegan: Ledger._on_wait,
    r.WaitEnded: Ledger._on_wait_ended,
}
