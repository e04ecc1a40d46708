"""The entries of the journal: what happened, as frozen records, one class per kind.

Numbers of kinds and the order of fields are the stored format: they only grow at the end, with a default, so that old
entries open; later ones are refused (`StoreTooNew`). `fold.py` says what each does to views, `ledger.py` to a run.
"""

from __future__ import annotations

import re
from enum import IntEnum

import msgspec

from . import (
    fold_records,
    fork_records,
    house_records,
    memory_records,
    order_records,
    plan_records,
    task_records,
    thread_records,
    version_records,
)
from .errors import JournalDamaged, StoreTooNew
from .process import Holder

SALT_BYTES = 16
"""An entry's body begins with that many random bytes, so that the digest of an erased one tells nothing."""

Record = plan_records.Record
StepStatus = plan_records.StepStatus
Standing = plan_records.Standing
PlannedStep = plan_records.PlannedStep
WorkflowMade = plan_records.WorkflowMade
WorkflowMoved = plan_records.WorkflowMoved
Status = order_records.Status
Order = order_records.Order
OrderGiven = order_records.OrderGiven
RunCancelled = order_records.RunCancelled
RunPaused = order_records.RunPaused
RunReleased = order_records.RunReleased
CleanupBegan = order_records.CleanupBegan
TaskQueued = task_records.TaskQueued
TaskAgain = task_records.TaskAgain
TaskParked = task_records.TaskParked
TaskTried = task_records.TaskTried
Want = task_records.Want
ThreadPut = thread_records.ThreadPut
ThreadWrote = thread_records.ThreadWrote
ThreadDropped = thread_records.ThreadDropped
CheckpointMade = version_records.CheckpointMade
CheckpointDropped = version_records.CheckpointDropped
ArtifactSaved = version_records.ArtifactSaved
ArtifactDropped = version_records.ArtifactDropped
MemoryKept = memory_records.MemoryKept
MemorySeen = memory_records.MemorySeen
MemoryWithdrawn = memory_records.MemoryWithdrawn
MemoryForgotten = memory_records.MemoryForgotten
Usage = fold_records.Usage
Saved = fold_records.Saved
Carried = fold_records.Carried
CarriedUsage = fold_records.CarriedUsage
CarriedSavings = fold_records.CarriedSavings
Floor = fold_records.Floor
Folded = fold_records.Folded
Forked = fork_records.Forked
Undone = fork_records.Undone
AgentLeft = house_records.AgentLeft
AgentArrived = house_records.AgentArrived
Sealed = house_records.Sealed


class Op(IntEnum):
    """What a write inside a run does."""

    SET = 1
    DELETE = 2
    MESSAGE = 3
    EVENT = 4
    RESULT = 5
    CHECKPOINT = 6
    USAGE = 7
    PIN = 8
    COMPACT = 9


class Write(Record, frozen=True):
    """One write to the run's own data; `value` is a packed value, `position` orders messages.

    A PIN is about the message at its `position`; a COMPACT about those before it, and its value stands for them.
    """

    op: Op
    key: str
    value: bytes = b""
    position: int = 0
    version: int = 0  # of the schema of an event; 0 when its kind has none


class StateChange(Record, frozen=True, tag=1):
    """A key of an agent's state has another value, or none when `value` is empty.

    Versions are counted for each key, revisions for each namespace: they order what many streams write.
    """

    owner: int  # the stream of the agent
    space: str
    key: str
    version: int
    revision: int
    value: bytes = b""
    expires: int = 0
    """When it stops to be seen, in milliseconds since 1970; 0 is never."""
    created: int = 0
    """When the key was set that has been there ever since; 0 is by this change."""
    lasts: int = 0
    """Milliseconds for which it is to be seen after somebody has last read it; 0 when reading does not matter."""
    since: int = 0
    """Of a change that only moves `expires`, because somebody has read it: when the value was set. It is no version."""


class Happened(Record, frozen=True, tag=6):
    """Something that an agent notes; `key` of an EVENT write is its `kind`."""

    owner: int
    kind: str
    value: bytes
    version: int = 0
    """Of the schema; 0 when the kind has none."""
    run: int = 0
    """The stream of the run around it, if any."""


class SignalSent(Record, frozen=True, tag=30):
    """Something that a run of the agent may wait for, now or later. Numbered for each run and name."""

    owner: int  # the stream of the agent
    run: str
    name: str
    number: int
    value: bytes
    by: str


Landing = (
    StateChange
    | CheckpointMade
    | CheckpointDropped
    | ArtifactSaved
    | ArtifactDropped
    | Happened
    | WorkflowMade
    | WorkflowMoved
    | SignalSent
    | OrderGiven
    | TaskQueued
    | TaskAgain
    | ThreadPut
    | ThreadWrote
    | ThreadDropped
)
"""What a step, an effect, an item or a call in the open may write to the agent. Kinds are told apart by their tag."""


LANDED_PLACE = 1 << 20
"""Events are found by their place in an entry: its writes are counted from 0, what has landed with it from here."""


class Call(Record, frozen=True):
    """Which call of which function in which scope: what matching on resume compares."""

    scope: str
    name: str
    ident: bytes
    nth: int


class AgentCreated(Record, frozen=True):
    name: str
    public_key: bytes


class RunStarted(Record, frozen=True):
    agent: str
    run: str
    input: bytes
    input_digest: bytes
    parent: int
    fence: int
    holder: Holder
    task: str = ""
    """What it is a run of, if it is one of a task."""
    lost: house_records.Lost | None = None


class RunResumed(Record, frozen=True):
    fence: int
    holder: Holder
    booted_ms: int
    """By the boot clock of the holder's host, which nobody sets."""
    lost: house_records.Lost | None = None


class RunFinished(Record, frozen=True):
    result: bytes  # packed; empty when it was erased, see `remains`


class RunFailed(Record, frozen=True):
    error: bytes
    text: str
    cause: int = 0
    """Number of the recorded failure whose exception left the run; 0 when it was not a recorded one."""
    again_at: int = 0
    attempt: int = 0
    """When a worker tries it again, in milliseconds since 1970, and how often it was tried; 0 is not by itself."""


class RunInterrupted(Record, frozen=True):
    reason: str


class StepDone(Record, frozen=True):
    call: Call
    since: int
    """Number of the last entry when the call began: tells what was called after what."""
    took_us: int
    result: bytes
    writes: tuple[Write, ...] = ()
    landed: tuple[Landing, ...] = ()
    usage: tuple[Usage, ...] = ()


class AttemptFailed(Record, frozen=True):
    """A failed attempt that will be repeated, not before `next_at`."""

    call: Call
    attempt: int
    error: bytes
    next_at: int


class StepFailed(Record, frozen=True):
    """The last attempt failed too."""

    call: Call
    since: int
    error: bytes
    text: str
    result: bytes = b""
    """Of a body that ended well, and whose writes lost a race: it was paid for."""


class EffectIntended(Record, frozen=True):
    call: Call
    since: int
    key: str
    arguments: bytes
    fence: int
    timeout_ms: int = 0
    boot_ms: int = 0
    """By the boot clock of the holder's host, before the body could start; 0 when nobody has recorded it."""
    lost: str = ""  # `record` when its first entry was lost, `key` when nobody knows its key either


class EffectAgain(Record, frozen=True):
    """The body starts once more, with the same key: this entry renews the intent."""

    intent: int
    reason: str
    fence: int
    boot_ms: int = 0


class EffectDone(Record, frozen=True):
    intent: int
    took_us: int
    how: str  # who says so: `body`, `check` or `answer`
    result: bytes
    writes: tuple[Write, ...] = ()
    note: str = ""
    landed: tuple[Landing, ...] = ()
    usage: tuple[Usage, ...] = ()


class EffectFailed(Record, frozen=True):
    """Nothing happened (`NotDone`), or a person decided to give up (`final`)."""

    intent: int
    error: bytes
    text: str
    final: bool = False


class EffectDoubted(Record, frozen=True):
    """The body raised and nobody could say whether it had happened; or it did happen, and its result is lost."""

    intent: int
    error: bytes
    text: str
    happened: bool = False


class ItemDone(Record, frozen=True):
    scope: str  # path of the item's own scope
    writes: tuple[Write, ...] = ()
    landed: tuple[Landing, ...] = ()
    usage: tuple[Usage, ...] = ()


class Wrote(Record, frozen=True):
    """A write of the run in the open, outside of any step or item."""

    scope: str
    write: Write
    landed: tuple[Landing, ...] = ()
    usage: tuple[Usage, ...] = ()


class QuestionAsked(Record, frozen=True):
    about: int  # the entry that let the body start
    kind: str
    text: str


class QuestionClosed(Record, frozen=True):
    question: int
    verdict: str


class Answered(Record, frozen=True):
    """Goes to the stream of the process that answers: the run may be open elsewhere."""

    stream: int
    about: int
    verdict: str
    value: bytes
    by: str


class WaitBegan(Record, frozen=True):
    """The run waits: for a person, an event or a time. It is asked once, however often the run is resumed."""

    call: Call
    since: int
    kind: str
    """`ask`, `approve`, `event` or `sleep`."""
    text: str
    until: int = 0
    """When the wait ends by itself, in milliseconds since 1970; 0 is never."""
    choices: bytes = b""
    """The packed list of allowed answers, if they are limited."""


class WaitEnded(Record, frozen=True):
    wait: int
    """The entry that began it."""
    how: str
    """`answer`, `event`, `time` (of a sleep), `timeout`, or `refused` (the answer did not fit)."""
    value: bytes = b""
    by: str = ""
    number: int = 0
    """Of the event that was taken."""


class Landed(Record, frozen=True):
    """Writes to the agent in the open. Goes to the stream of the process that makes them."""

    landed: tuple[Landing, ...]


class Spent(Record, frozen=True):
    """Usage of what did not land: an attempt that failed, a body that was cancelled, an item that was left."""

    usage: tuple[Usage, ...]


class Replayed(Record, frozen=True):
    """A run that was opened again has gone past this without doing it again; each call once in each opening."""

    saved: tuple[Saved, ...]


class Kind(IntEnum):
    """The stored number of each kind of entry."""

    AGENT_CREATED = 1
    RUN_STARTED = 2
    RUN_RESUMED = 3
    RUN_FINISHED = 4
    RUN_FAILED = 5
    RUN_INTERRUPTED = 6
    STEP_DONE = 7
    STEP_FAILED = 8
    ATTEMPT_FAILED = 9
    EFFECT_INTENDED = 10
    EFFECT_AGAIN = 11
    EFFECT_DONE = 12
    EFFECT_FAILED = 13
    EFFECT_DOUBTED = 14
    ITEM_DONE = 15
    WROTE = 16
    QUESTION_ASKED = 17
    QUESTION_CLOSED = 18
    ANSWERED = 19
    LANDED = 20
    SPENT = 21
    REPLAYED = 22
    WAIT_BEGAN = 40
    WAIT_ENDED = 41
    FOLDED = 50
    TASK_PARKED = 60
    TASK_TRIED = 61
    RUN_CANCELLED = 65
    RUN_PAUSED = 66
    RUN_RELEASED = 67
    CLEANUP_BEGAN = 68
    FORKED = 70
    UNDONE = 71
    MEMORY_KEPT = 90
    MEMORY_SEEN = 91
    MEMORY_WITHDRAWN = 92
    MEMORY_FORGOTTEN = 93
    AGENT_LEFT = 98
    AGENT_ARRIVED = 99


CLASS_OF: dict[int, type[Record]] = {
    Kind.AGENT_CREATED: AgentCreated,
    Kind.RUN_STARTED: RunStarted,
    Kind.RUN_RESUMED: RunResumed,
    Kind.RUN_FINISHED: RunFinished,
    Kind.RUN_FAILED: RunFailed,
    Kind.RUN_INTERRUPTED: RunInterrupted,
    Kind.STEP_DONE: StepDone,
    Kind.STEP_FAILED: StepFailed,
    Kind.ATTEMPT_FAILED: AttemptFailed,
    Kind.EFFECT_INTENDED: EffectIntended,
    Kind.EFFECT_AGAIN: EffectAgain,
    Kind.EFFECT_DONE: EffectDone,
    Kind.EFFECT_FAILED: EffectFailed,
    Kind.EFFECT_DOUBTED: EffectDoubted,
    Kind.ITEM_DONE: ItemDone,
    Kind.WROTE: Wrote,
    Kind.QUESTION_ASKED: QuestionAsked,
    Kind.QUESTION_CLOSED: QuestionClosed,
    Kind.ANSWERED: Answered,
    Kind.LANDED: Landed,
    Kind.SPENT: Spent,
    Kind.REPLAYED: Replayed,
    Kind.WAIT_BEGAN: WaitBegan,
    Kind.WAIT_ENDED: WaitEnded,
    Kind.FOLDED: Folded,
    Kind.TASK_PARKED: TaskParked,
    Kind.TASK_TRIED: TaskTried,
    Kind.RUN_CANCELLED: RunCancelled,
    Kind.RUN_PAUSED: RunPaused,
    Kind.RUN_RELEASED: RunReleased,
    Kind.CLEANUP_BEGAN: CleanupBegan,
    Kind.FORKED: Forked,
    Kind.UNDONE: Undone,
    Kind.MEMORY_KEPT: MemoryKept,
    Kind.MEMORY_SEEN: MemorySeen,
    Kind.MEMORY_WITHDRAWN: MemoryWithdrawn,
    Kind.MEMORY_FORGOTTEN: MemoryForgotten,
    Kind.AGENT_LEFT: AgentLeft,
    Kind.AGENT_ARRIVED: AgentArrived,
}
KIND_OF: dict[type[Record], int] = {record: int(kind) for kind, record in CLASS_OF.items()}
_DECODERS = {kind: msgspec.msgpack.Decoder(record) for kind, record in CLASS_OF.items()}


class Event(msgspec.Struct, frozen=True, gc=False):
    """One entry of a stream, read back."""

    seq: int
    at: int
    record: Record


def remains(kind: int) -> Record | None:
    """What an entry says whose body was erased: of the last one of a run, that the run has finished."""
    return RunFinished(b"") if kind == Kind.RUN_FINISHED else None


_NEWER = re.compile(r"Expected `array` of at most length|Invalid value \d+|Invalid enum value")
"""What msgspec says of a record with more fields than we know, and of a part or a write of an unknown kind."""


def decode(kind: int, body: bytes) -> Record:
    """The record in an entry's body."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise StoreTooNew(f"an entry is of kind {kind}, and this version of Perdure knows 1 to {max(_DECODERS)}")
    try:
        return decoder.decode(body[SALT_BYTES:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError) and _NEWER.match(str(error)):
            raise StoreTooNew(f"an entry of kind {kind} has more in it than this version of Perdure knows") from error
        raise JournalDamaged(f"an entry of kind {kind} cannot be read: {error}") from error
