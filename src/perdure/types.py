"""What calls return, by name: for annotations.

from perdure.types import RunInfo, Workflow
"""

from __future__ import annotations

from .aio.workflows import AsyncWorkflow
from .aio.workspace import AsyncWorkspace
from .artifacts import ArtifactInfo, ArtifactUsage
from .artifacts.reader import ArtifactReader
from .branches.comparing import RunDiff, StepChange
from .branches.forks import Fork
from .checkpoints import CheckpointInfo
from .codec.restored import Restored
from .context.compacting import Compaction
from .context.shown import Context
from .events.reading import Event
from .handoff import Handoff
from .handoff.desk import AgentHandoff
from .handoff.progress import Progress
from .memory.found import Memory, Recalled
from .orders import RunOrder
from .retention import GcReport
from .run.history import Stays
from .run.undoing import Undo
from .runs import EffectInDoubt, Question, RunInfo, RunSummary
from .state import StateVersion
from .sync.workflows import Workflow
from .sync.workspace import Workspace
from .trees.diff import Change
from .usage import Savings, Usage
from .workflows.plan import WorkflowStep
from .workspace.boot import Bootstrap
from .workspace.documents import FileVersion
from .workspace.syncing import Synced

__all__ = [
    "AgentHandoff",
    "ArtifactInfo",
    "ArtifactReader",
    "ArtifactUsage",
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
    "Handoff",
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
    "Undo",
    "Usage",
    "Workflow",
    "WorkflowStep",
    "Workspace",
]
