"""What the journal says about a run: every recorded call, write and item, ready to be matched by the code.

Built once when a run is opened, then consumed as the code executes again. No I/O, no decoding of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from ..process import Holder
from .losses import KEY, Losses, lose
from .waits import Waited

if TYPE_CHECKING:
    from .core import View


class Recorded(msgspec.Struct, eq=False, gc=False):
    """A call of a step or an effect, and how far it got."""

    path: str
    name: str
    ident: bytes
    effect: bool
    seq: int = 0
    """The entry that began it (an effect's intent) or ended it (a step)."""
    since: int = 0
    done: bool = False
    failed: int = 0
    """Number of the entry that says it failed for good; 0 while it has not."""
    final: bool = False
    attempts: int = 0
    next_at: int = 0
    result: bytes = b""
    error: bytes = b""
    writes: tuple[r.Write, ...] = ()
    consumed: bool = False
    key: str = ""
    arguments: bytes = b""
    fence: int = 0
    timeout_ms: int = 0
    boot_ms: int = 0
    begun: int = 0
    """The last entry that let the body start: what a question or an answer is about."""
    running: bool = False
    """The body is at work in this process."""
    happened: bool = False
    """It ended well, and what it returned could not be stored."""
    holder: Holder | None = None
    """The process that ran its body, when the entry that says so was lost."""
    keyless: bool = False
    """It may have begun under a key that was lost: neither its check nor its policy can tell anything."""
    took_us: int = 0
    usage: tuple[r.Usage, ...] = ()
    credited: bool = False
    """This opening of the run has gone past it; or it was made in it."""
    origin: r.Call | None = None
    """What the journal calls it, when the code has another name for it now: entries go on under that one."""

    @property
    def blank(self) -> bool:
        """Only keeps a place: the journal says nothing of this one."""
        return not (self.done or self.failed or self.attempts or self.key)

    @property
    def in_doubt(self) -> bool:
        """An effect that was begun, and of which nobody has recorded how it ended."""
        return self.fence > 0 and not self.done and not self.failed and not self.running

    def take_writes(self) -> tuple[r.Write, ...]:
        """What it wrote, the first time: an id that is called twice is one call, and must not apply them twice."""
        writes, self.writes = self.writes, ()
        return writes


class Turn(msgspec.Struct, frozen=True):
    """The code goes back over some steps."""

    undone: r.Undone
    view: View
    """What it sees from then on."""
    ledger: Ledger
    before: tuple[r.Event, ...]
    """What held until then."""


class Ledger:
    """The recorded part of a run."""

    def __init__(self, events: Iterable[r.Event]) -> None:
        self.started: r.RunStarted | None = None
        self.calls: dict[tuple[str, str, bytes], list[Recorded]] = {}
        self.effects: dict[tuple[str, str], list[Recorded]] = {}
        """By scope and name, in the order of their intents: those that are not done, or not asked for yet."""
        self.by_intent: dict[int, Recorded] = {}
        self.holders: dict[int, Holder] = {}
        """Which process wrote under which fence."""
        self.losses: Losses | None = None
        """What is known of entries that the store has lost."""
        self.taken_at: dict[int, int] = {}
        """When a process took the run over, by the boot clock of its host."""
        self.items: set[str] = set()
        self.landed: dict[str, list[tuple[r.Write, ...]]] = {}
        """All writes that landed inside an item, by the item's scope: a skipped item applies them."""
        self.item_usage: dict[str, list[tuple[r.Usage, ...]]] = {}
        """Of the bodies of done items, by the scope of the item and of those around it."""
        self.operations: dict[tuple[str, int, str], list[r.Write]] = {}
        """Writes in the open, by scope, operation and key, in order."""
        self.questions: dict[int, int] = {}
        """Open question by the intent that it is about."""
        self.waits: dict[tuple[str, str, bytes], list[Waited]] = {}
        """By scope, kind and what is waited for, in order."""
        self.taken: dict[str, set[int]] = {}
        """The numbers of the events of each name that the run has taken."""
        self._open_waits: dict[int, tuple[Waited, r.Call]] = {}
        self.finished: r.RunFinished | None = None
        self.cleanup: r.CleanupBegan | None = None
        """Since when it is cancelled, and cleans up."""
        self.folded: r.Folded | None = None
        """Its entries are in an archive, all but a few."""
        self.opened_at: list[int] = []
        """The entries that opened the run, since it was last left in order."""
        self.trials: list[int] = []  # the entries at which a worker began with it, beside no other suspect
        self.progress = 0
        """The last entry that got the run further; of steps and effects, those that are done tell by themselves."""
        self.causes: set[int] = set()
        """The recorded failures that ended attempts, or at which attempts ended."""
        self._failures: list[int] = []
        """Those of the latest attempt."""
        self.within: dict[str, list[Recorded]] | None = None
        """Done calls by the scopes around them, once somebody has asked."""
        self.by_arguments: dict[tuple[str, bytes], list[Recorded]] | None = None
        self.loops: set[str] | None = None
        self.names: set[tuple[str, str]] | None = None
        """What `renames` has looked up of it."""
        self.latest_start = 0
        """The largest `since`: something was begun after that entry."""
        self.forked: r.Forked | None = None
        """Of a fork, its first own entry: what came before it is its origin's."""
        self.undos = 0
        """How often it went back: then this is not the whole story, see `undoing.py`."""
        self.after: Turn | None = None
        """What the code comes to when it goes back for the next time."""
        self.openings = 0
        """How often it was opened; of a fork, since it is one."""
        self.read(events)

    def read(self, events: Iterable[r.Event]) -> None:
        """Take in what the journal says next."""
        for event in events:
            record = event.record
            handler = _HANDLERS.get(type(record))
            if handler is not None:
                handler(self, event, record)

    def find(self, path: str, name: str, ident: bytes, nth: int) -> Recorded | None:
        """The nth recorded call of that name with those arguments in that scope."""
        calls = self.calls.get((path, name, ident))
        return calls[nth] if calls is not None and nth < len(calls) else None

    def unasked_waits(self, scope: str | None = None, kind: str | None = None) -> list[Waited]:
        """What the run waited for when it was left, and what the code has not come to; all, or of one kind."""
        return [
            waited
            for waited, call in self._open_waits.values()
            if not waited.asked and not waited.how and (kind is None or (waited.kind, call.scope) == (kind, scope))
        ]

    def went_past(self, failure: Recorded) -> bool:
        """Whether the code caught this failure and did something after it."""
        if failure.final or self.finished is not None:
            return True
        return failure.failed not in self.causes and self.latest_start >= failure.failed

    def unconsumed_effect(self, path: str, name: str) -> Recorded | None:
        """A recorded effect of that name which the code has not asked for."""
        return next((one for one in self.effects.get((path, name), ()) if not one.consumed), None)

    def first_takeover(self, fence: int, boot: str) -> float:
        """When a process of this boot of this host first took the run over from whoever had that fence."""
        ours = [at for later, at in self.taken_at.items() if later > fence and self.holders[later].boot == boot]
        return min(ours, default=math.inf)

    def is_shared(self, recorded: Recorded) -> bool:
        """Whether an effect was begun by the origin of this fork, which may go on with it."""
        return self.forked is not None and 0 < recorded.fence <= self.forked.fence

    def doubtful_effects(self, path: str, name: str) -> list[Recorded]:
        """The recorded effects of that name of which this run does not know how they ended."""
        return [one for one in self.effects.get((path, name), ()) if one.in_doubt]

    def recorded_write(self, path: str, op: int, key: str, nth: int) -> r.Write | None:
        """The nth write of that kind in the open, if it was made before."""
        writes = self.operations.get((path, op, key))
        return writes[nth] if writes is not None and nth < len(writes) else None

    def track(self, recorded: Recorded, nth: int) -> None:
        """Keep a call that is being made now, so that later ones can be compared with it."""
        recorded.consumed = recorded.credited = True
        calls = self.calls.setdefault((recorded.path, recorded.name, recorded.ident), [])
        calls[nth : nth + 1] = [recorded]
        if recorded.effect:
            self.effects.setdefault((recorded.path, recorded.name), []).append(recorded)

    def track_step(self, path: str, name: str, ident: bytes, result: bytes) -> None:
        """Keep a step that was called by an explicit id: the next call with that id is the same one."""
        recorded = Recorded(path, name, ident, effect=False)
        recorded.done, recorded.result = True, result
        self.track(recorded, 0)

    def untrack(self, recorded: Recorded) -> None:
        """Forget a call whose intent could not be written: it has not begun."""
        recorded.fence = 0
        self.effects[recorded.path, recorded.name].remove(recorded)
        self.calls[recorded.path, recorded.name, recorded.ident].remove(recorded)

    def done_within(self, item: str) -> list[Recorded]:
        """Every done call in the scope of an item, and of the items in it."""
        if self.within is None:
            self.within = {}
            for (path, _, _), calls in self.calls.items():
                for outer in scopes_around(path):
                    self.within.setdefault(outer, []).extend(one for one in calls if one.done)
        return self.within.get(item, [])

    def close(self, recorded: Recorded) -> None:
        """A done effect that the code has asked for is not looked at again: a new one must not pay for the old ones."""
        effects = self.effects.get((recorded.path, recorded.name), [])
        if recorded in effects:
            effects.remove(recorded)

    def in_doubt(self) -> list[Recorded]:
        """Every effect of which nobody knows how it ended."""
        return [recorded for recorded in self.by_intent.values() if recorded.in_doubt]

    def deaths(self) -> int:
        """How many openings in a row, before this one, have ended without a word and got the run no further."""
        if len(self.opened_at) < 2:
            return 0
        done = [call.seq for calls in self.calls.values() for call in calls if call.done or call.failed]
        latest = max([self.progress, *done])
        return max(0, sum(seq > latest for seq in self.opened_at) - 1)

    def deaths_alone(self) -> int:
        """How many of them cannot be blamed on another suspect: one that waits for its turn dies of somebody else."""
        return sum(seq >= self.opened_at[-self.deaths() - 1] for seq in self.trials) if self.deaths() else 0

    def last_done(self) -> str:
        """What the run did last, in words."""
        done = [call for calls in self.calls.values() for call in calls if call.done]
        if not done:
            return "before its first step was done"
        last = max(done, key=lambda call: call.seq)
        return f"after {'effect' if last.effect else 'step'} {last.name} (entry {last.seq})"

    # -- reading the journal ------------------------------------------------------------------------------------

    def _call(self, call: r.Call, effect: bool) -> Recorded:
        key = (call.scope, call.name, call.ident)
        calls = self.calls.get(key)
        if calls is None:
            calls = self.calls[key] = []
        # Calls of one kind may end in another order than they began: an earlier one can still be missing.
        for _ in range(len(calls), call.nth + 1):
            calls.append(Recorded(*key, effect))
        return calls[call.nth]

    def _land(self, path: str, writes: tuple[r.Write, ...]) -> None:
        for outer in scopes_around(path):
            self.landed.setdefault(outer, []).append(writes)

    def _on_started(self, event: r.Event, it: r.RunStarted) -> None:
        self.started = it
        self.openings = 1
        self.holders[it.fence] = it.holder
        self.opened_at.append(event.seq)
        if it.lost is not None:
            self.losses = lose(self.losses, it.lost, self.by_intent)

    def _on_forked(self, event: r.Event, it: r.Forked) -> None:
        assert self.started is not None
        given = (it.input, it.input_digest) if it.input else (self.started.input, self.started.input_digest)
        first = self.started
        self.started = r.RunStarted(it.agent, it.run, *given, 0, first.fence, first.holder, first.task)
        self.forked, self.finished, self.openings = it, None, 0
        self.cleanup = None  # it is another run that was cancelled
        self.taken.clear()  # events are sent to a run by its id, and numbered for each
        self.override(it)

    def override(self, it: r.Forked) -> None:
        """Steps have other results in a fork."""
        for override in it.overrides:
            for recorded in self._ended_at(override.seq):
                recorded.done, recorded.failed, recorded.result = True, 0, override.result

    def share(self, latest: Ledger) -> None:
        """Of one run, whose code went back: whose it is, and how it ended, is the same for every chapter."""
        self.started, self.forked, self.finished = latest.started, latest.forked, latest.finished
        self.losses = latest.losses
        self.holders, self.taken_at, self.openings = latest.holders, latest.taken_at, latest.openings

    def _ended_at(self, seq: int) -> list[Recorded]:
        return [one for calls in self.calls.values() for one in calls if one.seq == seq and not one.effect]

    def _on_undone(self, event: r.Event, it: r.Undone) -> None:
        self.undos += 1

    def _on_resumed(self, event: r.Event, it: r.RunResumed) -> None:
        self.openings += 1
        self.holders[it.fence] = it.holder
        self.taken_at[it.fence] = it.booted_ms
        self.opened_at.append(event.seq)
        if it.lost is not None:
            self.losses = lose(self.losses, it.lost, self.by_intent)
        # An attempt that was killed at a failure did not go past it, whatever a later one records before it.
        self.causes.update(seq for seq in self._failures if seq > self.latest_start)
        self._failures.clear()

    def _on_finished(self, event: r.Event, it: r.RunFinished) -> None:
        self.finished = it

    def _on_cleanup(self, event: r.Event, it: r.CleanupBegan) -> None:
        self.cleanup = it

    def _on_folded(self, event: r.Event, it: r.Folded) -> None:
        self.folded = it

    def _on_failed(self, event: r.Event, it: r.RunFailed) -> None:
        self.causes.add(it.cause)
        self.opened_at.clear()

    def _on_left(self, event: r.Event, it: r.RunInterrupted | r.RunPaused | r.TaskParked) -> None:
        self.opened_at.clear()

    def _on_tried(self, event: r.Event, it: r.TaskTried) -> None:
        self.trials.append(event.seq)

    def _on_step_done(self, event: r.Event, it: r.StepDone) -> None:
        call = it.call
        key = (call.scope, call.name, call.ident)
        if call.nth == 0 and key not in self.calls:  # nearly always, and a long run has many: made in one go
            recorded = Recorded(*key, False, event.seq, it.since, True)
            self.calls[key] = [recorded]
        else:
            recorded = self._call(call, effect=False)
            recorded.seq, recorded.since, recorded.done, recorded.failed = event.seq, it.since, True, 0
        recorded.result, recorded.took_us = it.result, it.took_us
        if it.usage:
            recorded.usage = it.usage
        if it.since > self.latest_start:
            self.latest_start = it.since
        if it.writes:
            recorded.writes = it.writes
            self._land(it.call.scope, it.writes)

    def _on_step_failed(self, event: r.Event, it: r.StepFailed) -> None:
        recorded = self._call(it.call, effect=False)
        recorded.seq, recorded.since, recorded.failed, recorded.error = event.seq, it.since, event.seq, it.error
        self._failures.append(event.seq)
        recorded.attempts = recorded.next_at = 0
        self.latest_start = max(self.latest_start, it.since)

    def _on_attempt_failed(self, event: r.Event, it: r.AttemptFailed) -> None:
        recorded = self._call(it.call, effect=False)
        recorded.attempts, recorded.next_at, recorded.failed = it.attempt, it.next_at, 0
        self.latest_start = max(self.latest_start, event.seq - 1)
        if recorded.effect:
            recorded.fence = 0  # nothing happened, and the body has not been started again yet

    def _on_intended(self, event: r.Event, it: r.EffectIntended) -> None:
        recorded = self._call(it.call, effect=True)
        recorded.effect = True
        recorded.seq = recorded.begun = event.seq
        recorded.since, recorded.boot_ms = it.since, it.boot_ms
        recorded.key, recorded.arguments, recorded.fence = it.key, it.arguments, it.fence
        recorded.timeout_ms = it.timeout_ms
        recorded.keyless = it.lost == KEY
        if self.losses is not None:
            recorded.holder = self.losses.recorded(it.key)
        self.by_intent[event.seq] = recorded
        self.effects.setdefault((it.call.scope, it.call.name), []).append(recorded)
        self.latest_start = max(self.latest_start, it.since)

    def _on_again(self, event: r.Event, it: r.EffectAgain) -> None:
        recorded = self.by_intent[it.intent]
        recorded.fence, recorded.boot_ms, recorded.failed, recorded.begun = it.fence, it.boot_ms, 0, event.seq
        recorded.happened = recorded.keyless = False
        recorded.holder = None
        self.latest_start = max(self.latest_start, event.seq - 1)

    def _on_effect_done(self, event: r.Event, it: r.EffectDone) -> None:
        recorded = self.by_intent[it.intent]
        recorded.done, recorded.failed, recorded.result, recorded.writes = True, 0, it.result, it.writes
        recorded.took_us, recorded.usage = it.took_us, it.usage
        if it.how == "answer" or (it.how == "check" and not it.note):
            self.latest_start = max(self.latest_start, event.seq - 1)  # found in doubt: the code came here just now
        if it.writes:
            self._land(recorded.path, it.writes)

    def _on_doubted(self, event: r.Event, it: r.EffectDoubted) -> None:
        self.by_intent[it.intent].happened = it.happened

    def _on_effect_failed(self, event: r.Event, it: r.EffectFailed) -> None:
        recorded = self.by_intent[it.intent]
        recorded.failed, recorded.error, recorded.final = event.seq, it.error, it.final
        self._failures.append(event.seq)
        recorded.attempts = recorded.next_at = 0

    def _on_item(self, event: r.Event, it: r.ItemDone) -> None:
        self.items.add(it.scope)
        self.progress = event.seq
        if it.usage:
            for outer in scopes_around(it.scope):
                self.item_usage.setdefault(outer, []).append(it.usage)
        self.latest_start = max(self.latest_start, event.seq - 1)
        if it.writes:
            self._land(it.scope, it.writes)

    def _on_wrote(self, event: r.Event, it: r.Wrote) -> None:
        write = it.write
        self.operations.setdefault((it.scope, write.op, _operation_key(write)), []).append(write)
        self.latest_start = max(self.latest_start, event.seq - 1)
        self._land(it.scope, (write,))

    def _on_question(self, event: r.Event, it: r.QuestionAsked) -> None:
        self.questions[it.about] = event.seq
        self.latest_start = max(self.latest_start, event.seq - 1)

    def _on_question_closed(self, event: r.Event, it: r.QuestionClosed) -> None:
        self.questions = {about: seq for about, seq in self.questions.items() if seq != it.question}
        self.latest_start = max(self.latest_start, event.seq - 1)

    def _on_wait(self, event: r.Event, it: r.WaitBegan) -> None:
        waits = self.waits.setdefault((it.call.scope, it.call.name, it.call.ident), [])
        waited = Waited(event.seq, it.kind, it.until)
        waits[it.call.nth :] = [waited]  # one whose answer did not fit is asked again
        self._open_waits[event.seq] = waited, it.call
        self.latest_start = max(self.latest_start, it.since)

    def _on_wait_ended(self, event: r.Event, it: r.WaitEnded) -> None:
        waited, call = self._open_waits.pop(it.wait)
        waited.how, waited.value, waited.by = it.how, it.value, it.by
        self.progress = event.seq
        if it.number:
            self.taken.setdefault(call.ident.decode(), set()).add(it.number)
        self.latest_start = max(self.latest_start, event.seq - 1)


def scopes_around(path: str) -> Iterator[str]:
    """The scopes of the items that a scope lies in, from the outermost to itself; the run is not one."""
    inside = ""
    for part in path.split("/")[:-1]:
        inside += part + "/"
        yield inside


def _operation_key(write: r.Write) -> str:
    # Messages are one sequence; state is matched key by key and events kind by kind.
    return "" if write.op == r.Op.MESSAGE else write.key


_HANDLERS: dict[type[r.Record], Callable[[Ledger, r.Event, Any], None]] = {
    r.RunStarted: Ledger._on_started,
    r.Forked: Ledger._on_forked,
    r.Undone: Ledger._on_undone,
    r.RunResumed: Ledger._on_resumed,
    r.RunFinished: Ledger._on_finished,
    r.RunFailed: Ledger._on_failed,
    r.CleanupBegan: Ledger._on_cleanup,
    r.RunInterrupted: Ledger._on_left,
    r.RunPaused: Ledger._on_left,
    r.TaskParked: Ledger._on_left,
    r.TaskTried: Ledger._on_tried,
    r.Folded: Ledger._on_folded,
    r.StepDone: Ledger._on_step_done,
    r.StepFailed: Ledger._on_step_failed,
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
