"""The entries of the journal as frozen records, one class per kind.

The numbers of kinds and the order of fields are the stored format. New fields go to the end with a default, so that old
entries stay readable; newer ones are refused (`StoreTooNew`). `journal/project.py` and `run/ledger.py` apply entries.
"""

from __future__ import annotations

import re
from enum import IntEnum

import msgspec

from perdure.errors import JournalDamaged, StoreTooNew
from perdure.platform.process import Holder
from perdure.records import (
    base,
    compaction,
    erasure,
    forks,
    memories,
    orders,
    stores,
    tasks,
    threads,
    versions,
    waits,
    workflows,
)

SALT_BYTES = 16
"""An entry's body begins with this many random bytes, so that the digest of an erased body reveals nothing."""

Record = base.Record
StepStatus = workflows.StepStatus
StepState = workflows.StepState
PlannedStep = workflows.PlannedStep
WorkflowMade = workflows.WorkflowMade
WorkflowMoved = workflows.WorkflowMoved
RunStatus = orders.RunStatus
Order = orders.Order
OrderGiven = orders.OrderGiven
RunCancelledEntry = orders.RunCancelledEntry
RunPausedEntry = orders.RunPausedEntry
RunReleased = orders.RunReleased
CleanupBegan = orders.CleanupBegan
TaskQueued = tasks.TaskQueued
TaskAgain = tasks.TaskAgain
TaskParked = tasks.TaskParked
TaskTried = tasks.TaskTried
WakeCondition = tasks.WakeCondition
ThreadPut = threads.ThreadPut
ThreadWrote = threads.ThreadWrote
ThreadDropped = threads.ThreadDropped
CheckpointMade = versions.CheckpointMade
CheckpointDropped = versions.CheckpointDropped
ArtifactSaved = versions.ArtifactSaved
ArtifactDropped = versions.ArtifactDropped
MemoryKept = memories.MemoryKept
MemorySeen = memories.MemorySeen
MemoryWithdrawn = memories.MemoryWithdrawn
MemoryForgotten = memories.MemoryForgotten
ModelUsage = compaction.ModelUsage
SavedWork = compaction.SavedWork
CarriedState = compaction.CarriedState
CompactionFloor = compaction.CompactionFloor
StreamCompacted = compaction.StreamCompacted
Forked = forks.Forked
RunErased = erasure.RunErased
Undone = forks.Undone
ReplayDiffered = forks.ReplayDiffered
AgentLeft = stores.AgentLeft
AgentArrived = stores.AgentArrived
CallIdentity = waits.CallIdentity
QuestionAsked = waits.QuestionAsked
QuestionClosed = waits.QuestionClosed
Answered = waits.Answered
WaitBegan = waits.WaitBegan
WaitEnded = waits.WaitEnded


class WriteOp(IntEnum):
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
    VALUE = 10
    """A time, a random number or another value that replay must see again; not part of the run's data."""
    THREAD = 11
    """A key of the thread's state has another value, or none when `value` is empty."""


class RunWrite(Record, frozen=True):
    """One write to the run's own data; `value` is a packed value, `position` orders messages.

    A PIN concerns the message at its `position`; a COMPACT replaces the messages before it by its value.
    """

    op: WriteOp
    key: str
    value: bytes = b""
    position: int = 0
    version: int = 0  # of an event's schema; 0 if its kind has none


class StateChange(Record, frozen=True, tag=1):
    """A key of an agent's state was set, or deleted if `value` is empty.

    Versions count per key, revisions per namespace; they order the writes of many streams.
    """

    owner: int  # the stream of the agent
    space: str
    key: str
    version: int
    revision: int
    value: bytes = b""
    expires: int = 0
    """When the key expires, in milliseconds since 1970; 0 means never."""
    created: int = 0
    """When the key was created; 0 means by this change."""
    lasts: int = 0
    """Sliding expiry in milliseconds after the last read; 0 means none."""
    since: int = 0
    """For a change that only moves `expires` after a read: when the value was set. It makes no new version."""


class EventAppended(Record, frozen=True, tag=6):
    """An event of an agent; the `key` of an EVENT write is its `kind`."""

    owner: int
    kind: str
    value: bytes
    version: int = 0
    """The version of its schema; 0 if the kind has none."""
    run: int = 0
    """The stream of the enclosing run, if any."""


class SignalSent(Record, frozen=True, tag=30):
    """A signal that a run of the agent may wait for, now or later. Numbered per run and name."""

    owner: int  # the stream of the agent
    run: str
    name: str
    number: int
    value: bytes
    by: str


AgentChange = (
    StateChange
    | CheckpointMade
    | CheckpointDropped
    | ArtifactSaved
    | ArtifactDropped
    | EventAppended
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
"""A change of the agent by a step, an effect, an item or a call outside of them; the tag tells the kind."""


LANDED_PLACE = 1 << 20
"""Events are addressed by their place in an entry: writes count from 0, agent changes from here."""


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
    """The name of the task, if the run belongs to one."""
    lost: stores.EntriesLost | None = None


class RunResumed(Record, frozen=True):
    fence: int
    holder: Holder
    booted_ms: int
    """The boot clock of the holder's host, which cannot be set."""
    lost: stores.EntriesLost | None = None
    before: str = ""
    """What became of the holder before: it "released" the lease, is "dead", or its lease "expired"."""


class RunFinishedEntry(Record, frozen=True):
    result: bytes  # packed; empty if it was erased, see `remains`


class RunFailed(Record, frozen=True):
    error: bytes
    text: str
    cause: int = 0
    """The number of the recorded failure whose exception left the run; 0 if it was not recorded."""
    again_at: int = 0
    attempt: int = 0
    """When a worker tries it again, in milliseconds since 1970, and how often it was tried; 0 is not by itself."""


class RunInterrupted(Record, frozen=True):
    reason: str


class StepDone(Record, frozen=True):
    call: CallIdentity
    since: int
    """The number of the last entry when the call began; it orders the calls."""
    took_us: int
    result: bytes
    writes: tuple[RunWrite, ...] = ()
    landed: tuple[AgentChange, ...] = ()
    usage: tuple[ModelUsage, ...] = ()


class AttemptFailed(Record, frozen=True):
    """A failed attempt that will be retried, not before `next_at`."""

    call: CallIdentity
    attempt: int
    error: bytes
    next_at: int


class StepFailedEntry(Record, frozen=True):
    """The last attempt failed too."""

    call: CallIdentity
    since: int
    error: bytes
    text: str
    result: bytes = b""
    """The result of a body that succeeded but whose writes lost a race; or what could be kept of an unstorable one."""
    unstorable: int | None = None
    """The version of a step whose result could not be stored. It stays failed until somebody retries the run."""


class EffectIntended(Record, frozen=True):
    call: CallIdentity
    since: int
    key: str
    arguments: bytes
    fence: int
    timeout_ms: int = 0
    boot_ms: int = 0
    """The boot clock of the holder's host before the body could start; 0 if unknown."""
    lost: str = ""  # `record` if its first entry was lost, `key` if its key is unknown too


class EffectAgain(Record, frozen=True):
    """The body starts again with the same key: this entry renews the intent."""

    intent: int
    reason: str
    fence: int
    boot_ms: int = 0
    request: str = ""  # of a client: identifies its request, which may be repeated


class EffectDone(Record, frozen=True):
    intent: int
    took_us: int
    how: str  # the source: `body`, `check` or `answer`
    result: bytes
    writes: tuple[RunWrite, ...] = ()
    note: str = ""
    landed: tuple[AgentChange, ...] = ()
    usage: tuple[ModelUsage, ...] = ()


class EffectFailed(Record, frozen=True):
    """Nothing happened (`NotDone`), or a person decided to give up (`final`)."""

    intent: int
    error: bytes
    text: str
    final: bool = False


class EffectDoubted(Record, frozen=True):
    """The body raised and its outcome is unknown; or it happened, and its result is lost."""

    intent: int
    error: bytes
    text: str
    happened: bool = False


class ItemDone(Record, frozen=True):
    scope: str  # path of the item's own scope
    writes: tuple[RunWrite, ...] = ()
    landed: tuple[AgentChange, ...] = ()
    usage: tuple[ModelUsage, ...] = ()


class Wrote(Record, frozen=True):
    """A write of the run outside any step or item."""

    scope: str
    write: RunWrite
    landed: tuple[AgentChange, ...] = ()
    usage: tuple[ModelUsage, ...] = ()
    instead: int = 0
    """With `on_change="rerun"`: which operation of its scope, kind and key this replaces, from 1; 0 for a new one."""


class Landed(Record, frozen=True):
    """Agent changes outside any step, in the stream of the process that makes them."""

    landed: tuple[AgentChange, ...]


class ChangesCarried(Record, frozen=True):
    """Agent changes that an erased entry of this run had made at a time: they outlast it."""

    at: int
    landed: tuple[AgentChange, ...]


class Spent(Record, frozen=True):
    """Usage of work that did not land: a failed attempt, a cancelled body, an abandoned item."""

    usage: tuple[ModelUsage, ...]


class Replayed(Record, frozen=True):
    """Work that a resumed run did not repeat; each call counts once per resume."""

    saved: tuple[SavedWork, ...]


class EntryKind(IntEnum):
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
    REPLAY_DIFFERED = 23
    RUN_ERASED = 24
    CHANGES_CARRIED = 25
    WAIT_BEGAN = 40
    WAIT_ENDED = 41
    STREAM_COMPACTED = 50
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
    EntryKind.AGENT_CREATED: AgentCreated,
    EntryKind.RUN_STARTED: RunStarted,
    EntryKind.RUN_RESUMED: RunResumed,
    EntryKind.RUN_FINISHED: RunFinishedEntry,
    EntryKind.RUN_FAILED: RunFailed,
    EntryKind.RUN_INTERRUPTED: RunInterrupted,
    EntryKind.STEP_DONE: StepDone,
    EntryKind.STEP_FAILED: StepFailedEntry,
    EntryKind.ATTEMPT_FAILED: AttemptFailed,
    EntryKind.EFFECT_INTENDED: EffectIntended,
    EntryKind.EFFECT_AGAIN: EffectAgain,
    EntryKind.EFFECT_DONE: EffectDone,
    EntryKind.EFFECT_FAILED: EffectFailed,
    EntryKind.EFFECT_DOUBTED: EffectDoubted,
    EntryKind.ITEM_DONE: ItemDone,
    EntryKind.WROTE: Wrote,
    EntryKind.QUESTION_ASKED: QuestionAsked,
    EntryKind.QUESTION_CLOSED: QuestionClosed,
    EntryKind.ANSWERED: Answered,
    EntryKind.LANDED: Landed,
    EntryKind.SPENT: Spent,
    EntryKind.REPLAYED: Replayed,
    EntryKind.REPLAY_DIFFERED: ReplayDiffered,
    EntryKind.RUN_ERASED: RunErased,
    EntryKind.CHANGES_CARRIED: ChangesCarried,
    EntryKind.WAIT_BEGAN: WaitBegan,
    EntryKind.WAIT_ENDED: WaitEnded,
    EntryKind.STREAM_COMPACTED: StreamCompacted,
    EntryKind.TASK_PARKED: TaskParked,
    EntryKind.TASK_TRIED: TaskTried,
    EntryKind.RUN_CANCELLED: RunCancelledEntry,
    EntryKind.RUN_PAUSED: RunPausedEntry,
    EntryKind.RUN_RELEASED: RunReleased,
    EntryKind.CLEANUP_BEGAN: CleanupBegan,
    EntryKind.FORKED: Forked,
    EntryKind.UNDONE: Undone,
    EntryKind.MEMORY_KEPT: MemoryKept,
    EntryKind.MEMORY_SEEN: MemorySeen,
    EntryKind.MEMORY_WITHDRAWN: MemoryWithdrawn,
    EntryKind.MEMORY_FORGOTTEN: MemoryForgotten,
    EntryKind.AGENT_LEFT: AgentLeft,
    EntryKind.AGENT_ARRIVED: AgentArrived,
}
KIND_OF: dict[type[Record], int] = {record: int(kind) for kind, record in CLASS_OF.items()}
_KIND_NAMES = {record: EntryKind(kind).name.title().replace("_", "") for kind, record in CLASS_OF.items()}
# Made at import: a thread that uses a class while another one makes its first decoder crashes the interpreter.
_DECODERS = {kind: msgspec.msgpack.Decoder(record) for kind, record in CLASS_OF.items()}


AFTER_END = frozenset({EntryKind.STREAM_COMPACTED, EntryKind.RUN_ERASED, EntryKind.CHANGES_CARRIED})
"""Entries that may follow the end of a run."""


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a stream, read back."""

    seq: int
    at: int
    record: Record

    @property
    def kind(self) -> str:
        """The name of the entry's kind, as `--json` shows it: `StepDone`, `RunFinished`."""
        return _KIND_NAMES[type(self.record)]


def remains(kind: int) -> Record | None:
    """Return what remains of an erased entry: for the last entry of a run, that the run has finished."""
    return RunFinishedEntry(b"") if kind == EntryKind.RUN_FINISHED else None


_NEWER = re.compile(r"Expected `array` of at most length|Invalid value \d+|Invalid enum value")
"""msgspec's errors for a record with unknown fields, and for a part or a write of unknown kind."""


def decode(kind: int, body: bytes) -> Record:
    """Decode the record in an entry's body."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise StoreTooNew(f"an entry is of kind {kind}, and this version of Perdure knows 1 to {max(_DECODERS)}")
    try:
        return decoder.decode(body[SALT_BYTES:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError) and _NEWER.match(str(error)):
            raise StoreTooNew(f"an entry of kind {kind} has more in it than this version of Perdure knows") from error
        raise JournalDamaged(f"an entry of kind {kind} cannot be read: {error}") from error
