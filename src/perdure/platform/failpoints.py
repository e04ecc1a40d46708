"""Named places in the production code where a test may kill the process.

A commit site has four moments, so a process can be killed before it, inside its transaction (begun,
written) and after it. Nothing happens unless a test or `PERDURE_FAILPOINT` has armed something.

    PERDURE_FAILPOINT="effect.outcome:before"      SIGKILL at the first time
    PERDURE_FAILPOINT="step.done:written#3"        SIGKILL at the third time
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from enum import StrEnum


class Site(StrEnum):
    """Every place that commits. A unit of work cannot exist without one."""

    STORE_CREATE = "store.create"
    STORE_HOME = "store.home"
    AGENT_CREATE = "agent.create"
    STREAM = "stream.add"
    HEARTBEAT = "holder.heartbeat"
    RUN_CLAIM = "run.claim"
    RUN_END = "run.end"
    STEP_DONE = "step.done"
    STEP_FAILED = "step.failed"
    ATTEMPT_FAILED = "attempt.failed"
    EFFECT_INTENT = "effect.intent"
    EFFECT_AGAIN = "effect.again"
    EFFECT_OUTCOME = "effect.outcome"
    EFFECT_FAILED = "effect.failed"
    EFFECT_DOUBT = "effect.doubt"
    ITEM_DONE = "item.done"
    WRITE = "run.write"
    CREDIT = "run.credit"
    QUESTION = "run.question"
    ANSWER = "run.answer"
    WAIT_BEGIN = "wait.begin"
    WAIT_END = "wait.end"
    SIGNAL = "run.signal"
    ORDER = "run.order"
    CLEANUP = "run.cleanup"
    FORK = "run.fork"
    TASK = "task.queue"
    UNDO = "run.undo"
    STATE = "state.write"
    CHECKPOINT = "checkpoint.write"
    UPLOAD = "artifact.chunks"
    ARTIFACT = "artifact.write"
    EVENT = "event.append"
    REPLAY = "event.replay"
    WORKFLOW = "workflow.write"
    THREAD = "thread.write"
    MEMORY = "memory.write"
    FORGET = "memory.forget"
    ERASE = "run.erase"
    REEMBED = "memory.reembed"
    SEAL = "stream.seal"
    COLLECT = "objects.collect"
    SHRINK = "store.shrink"
    COMPACT = "stream.compact"
    ARCHIVE = "stream.archive"
    REBUILD = "journal.rebuild"
    BACKUP = "store.backup"
    LEAVE = "agent.leave"
    ARRIVE = "agent.arrive"


class RaceWindow(StrEnum):
    """Every window in which another process or a person may interfere between two actions."""

    FILE_READ = "file.read"
    """A file was read, and is about to be replaced or removed."""
    FILE_ASIDE = "file.aside"
    """The new file is written under a temporary name."""
    FILE_PLACED = "file.placed"
    """The two files have been exchanged."""
    FILE_KNOWN = "file.known"
    """The content of the old file is saved elsewhere, and the file is about to be removed."""


class CommitMoment(StrEnum):
    """A moment around a commit."""

    BEFORE = "before"
    BEGUN = "begun"
    WRITTEN = "written"
    AFTER = "after"


FailpointHook = Callable[[Site, CommitMoment], None]
hook: FailpointHook | None = None
"""The armed hook. A commit tests it before it calls `reach`, which nearly always has nothing to do."""


def reach(site: Site, moment: CommitMoment) -> None:
    """Call the armed hook, if any."""
    if hook is not None:
        hook(site, moment)


def is_armed() -> bool:
    """Whether a hook is armed."""
    return hook is not None


def arm(wanted: FailpointHook | None) -> None:
    """Call `wanted` at every failpoint from now on; None disarms."""
    global hook
    hook = wanted


RaceHook = Callable[[RaceWindow], None]
_visitor: RaceHook | None = None


def visit(gap: RaceWindow) -> None:
    """Call the visitor of a test, if any."""
    if _visitor is not None:
        _visitor(gap)


def set_visitor(visitor: RaceHook | None) -> None:
    """Call `visitor` in every race window from now on; None stops that."""
    global _visitor
    _visitor = visitor


def arm_from_environment() -> None:
    """Arm what `PERDURE_FAILPOINT` names; stores call this when they open."""
    wanted = os.environ.get("PERDURE_FAILPOINT")
    if wanted and hook is None:
        arm(kill_at(wanted))


def kill_at(place: str) -> FailpointHook:
    """Return a hook that kills this process with SIGKILL the n-th time it reaches `site:moment#n`."""
    name, _, count = place.partition("#")
    site, _, moment = name.partition(":")
    wanted = (Site(site), CommitMoment(moment))
    left = int(count or 1)

    def kill(at: Site, when: CommitMoment) -> None:
        nonlocal left
        if (at, when) == wanted:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return kill
