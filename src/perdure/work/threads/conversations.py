"""The index of a conversation: how many turns it has, their ids, what is queued, and the state that they share.

It is state of the agent in a namespace of its own, so that it is journalled, moved and verified like any state. A turn
is the run `<thread>#<n>`; the commit that starts the run writes its number here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data import state
from perdure.errors import ForeignThread, WrongValue
from perdure.journal import objects
from perdure.journal.agent_writes import RequireRevision, SetKey
from perdure.journal.retention_rules import OURS
from perdure.kernel.names import check_storable_name
from perdure.records import AgentChange, StateChange
from perdure.values.limits import NAME_CHARACTERS_MAX
from perdure.work.threads.trails import framework_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

REGISTRY = f"{OURS}conversations"
"""The namespace with a key for each thread."""
ERASING = f"{OURS}erasing-threads"
"""The namespace with a key for each thread whose dropped turns are not erased yet: the first one of them."""
_HEAD = "head"
_SUMMARY = "summary"
_QUEUED, _STATE, _FORK = "queued:", "state:", "fork:"
_SPACE, _IDS = f"{OURS}thread:", f"{OURS}turn-ids:"
_ROOM = 64
"""Characters that the names of a thread's runs and keys add to its id."""


class QueuedInput(msgspec.Struct, frozen=True):
    """A user's message that waits until the turn before it has ended."""

    id: str
    input: Any
    at: int


class ThreadIndex(msgspec.Struct, frozen=True):
    """A thread as its index says."""

    thread: str
    turns: int = 0
    """The number of the last turn."""
    first: int = 1
    """The first turn that is shown: those before it were deleted."""
    origin: str = ""
    """Of a fork: the thread that the first turns belong to."""
    shared: int = 0
    """Of a fork: how many turns those are."""
    summary: int = 0
    """The last turn that has compacted the turns before it; 0 if none has."""
    forks: tuple[str, ...] = ()
    """The threads that begin with turns of this one."""
    queued: tuple[QueuedInput, ...] = ()
    state: dict[str, Any] = {}
    revision: int = 0

    @property
    def known(self) -> bool:
        return self.revision > 0


def check_thread(thread: object) -> str:
    """Check the id of a thread."""
    return check_storable_name(thread, "a thread's id", empty=False, most=NAME_CHARACTERS_MAX - _ROOM, error=WrongValue)


def space_of(thread: str) -> str:
    """Return the namespace of a thread's index."""
    return _SPACE + thread


def read_index(engine: Engine, thread: str) -> ThreadIndex:
    """Read the index of a thread. A commit that requires its `revision` relies on all of it."""
    space = space_of(thread)
    revision = state.revision(engine, space)
    if not revision:
        return ThreadIndex(thread)
    rows = engine.store.read("agent_state_page", (engine.stream, space, engine.store.clock.wall_ms(), "", 0, 1 << 60))
    found = {key: objects.unpack(engine.store, value) for key, value, *_ in rows}
    queued = [QueuedInput(key[len(_QUEUED) :], *value) for key, value in found.items() if key.startswith(_QUEUED)]
    return ThreadIndex(
        thread,
        **found.get(_HEAD, {}),
        summary=found.get(_SUMMARY, 0),
        forks=tuple(key[len(_FORK) :] for key in found if key.startswith(_FORK)),
        queued=tuple(sorted((one for one in queued if not number_of(engine, thread, one.id)), key=_order)),
        state={key[len(_STATE) :]: value for key, value in found.items() if key.startswith(_STATE)},
        revision=revision,
    )


def _order(one: QueuedInput) -> tuple[int, str]:
    return one.at, one.id


def number_of(engine: Engine, thread: str, request: str) -> int:
    """Return the number of the turn with this id; 0 if there is none."""
    if not engine.is_known():
        return 0
    rows = engine.store.read("get_state_value", (engine.stream, _ids_of(thread), request))
    return next((int(objects.unpack(engine.store, packed)) for packed, *_ in rows if packed), 0)


def _ids_of(thread: str) -> str:
    """A namespace of its own: a thread may have thousands of them, and opening a turn needs one."""
    return _IDS + thread


def require_unchanged(engine: Engine, index: ThreadIndex) -> RequireRevision:
    """Return the condition that the index is still as it was read."""
    return RequireRevision((engine.stream, space_of(index.thread)), index.revision)


def head_write(engine: Engine, index: ThreadIndex) -> list[SetKey]:
    """Return the writes that make this the head of the thread; of a new thread, with its key in the registry."""
    head = {"turns": index.turns, "first": index.first, "origin": index.origin, "shared": index.shared}
    writes = [_write(engine, index.thread, _HEAD, head)]
    if not index.known or index.turns == index.first:
        place = (engine.stream, REGISTRY, index.thread)
        writes.append(state.ask_set(engine, place, engine.store.clock.wall_ms(), None, None))
    return writes


def id_write(engine: Engine, thread: str, request: str, number: int) -> SetKey:
    """Return the write that gives a turn the id of its request."""
    return state.ask_set(engine, (engine.stream, _ids_of(thread), request), number, None, None)


def request_in(thread: str, changes: Sequence[AgentChange]) -> str:
    """Return the id of the request among the changes that landed with the start of a turn; "" if it has none."""
    ids = (change for change in changes if isinstance(change, StateChange) and change.space == _ids_of(thread))
    return next((change.key for change in ids), "")


def queue_write(engine: Engine, index: ThreadIndex, request: str, given: Any) -> SetKey:
    """Return the write that queues a user's message, behind those that wait already."""
    at = max(engine.store.clock.wall_ms(), index.queued[-1].at + 1 if index.queued else 0)
    return _write(engine, index.thread, _QUEUED + request, [given, at])


def queue_drop(engine: Engine, thread: str, request: str) -> SetKey:
    """Return the write that takes a message out of the queue: it has become a turn."""
    return SetKey((engine.stream, space_of(thread), _QUEUED + request))


def state_write(engine: Engine, thread: str, key: str, value: Any) -> SetKey:
    """Return the write of a key of the thread's state."""
    return _write(engine, thread, _STATE + key, value)


def summary_write(engine: Engine, thread: str, number: int) -> SetKey:
    """Return the write that names the turn which has compacted those before it."""
    return _write(engine, thread, _SUMMARY, number)


def fork_write(engine: Engine, thread: str, to: str) -> SetKey:
    """Return the write that tells a thread that another one begins with its turns."""
    return _write(engine, thread, _FORK + to, True)


def state_drop(engine: Engine, thread: str, key: str) -> SetKey:
    """Return the write that deletes a key of the thread's state."""
    return SetKey((engine.stream, space_of(thread), _STATE + key))


def delete_everything(engine: Engine, index: ThreadIndex) -> list[SetKey]:
    """Return the writes that delete the queue, the state and the ids of the turns of a thread."""
    space, ids = space_of(index.thread), _ids_of(index.thread)
    places = [(REGISTRY, index.thread)]
    places += [(space, key) for key in _keys_in(engine, space) if key.startswith((_STATE, _QUEUED, _SUMMARY))]
    places += [(ids, key) for key in _keys_in(engine, ids)]
    return [SetKey((engine.stream, *place)) for place in places]


def erasing_write(engine: Engine, thread: str, first: int) -> SetKey:
    """Return the write that remembers which turns of a thread are dropped and not erased yet."""
    before = erasing(engine).get(thread, first)
    return state.ask_set(engine, (engine.stream, ERASING, thread), min(before, first), None, None)


def erasing_drop(engine: Engine, thread: str) -> SetKey:
    """Return the write that tells that all dropped turns of a thread are erased."""
    return SetKey((engine.stream, ERASING, thread))


def erasing(engine: Engine) -> dict[str, int]:
    """Return the threads with turns that are dropped and not erased yet, and the first of these turns."""
    if not engine.is_known():
        return {}
    now = engine.store.clock.wall_ms()
    rows = engine.store.read("agent_state_page", (engine.stream, ERASING, now, "", 0, 1 << 60))
    return {key: objects.unpack(engine.store, value) for key, value, *_ in rows}


def is_of_threads(change: StateChange) -> bool:
    """Whether a change is one of the index of a thread."""
    return change.space in (REGISTRY, ERASING) or change.space.startswith((_SPACE, _IDS))


def _write(engine: Engine, thread: str, key: str, value: Any) -> SetKey:
    return state.ask_set(engine, (engine.stream, space_of(thread), key), value, None, None)


def conversations(engine: Engine) -> list[str]:
    """Return the ids of all threads with turns, sorted."""
    return _keys_in(engine, REGISTRY) if engine.is_known() else []


def _keys_in(engine: Engine, space: str) -> list[str]:
    now = engine.store.clock.wall_ms()
    return [key for key, *_ in engine.store.read("agent_state_page", (engine.stream, space, now, "", 0, 1 << 60))]


def is_foreign(engine: Engine, thread: str) -> bool:
    """Whether a framework has saved the thread."""
    return engine.is_known() and bool(
        engine.store.read("thread_checkpoints_page", (engine.stream, thread, "", 1, "", 1))
    )


def refuse_foreign(engine: Engine, thread: str) -> None:
    """A thread that a framework has saved is continued by that framework."""
    if is_foreign(engine, thread):
        raise ForeignThread(f"thread {thread!r} of agent {engine.name!r} was saved by {framework_of(engine, thread)}")


def run_id_of(engine: Engine, index: ThreadIndex, number: int) -> str:
    """Return the id of the run that is a turn of a thread; a fork's first turns are runs of its origin."""
    return f"{owner_of(engine, index, number).thread}#{number}"


def owner_of(engine: Engine, index: ThreadIndex, number: int) -> ThreadIndex:
    """Return the index of the thread that has started a turn: a fork's first turns belong to its origin."""
    while index.origin and number <= index.shared:
        index = read_index(engine, index.origin)
    return index


def is_shown(engine: Engine, index: ThreadIndex, number: int) -> bool:
    """Whether a turn is part of the thread that has started it, or of one of the forks."""
    if index.first <= number <= index.turns:
        return True
    forks = (read_index(engine, fork) for fork in index.forks)
    return any(number <= fork.shared and is_shown(engine, fork, number) for fork in forks)


def is_shown_turn(engine: Engine, run_id: str, known: dict[str, ThreadIndex]) -> bool:
    """Whether a run is a turn that a thread shows. `known` keeps what was read for other turns of the thread."""
    thread, _, number = run_id.rpartition("#")
    if not thread or not number.isdecimal():
        return False
    index = known[thread] = known.get(thread) or read_index(engine, thread)
    return index.shared < int(number) <= index.turns and is_shown(engine, index, int(number))
