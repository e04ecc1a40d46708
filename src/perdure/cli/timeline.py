"""The entries of a run in words, one line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perdure import records as r
from perdure.cli.output import clean, format_count, format_value, size
from perdure.journal.project import order_text
from perdure.records.tasks import TaskTried
from perdure.run.prices import NANOS
from perdure.run.usage import format_dollars

BodyUnpacker = Callable[[bytes], Any]
VALUE_CHARACTERS_MAX = 80


def describe(events: Sequence[r.JournalEntry], unpack: BodyUnpacker) -> list[str]:
    """Describe each entry in one line. Values are shortened and clean."""
    names = _names_of_intents(events)
    return [_EntryDescriber(unpack, names).describe(event.record) for event in events]


def _names_of_intents(events: Sequence[r.JournalEntry]) -> dict[int, str]:
    intents = {event.seq: event.record for event in events if isinstance(event.record, r.EffectIntended)}
    return {seq: _call(intent.call) for seq, intent in intents.items()}


def _call(call: r.CallIdentity) -> str:
    return clean(f"{call.scope}{call.name}")


def _memories(ids: Sequence[str]) -> str:
    return f"memory {ids[0]}" if len(ids) == 1 else f"{len(ids)} memories"


def _format_duration(microseconds: int) -> str:
    return f"{microseconds / 1e6:.1f} s" if microseconds >= 1_000_000 else f"{microseconds / 1e3:.1f} ms"


def _usage(usage: r.ModelUsage) -> str:
    cost = format_dollars(usage.cost / NANOS) if usage.calls > usage.unpriced else "cost unknown"
    unknown = f" + {usage.unpriced} of unknown cost" if 0 < usage.unpriced < usage.calls else ""
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    return f"{format_count(usage.calls, 'call')} of {clean(usage.model)}: {tokens}, {cost}{unknown}"


class _EntryDescriber:
    """Describes entries, with the values and names that they refer to."""

    def __init__(self, unpack: BodyUnpacker, names: dict[int, str]) -> None:
        self._unpack = unpack
        self._names = names

    def describe(self, record: r.Record) -> str:
        """Describe one entry; a kind without a description is named."""
        words = _WORDS.get(type(record))
        return words(self, record) if words is not None else type(record).__name__

    def _value(self, packed: bytes) -> str:
        return format_value(self._unpack(packed), VALUE_CHARACTERS_MAX)

    def _effect(self, intent: int) -> str:
        return self._names.get(intent, f"of entry {intent}")

    def _describe_writes(self, record: r.StepDone | r.EffectDone | r.ItemDone) -> str:
        parts = [
            *map(self._write, record.writes),
            *map(self._describe_change, record.landed),
            *map(_usage, record.usage),
        ]
        return f", with {'; '.join(parts)}" if parts else ""

    def _describe_change(self, change: r.AgentChange) -> str:
        if isinstance(change, r.CheckpointMade):
            return f"checkpoint {format_value(change.name)}, version {change.version}"
        if isinstance(change, r.CheckpointDropped):
            return f"checkpoint {format_value(change.name)}, version {change.version}, deleted"
        if isinstance(change, r.ArtifactSaved):
            return f"artifact {format_value(change.name)}, version {change.version}, {size(change.size)}"
        if isinstance(change, r.ArtifactDropped):
            return f"artifact {format_value(change.name)}, version {change.version}, deleted"
        if isinstance(change, r.EventAppended):
            return f"event {clean(change.kind)} {self._value(change.value)}"
        if isinstance(change, r.WorkflowMade):
            steps = format_count(len(change.steps), "step")
            return f"workflow {format_value(change.name)}, version {change.version}, {steps}"
        if isinstance(change, r.WorkflowMoved):
            return f"workflow {format_value(change.name)}: step {clean(change.step)} {change.standing.status}"
        if isinstance(change, r.SignalSent):
            return (
                f"event {format_value(change.name)} sent to run {format_value(change.run)}: {self._value(change.value)}"
            )
        if isinstance(change, r.OrderGiven):
            return f"{change.order} of the run of stream {change.stream}, by {clean(change.by)}"
        if isinstance(change, r.TaskQueued):
            return f"run {format_value(change.run)} of task {clean(change.task)} queued in {format_value(change.queue)}"
        if isinstance(change, r.TaskAgain):
            return f"run {format_value(change.run)} queued again by {clean(change.by)}"
        if isinstance(change, r.ThreadPut):
            return f"checkpoint {clean(change.id)} of thread {format_value(change.thread)}"
        if isinstance(change, r.ThreadWrote):
            writes = format_count(len(change.writes), "write")
            return f"{writes} of task {clean(change.task)} in thread {format_value(change.thread)}"
        if isinstance(change, r.ThreadDropped):
            gone = format_count(len(change.points), "checkpoint") + " of " if change.points else ""
            return f"{gone}thread {format_value(change.thread)} deleted"
        key = f"agent's state[{format_value(change.space)}][{format_value(change.key)}]"
        return f"{key} = {self._value(change.value)}" if change.value else f"{key} deleted"

    def _write(self, write: r.RunWrite) -> str:
        if write.op == r.WriteOp.DELETE:
            return f"state[{format_value(write.key)}] deleted"
        if write.op == r.WriteOp.PIN:
            return f"message {write.position} {write.key}ned"
        if write.op == r.WriteOp.COMPACT and write.key.endswith("undo"):
            return "messages no longer compacted"
        value = self._value(write.value)
        if write.op == r.WriteOp.COMPACT:
            return f"{'turns' if write.key else 'messages'} before {write.position} compacted: {value}"
        if write.op == r.WriteOp.SET:
            return f"state[{format_value(write.key)}] = {value}"
        return f"message {value}" if write.op == r.WriteOp.MESSAGE else f"event {clean(write.key)} {value}"

    def started(self, record: r.RunStarted) -> str:
        return f"started in {clean(str(record.holder))}, input {self._value(record.input)}"

    def forked(self, record: r.Forked) -> str:
        given = f", input {self._value(record.input)}" if record.input else ""
        others = [f"entry {one.seq} -> {self._value(one.result)}" for one in record.overrides]
        return f"forked from run {clean(record.of)} at entry {record.cut}{given}{''.join(f', {one}' for one in others)}"

    def undone(self, record: r.Undone) -> str:
        kept = f", {format_count(len(record.kept), 'effect')} kept" if record.kept else ""
        by = f" by {clean(record.by)}" if record.by else ""
        return f"{format_count(record.steps, 'step')} undone{by}: as it was after entry {record.to}{kept}"

    def resumed(self, record: r.RunResumed) -> str:
        return f"resumed in {clean(str(record.holder))}"

    def step_done(self, record: r.StepDone) -> str:
        took = _format_duration(record.took_us)
        return f"step {_call(record.call)} -> {self._value(record.result)} in {took}{self._describe_writes(record)}"

    def step_failed(self, record: r.StepFailedEntry) -> str:
        kept = f"; kept of its result: {self._value(record.result)}" if record.result else ""
        return f"step {_call(record.call)} failed: {clean(record.text)}{kept}"

    def attempt_failed(self, record: r.AttemptFailed) -> str:
        return f"{_call(record.call)}: attempt {record.attempt} failed: {self._value(record.error)}"

    def intended(self, record: r.EffectIntended) -> str:
        return f"effect {_call(record.call)} begins, key {clean(record.key)}, arguments {self._value(record.arguments)}"

    def again(self, record: r.EffectAgain) -> str:
        return f"effect {self._effect(record.intent)} begins again: {clean(record.reason)}"

    def effect_done(self, record: r.EffectDone) -> str:
        who = {"body": f"in {_format_duration(record.took_us)}", "check": "according to its check"}.get(
            record.how, f"according to {clean(record.note)}"
        )
        result = f"effect {self._effect(record.intent)} -> {self._value(record.result)} {who}"
        return result + self._describe_writes(record)

    def effect_failed(self, record: r.EffectFailed) -> str:
        how = "given up" if record.final else "did not happen"
        return f"effect {self._effect(record.intent)} {how}: {clean(record.text)}"

    def doubted(self, record: r.EffectDoubted) -> str:
        return f"effect {self._effect(record.intent)} in doubt: {clean(record.text)}"

    def item(self, record: r.ItemDone) -> str:
        return f"item {clean(record.scope.rstrip('/'))} done{self._describe_writes(record)}"

    def wrote(self, record: r.Wrote) -> str:
        return "; ".join([*map(self._describe_change, record.landed), *map(_usage, record.usage)]) or self._write(
            record.write
        )

    def replayed(self, record: r.Replayed) -> str:
        steps = format_count(sum(one.steps for one in record.saved), "step")
        called = [_usage(one.usage) for one in record.saved if one.usage.calls]
        spared = "; ".join([_format_duration(sum(one.took_us for one in record.saved)), *called])
        return f"skipped {steps}, which were already recorded: {spared}"

    def remembered(self, record: r.MemoryKept) -> str:
        about = f" about {format_value(record.about)}" if record.about else ""
        return f"{record.kind} memory {record.id}{about}: {self._value(record.value)}"

    def wait_ended(self, record: r.WaitEnded) -> str:
        by = f", by {clean(record.by)}" if record.by else ""
        return f"{_ENDS[record.how]} {self._value(record.value)}{by}" if record.value else _ENDS[record.how]

    def finished(self, record: r.RunFinishedEntry) -> str:
        return f"finished, result {self._value(record.result)}" if record.result else "finished, its result was erased"


_WAITS = {"ask": "asks: ", "approve": "asks: ", "event": "waits for ", "sleep": "sleeps ", "run": "waits for "}
_ENDS = {
    "answer": "answer",
    "refused": "invalid answer:",
    "withdrawn": "the code no longer asks this",
    "event": "event received:",
    "time": "wakes up",
    "timeout": "timed out",
    "finished": "it has finished:",
    "failed": "it has failed:",
    "cancelled": "it was cancelled",
}
_WORDS: dict[type[r.Record], Callable[[_EntryDescriber, Any], str]] = {
    r.RunStarted: _EntryDescriber.started,
    r.RunResumed: _EntryDescriber.resumed,
    r.Forked: _EntryDescriber.forked,
    r.Undone: _EntryDescriber.undone,
    r.RunFinishedEntry: _EntryDescriber.finished,
    r.RunFailed: lambda teller, record: f"failed{', will be retried' if record.again_at else ''}: {clean(record.text)}",
    r.TaskParked: lambda teller, record: "parked: released by its worker",
    TaskTried: lambda teller, record: "executed alone: workers have died at this point",
    r.MemoryKept: _EntryDescriber.remembered,
    r.MemorySeen: lambda teller, record: f"memory {record.id} repeated",
    r.MemoryWithdrawn: lambda teller, record: (
        f"{_memories(record.ids)} withdrawn by {clean(record.by)}: {clean(record.reason)}"
    ),
    r.MemoryForgotten: lambda teller, record: (
        f"{_memories(record.ids)} forgotten by {clean(record.by)}: {clean(record.reason)}"
    ),
    r.RunInterrupted: lambda teller, record: f"interrupted: {clean(record.reason)}",
    r.RunCancelledEntry: lambda teller, record: f"cancelled {clean(order_text(record))}",
    r.RunPausedEntry: lambda teller, record: f"paused {clean(order_text(record))}",
    r.RunReleased: lambda teller, record: f"{'retried' if record.retry else 'resumed'} {clean(order_text(record))}",
    r.CleanupBegan: lambda teller, record: f"cleans up: cancelled {clean(order_text(record))}",
    r.StepDone: _EntryDescriber.step_done,
    r.StepFailedEntry: _EntryDescriber.step_failed,
    r.AttemptFailed: _EntryDescriber.attempt_failed,
    r.EffectIntended: _EntryDescriber.intended,
    r.EffectAgain: _EntryDescriber.again,
    r.EffectDone: _EntryDescriber.effect_done,
    r.EffectFailed: _EntryDescriber.effect_failed,
    r.EffectDoubted: _EntryDescriber.doubted,
    r.ItemDone: _EntryDescriber.item,
    r.Wrote: _EntryDescriber.wrote,
    r.Spent: lambda teller, record: f"spent on a failed attempt: {'; '.join(map(_usage, record.usage))}",
    r.Replayed: _EntryDescriber.replayed,
    r.ReplayDiffered: lambda teller, record: (
        f"{clean(record.what)} was reported otherwise than recorded{clean(f' at {record.line}' if record.line else '')}"
    ),
    r.QuestionAsked: lambda teller, record: f"asks: {clean(record.text)}",
    r.WaitBegan: lambda teller, record: f"{_WAITS[record.kind]}{clean(record.text)}",
    r.WaitEnded: _EntryDescriber.wait_ended,
    r.StreamCompacted: lambda teller, record: (
        f"entries up to {record.upto} were compacted: archive {clean(record.archive)}"
    ),
    r.QuestionClosed: lambda teller, record: f"answer taken: {clean(record.verdict)}",
}
