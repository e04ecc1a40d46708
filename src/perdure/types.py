"""The types that calls return, for annotations.

from perdure.types import RunInfo, Workflow
"""

from __future__ import annotations

from perdure.api.aio.conversation import AsyncThread, AsyncTurn
from perdure.api.aio.workflows import AsyncWorkflow
from perdure.api.aio.workspace import AsyncWorkspace
from perdure.api.sync.conversation import Thread, Turn
from perdure.api.sync.workflows import Workflow
from perdure.api.sync.workspace import Workspace
from perdure.data.artifacts import ArtifactInfo, ArtifactUsage
from perdure.data.artifacts.reader import ArtifactReader
from perdure.data.checkpoints import CheckpointInfo
from perdure.data.events.read import Event
from perdure.data.state import StateVersion
from perdure.journal.trees.diff import Change
from perdure.maintenance.retention import GcReport
from perdure.memory.results import Memory, Recalled
from perdure.presence.context.compact import Compaction
from perdure.presence.context.context import Context
from perdure.presence.handoff import HandoffBrief
from perdure.presence.handoff.pending import AgentHandoff
from perdure.presence.handoff.progress import Progress
from perdure.presence.workspace.bootstrap import Bootstrap
from perdure.presence.workspace.documents import FileVersion
from perdure.presence.workspace.sync import Synced
from perdure.run.branches.compare import RunDiff, StepChange
from perdure.run.branches.fork import Fork
from perdure.run.history import Stays
from perdure.run.listing import EffectInDoubt, Question, RunInfo, RunSummary
from perdure.run.orders import RunOrder
from perdure.run.undo import Undo
from perdure.run.usage import Savings, Usage
from perdure.values.codec.restored import Restored
from perdure.work.threads.history import TurnInfo
from perdure.work.workflows.plan import WorkflowStep

__all__ = [
    "AgentHandoff",
    "ArtifactInfo",
    "ArtifactReader",
    "ArtifactUsage",
    "AsyncThread",
    "AsyncTurn",
    "AsyncWorkflow",
    "AsyncWorkspace",
    "Bootstrap",
    "Change",
    "CheckpointInfo",
    "Compaction",
    "Context",
    "EffectInDoubt",
    "Event",
    "FileVersion",
    "Fork",
    "GcReport",
    "HandoffBrief",
    "Memory",
    "Progress",
    "Question",
    "Recalled",
    "Restored",
    "RunDiff",
    "RunInfo",
    "RunOrder",
    "RunSummary",
    "Savings",
    "StateVersion",
    "Stays",
    "StepChange",
    "Synced",
    "Thread",
    "Turn",
    "TurnInfo",
    "Undo",
    "Usage",
    "Workflow",
    "WorkflowStep",
    "Workspace",
]
