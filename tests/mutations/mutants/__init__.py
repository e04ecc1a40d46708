"""The list, by what is broken."""

from __future__ import annotations

from tests.mutations.mutants.adapters import OF_ADAPTERS
from tests.mutations.mutants.artifacts import ARTIFACTS
from tests.mutations.mutants.bodies import BODIES
from tests.mutations.mutants.branches import BRANCHES
from tests.mutations.mutants.changes import CHANGES
from tests.mutations.mutants.commands import OF_COMMANDS
from tests.mutations.mutants.context import OF_CONTEXTS
from tests.mutations.mutants.crashing import CRASHING
from tests.mutations.mutants.details import DETAILS
from tests.mutations.mutants.effects import EFFECTS
from tests.mutations.mutants.events import OF_EVENTS
from tests.mutations.mutants.files import OF_FILES
from tests.mutations.mutants.holders import HOLDERS
from tests.mutations.mutants.hostile import OF_HOSTILE
from tests.mutations.mutants.index import OF_INDEX
from tests.mutations.mutants.journal import JOURNAL
from tests.mutations.mutants.memory import MEMORY
from tests.mutations.mutants.money import MONEY
from tests.mutations.mutants.moving import OF_MOVING
from tests.mutations.mutants.orders import OF_ORDERS
from tests.mutations.mutants.recall import OF_RECALL
from tests.mutations.mutants.retention import OF_RETENTION
from tests.mutations.mutants.runs import RUNS
from tests.mutations.mutants.state import OF_CHECKPOINTS, OF_STATE
from tests.mutations.mutants.store import STORE
from tests.mutations.mutants.tasks import OF_TASKS
from tests.mutations.mutants.threads import THREADS
from tests.mutations.mutants.values import VALUES
from tests.mutations.mutants.verify import VERIFY
from tests.mutations.mutants.waiting import WAITING
from tests.mutations.mutants.workers import OF_WORKERS
from tests.mutations.mutants.workflows import OF_WORKFLOWS
from tests.mutations.mutants.workspace import OF_WORKSPACES

MUTANTS = (
    *RUNS,
    *DETAILS,
    *EFFECTS,
    *BODIES,
    *HOLDERS,
    *JOURNAL,
    *VERIFY,
    *OF_STATE,
    *OF_CHECKPOINTS,
    *OF_INDEX,
    *OF_EVENTS,
    *OF_RETENTION,
    *ARTIFACTS,
    *OF_WORKFLOWS,
    *STORE,
    *OF_HOSTILE,
    *VALUES,
    *MONEY,
    *WAITING,
    *CHANGES,
    *CRASHING,
    *OF_WORKERS,
    *OF_ORDERS,
    *OF_TASKS,
    *THREADS,
    *MEMORY,
    *OF_RECALL,
    *BRANCHES,
    *OF_COMMANDS,
    *OF_ADAPTERS,
    *OF_WORKSPACES,
    *OF_CONTEXTS,
    *OF_MOVING,
    *OF_FILES,
)
