"""Perdure makes AI agents survive: kill the process anywhere, and it continues from its last durable moment.

from perdure import Agent

agent = Agent("travel")

@agent.step
def search(city): ...

with agent.run("trip-42") as run:
    flights = search("NYC")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from .codec import stored, upcaster
from .errors import (
    Abandoned,
    AgentExists,
    AgentMoved,
    AgentNotFound,
    AgentProblem,
    AgentRetired,
    AlreadyAnswered,
    ArchiveDamaged,
    ArtifactDamaged,
    ArtifactNotFound,
    BadEmbedder,
    BudgetExceeded,
    CallProblem,
    CheckpointNotFound,
    ContextTooSmall,
    CorruptValue,
    Diverged,
    EffectInsideStep,
    EventInvalid,
    EventsFolded,
    ExportDamaged,
    ExportUnsigned,
    HistoryFolded,
    InDoubt,
    InputChanged,
    JournalDamaged,
    LeaseLost,
    MemoryNotFound,
    NotAwaited,
    NotDone,
    NotDurable,
    NotDurableWarning,
    NothingCompacted,
    NothingToAnswer,
    NothingToRetry,
    NotStorable,
    PathRefused,
    PerdureError,
    PointNotFound,
    RefNotFound,
    ResultErased,
    RunBusy,
    RunCancelled,
    RunExists,
    RunFinished,
    RunFolded,
    RunNotFinished,
    RunNotFound,
    RunNotPaused,
    RunPaused,
    RunPoisoned,
    RunProblem,
    RunStopped,
    RunWaiting,
    RunWasCancelled,
    RunWasPaused,
    StepClaimed,
    StepFailed,
    StepNotReady,
    StepTimeout,
    StorageFull,
    StoreBusy,
    StoreClosed,
    StoreFenced,
    StoreForked,
    StoreMoved,
    StoreMovedWarning,
    StoreProblem,
    StoreReadOnly,
    StoreRolledBack,
    StoreTampered,
    StoreTooNew,
    StoreTypeInvalid,
    StoreUnavailable,
    StoreUrlInvalid,
    TaskFailed,
    TaskNotFound,
    ThreadConflict,
    ThreadDeleted,
    ThreadNotFound,
    UnknownAction,
    UnknownType,
    ValueProblem,
    ValueTooLarge,
    VersionConflict,
    WaitTimeout,
    WorkflowBlocked,
    WorkflowChanged,
    WorkflowInvalid,
    WorkflowNotFound,
    WorkflowProblem,
    WorkspaceNotFound,
    WorkspaceProblem,
    WriteInsideUpdate,
    WrongAgent,
    WrongPassphrase,
    WrongStore,
)
from .run.doubt import Done, Unknown
from .run.functions import Fence, Key
from .sync import Agent, Run

if TYPE_CHECKING:
    from . import kinds
    from .aio import AsyncAgent, AsyncRun
    from .events.reading import Event

__version__ = "0.1.0"

__all__ = [
    "Abandoned",
    "Agent",
    "AgentExists",
    "AgentMoved",
    "AgentNotFound",
    "AgentProblem",
    "AgentRetired",
    "AlreadyAnswered",
    "ArchiveDamaged",
    "ArtifactDamaged",
    "ArtifactNotFound",
    "AsyncAgent",
    "AsyncRun",
    "BadEmbedder",
    "BudgetExceeded",
    "CallProblem",
    "CheckpointNotFound",
    "ContextTooSmall",
    "CorruptValue",
    "Diverged",
    "Done",
    "EffectInsideStep",
    "Event",
    "EventInvalid",
    "EventsFolded",
    "ExportDamaged",
    "ExportUnsigned",
    "Fence",
    "HistoryFolded",
    "InDoubt",
    "InputChanged",
    "JournalDamaged",
    "Key",
    "LeaseLost",
    "MemoryNotFound",
    "NotAwaited",
    "NotDone",
    "NotDurable",
    "NotDurableWarning",
    "NotStorable",
    "NothingCompacted",
    "NothingToAnswer",
    "NothingToRetry",
    "PathRefused",
    "PerdureError",
    "PointNotFound",
    "RefNotFound",
    "ResultErased",
    "Run",
    "RunBusy",
    "RunCancelled",
    "RunExists",
    "RunFinished",
    "RunFolded",
    "RunNotFinished",
    "RunNotFound",
    "RunNotPaused",
    "RunPaused",
    "RunPoisoned",
    "RunProblem",
    "RunStopped",
    "RunWaiting",
    "RunWasCancelled",
    "RunWasPaused",
    "StepClaimed",
    "StepFailed",
    "StepNotReady",
    "StepTimeout",
    "StorageFull",
    "StoreBusy",
    "StoreClosed",
    "StoreFenced",
    "StoreForked",
    "StoreMoved",
    "StoreMovedWarning",
    "StoreProblem",
    "StoreReadOnly",
    "StoreRolledBack",
    "StoreTampered",
    "StoreTooNew",
    "StoreTypeInvalid",
    "StoreUnavailable",
    "StoreUrlInvalid",
    "TaskFailed",
    "TaskNotFound",
    "ThreadConflict",
    "ThreadDeleted",
    "ThreadNotFound",
    "Unknown",
    "UnknownAction",
    "UnknownType",
    "ValueProblem",
    "ValueTooLarge",
    "VersionConflict",
    "WaitTimeout",
    "WorkflowBlocked",
    "WorkflowChanged",
    "WorkflowInvalid",
    "WorkflowNotFound",
    "WorkflowProblem",
    "WorkspaceNotFound",
    "WorkspaceProblem",
    "WriteInsideUpdate",
    "WrongAgent",
    "WrongPassphrase",
    "WrongStore",
    "errors",
    "kinds",
    "stored",
    "upcaster",
]


if not TYPE_CHECKING:  # for type checkers every name would be there, also a mistyped one

    def __getattr__(name: str) -> Any:
        # What most scripts never use is loaded when it is asked for.
        if name in ("AsyncAgent", "AsyncRun"):
            from . import aio

            return getattr(aio, name)
        if name == "Event":
            from .events.reading import Event

            return Event
        if name == "kinds":
            import perdure.kinds as found  # `from . import` would ask here again

            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
