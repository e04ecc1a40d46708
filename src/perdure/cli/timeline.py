"""The entries of a run in words, one line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import records as r
from ..journal.fold import told_by
from ..prices import NANOS
from ..task_records import TaskTried
from ..usage import in_dollars
from .output import clean, counted, shown, size

Unpack = Callable[[bytes], Any]
VALUE_CHARACTERS_MAX = 80


def in_words(events: Sequence[r.Event], unpack: Unpack) -> list[str]:
    """What each entry says. Values are shortened, and clean."""
    names = _names_of_intents(events)
    return [_Teller(unpack, names).tell(event.record) for event in events]


def _names_of_intents(events: Sequence[r.Event]) -> dict[int, str]:
    intents = {event.seq: event.record for event in events if isinstance(event.record, r.EffectIntended)}
    return {seq: _call(intent.call) for seq, intent in intents.items()}


def _call(call: r.Call) -> str:
    return clean(f"{call.scope}{call.name}")


def _memories(ids: Sequence[str]) -> str:
    return f"memory {ids[0]}" if len(ids) == 1 else f"{len(ids)} memories"


def _took(microseconds: int) -> str:
    return f"{microseconds / 1e6:.1f} s" if microseconds >= 1_000_000 else f"{microseconds / 1e3:.1f} ms"


def _usage(it: r.Usage) -> str:
    cost = in_dollars(it.cost / NANOS) if it.calls > it.unpriced else "cost unknown"
    unknown = f" + {it.unpriced} of unknown cost" if 0 < it.unpriced < it.calls else ""
    tokens = f"{it.input_tokens:,} tokens in, {it.output_tokens:,} out"
    return f"{counted(it.calls, 'call')} of {clean(it.model)}: {tokens}, {cost}{unknown}"


class _Teller:
    """Knows the values and the names that entries refer to."""

    def __init__(self, unpack: Unpack, names: dict[int, str]) -> None:
        self._unpack = unpack
        self._names = names

    def tell(self, record: r.Record) -> str:
        """One entry in words; a kind without words of its own is named."""
        words = _WORDS.get(type(record))
        return words(self, record) if words is not None else type(record).__name__

    def _value(self, packed: bytes) -> str:
        return shown(self._unpack(packed), VALUE_CHARACTERS_MAX)

    def _effect(self, intent: int) -> str:
        return self._names.get(intent, f"of entry {intent}")

    def _with(self, it: r.StepDone | r.EffectDone | r.ItemDone) -> str:
        parts = [*map(self._write, it.writes), *map(self._landed, it.landed), *map(_usage, it.usage)]
        return f", with {'; '.join(parts)}" if parts else ""

    def _landed(self, it: r.Landing) -> str:
        if isinstance(it, r.CheckpointMade):
            return f"checkpoint {shown(it.name)}, version {it.version}"
        if isinstance(it, r.CheckpointDropped):
            return f"checkpoint {shown(it.name)}, version {it.version}, deleted"
        if isinstance(it, r.ArtifactSaved):
            return f"artifact {shown(it.name)}, version {it.version}, {size(it.size)}"
        if isinstance(it, r.ArtifactDropped):
            return f"artifact {shown(it.name)}, version {it.version}, deleted"
        if isinstance(it, r.Happened):
            return f"event {clean(it.kind)} {self._value(it.value)}"
        if isinstance(it, r.WorkflowMade):
            return f"workflow {shown(it.name)}, version {it.version}, {counted(len(it.steps), 'step')}"
        if isinstance(it, r.WorkflowMoved):
            return f"workflow {shown(it.name)}: step {clean(it.step)} {it.standing.status}"
        if isinstance(it, r.SignalSent):
            return f"event {shown(it.name)} sent to run {shown(it.run)}: {self._value(it.value)}"
        if isinstance(it, r.OrderGiven):
            return f"{it.order} of the run of stream {it.stream}, by {clean(it.by)}"
        if isinstance(it, r.TaskQueued):
            return f"run {shown(it.run)} of task {clean(it.task)} queued in {shown(it.queue)}"
        if isinstance(it, r.TaskAgain):
            return f"run {shown(it.run)} queued again, says {clean(it.by)}"
        if isinstance(it, r.ThreadPut):
            return f"checkpoint {clean(it.id)} of thread {shown(it.thread)}"
        if isinstance(it, r.ThreadWrote):
            return f"{counted(len(it.writes), 'write')} of task {clean(it.task)} in thread {shown(it.thread)}"
        if isinstance(it, r.ThreadDropped):
            gone = counted(len(it.points), "checkpoint") + " of " if it.points else ""
            return f"{gone}thread {shown(it.thread)} deleted"
        key = f"agent's state[{shown(it.space)}][{shown(it.key)}]"
        return f"{key} = {self._value(it.value)}" if it.value else f"{key} deleted"

    def _write(self, write: r.Write) -> str:
        if write.op == r.Op.DELETE:
            return f"state[{shown(write.key)}] deleted"
        if write.op == r.Op.PIN:
            return f"message {write.position} {write.key}ned"
        if write.op == r.Op.COMPACT and write.key:
            return "messages no longer compacted"
        value = self._value(write.value)
        if write.op == r.Op.COMPACT:
            return f"messages before {write.position} compacted: {value}"
        if write.op == r.Op.SET:
            return f"state[{shown(write.key)}] = {value}"
        return f"message {value}" if write.op == r.Op.MESSAGE else f"event {clean(write.key)} {value}"

    def started(self, it: r.RunStarted) -> str:
        return f"started in {clean(str(it.holder))}, input {self._value(it.input)}"

    def forked(self, it: r.Forked) -> str:
        given = f", input {self._value(it.input)}" if it.input else ""
        others = [f"entry {one.seq} -> {self._value(one.result)}" for one in it.overrides]
        return f"forked from run {clean(it.of)} at entry {it.cut}{given}{''.join(f', {one}' for one in others)}"

    def undone(self, it: r.Undone) -> str:
        kept = f", {counted(len(it.kept), 'effect')} kept" if it.kept else ""
        by = f" by {clean(it.by)}" if it.by else ""
        return f"{counted(it.steps, 'step')} undone{by}: as it was after entry {it.to}{kept}"

    def resumed(self, it: r.RunResumed) -> str:
        return f"resumed in {clean(str(it.holder))}"

    def step_done(self, it: r.StepDone) -> str:
        return f"step {_call(it.call)} -> {self._value(it.result)} in {_took(it.took_us)}{self._with(it)}"

    def step_failed(self, it: r.StepFailed) -> str:
        return f"step {_call(it.call)} failed: {clean(it.text)}"

    def attempt_failed(self, it: r.AttemptFailed) -> str:
        return f"{_call(it.call)}: attempt {it.attempt} failed: {self._value(it.error)}"

    def intended(self, it: r.EffectIntended) -> str:
        return f"effect {_call(it.call)} begins, key {clean(it.key)}, arguments {self._value(it.arguments)}"

    def again(self, it: r.EffectAgain) -> str:
        return f"effect {self._effect(it.intent)} begins again: {clean(it.reason)}"

    def effect_done(self, it: r.EffectDone) -> str:
        who = {"body": f"in {_took(it.took_us)}", "check": "says its check"}.get(it.how, f"says {clean(it.note)}")
        result = f"effect {self._effect(it.intent)} -> {self._value(it.result)} {who}"
        return result + self._with(it)

    def effect_failed(self, it: r.EffectFailed) -> str:
        return f"effect {self._effect(it.intent)} {'given up' if it.final else 'did not happen'}: {clean(it.text)}"

    def doubted(self, it: r.EffectDoubted) -> str:
        return f"effect {self._effect(it.intent)} in doubt: {clean(it.text)}"

    def item(self, it: r.ItemDone) -> str:
        return f"item {clean(it.scope.rstrip('/'))} done{self._with(it)}"

    def wrote(self, it: r.Wrote) -> str:
        return "; ".join([*map(self._landed, it.landed), *map(_usage, it.usage)]) or self._write(it.write)

    def replayed(self, it: r.Replayed) -> str:
        steps = counted(sum(one.steps for one in it.saved), "step")
        called = [_usage(one.usage) for one in it.saved if one.usage.calls]
        spared = "; ".join([_took(sum(one.took_us for one in it.saved)), *called])
        return f"went on past {steps} without running them again: {spared}"

    def remembered(self, it: r.MemoryKept) -> str:
        about = f" about {shown(it.about)}" if it.about else ""
        return f"{it.kind} memory {it.id}{about}: {self._value(it.value)}"

    def wait_ended(self, it: r.WaitEnded) -> str:
        by = f", says {clean(it.by)}" if it.by else ""
        return f"{_ENDS[it.how]} {self._value(it.value)}{by}" if it.value else _ENDS[it.how]

    def finished(self, it: r.RunFinished) -> str:
        return f"finished, result {self._value(it.result)}" if it.result else "finished, its result was erased"


_WAITS = {"ask": "asks: ", "approve": "asks: ", "event": "waits for ", "sleep": "sleeps ", "run": "waits for "}
_ENDS = {
    "answer": "answer",
    "refused": "an answer that does not fit:",
    "withdrawn": "not asked any more by the code",
    "event": "event comes:",
    "time": "wakes up",
    "timeout": "nothing came in time",
    "finished": "it has finished:",
    "failed": "it has failed:",
    "cancelled": "it was cancelled",
}
_WORDS: dict[type[r.Record], Callable[[_Teller, Any], str]] = {
    r.RunStarted: _Teller.started,
    r.RunResumed: _Teller.resumed,
    r.Forked: _Teller.forked,
    r.Undone: _Teller.undone,
    r.RunFinished: _Teller.finished,
    r.RunFailed: lambda teller, it: f"failed{', is tried again' if it.again_at else ''}: {clean(it.text)}",
    r.TaskParked: lambda teller, it: "parked: its worker has left it",
    TaskTried: lambda teller, it: "tried with no other suspect beside it: workers have died here",
    r.MemoryKept: _Teller.remembered,
    r.MemorySeen: lambda teller, it: f"memory {it.id} once more",
    r.MemoryWithdrawn: lambda teller, it: f"{_memories(it.ids)} withdrawn by {clean(it.by)}: {clean(it.reason)}",
    r.MemoryForgotten: lambda teller, it: f"{_memories(it.ids)} forgotten by {clean(it.by)}: {clean(it.reason)}",
    r.RunInterrupted: lambda teller, it: f"interrupted: {clean(it.reason)}",
    r.RunCancelled: lambda teller, it: f"cancelled {clean(told_by(it))}",
    r.RunPaused: lambda teller, it: f"paused {clean(told_by(it))}",
    r.RunReleased: lambda teller, it: f"may go on, says {clean(told_by(it).removeprefix('by '))}",
    r.CleanupBegan: lambda teller, it: f"cleans up: cancelled {clean(told_by(it))}",
    r.StepDone: _Teller.step_done,
    r.StepFailed: _Teller.step_failed,
    r.AttemptFailed: _Teller.attempt_failed,
    r.EffectIntended: _Teller.intended,
    r.EffectAgain: _Teller.again,
    r.EffectDone: _Teller.effect_done,
    r.EffectFailed: _Teller.effect_failed,
    r.EffectDoubted: _Teller.doubted,
    r.ItemDone: _Teller.item,
    r.Wrote: _Teller.wrote,
    r.Spent: lambda teller, it: f"spent on what did not land: {'; '.join(map(_usage, it.usage))}",
    r.Replayed: _Teller.replayed,
    r.QuestionAsked: lambda teller, it: f"asks: {clean(it.text)}",
    r.WaitBegan: lambda teller, it: f"{_WAITS[it.kind]}{clean(it.text)}",
    r.WaitEnded: _Teller.wait_ended,
    r.Folded: lambda teller, it: f"entries up to {it.upto} were folded: archive {clean(it.archive)}",
    r.QuestionClosed: lambda teller, it: f"answer taken: {clean(it.verdict)}",
}
