"""A2A: the tasks of an agent server, kept as threads of Perdure.

    from perdure.adapters.a2a import PerdureTaskStore

    handler = DefaultRequestHandler(agent_executor=executor, task_store=PerdureTaskStore("agent.db"))

Needs `pip install perdure[a2a]`. See docs/guides/a2a.md.
"""

from __future__ import annotations

from typing import Any

from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.saved_session import SavedSession, SessionState
from perdure.errors import ExtraMissing
from perdure.kernel.protocol import Protocol, Read, drive_async
from perdure.work.threads import prune
from perdure.work.threads.read import places

try:
    from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
    from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
    from a2a.server.tasks.task_store import TaskStore
    from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task
    from google.protobuf.json_format import MessageToDict, ParseDict
except ModuleNotFoundError as missing:
    raise ExtraMissing("perdure.adapters.a2a needs a2a-sdk", hint='pip install "perdure[a2a]"') from missing

__all__ = ["PerdureTaskStore"]

_FRAMEWORK = "a2a"


class PerdureTaskStore(TaskStore):
    """Stores A2A tasks. Each is a thread with the task's id; an owner sees only his own tasks.

    `save` returns when the task is on disk. `owner_resolver` finds the owner of a request, as in the SDK's own stores.
    """

    def __init__(
        self, store: AgentOrStore = None, *, agent: str = _FRAMEWORK, owner_resolver: OwnerResolver = resolve_user_scope
    ) -> None:
        self._home = EngineHolder(store, agent)
        self._owner = owner_resolver

    async def save(self, task: Task, context: Any) -> None:
        """Save a task durably. Its history is the thread's messages."""
        made = MessageToDict(task, preserving_proto_field_name=True)
        history = made.pop("history", [])

        def put(state: SessionState) -> SessionState | None:
            same = (state.items, state.about) == (history, made) and state.checkpoint
            return None if same else SessionState(history, made)

        await self._do(self._saved(task.id, context).change(put))

    async def get(self, task_id: str, context: Any) -> Task | None:
        """Return a task of the owner, or None."""
        return _task_of(await self._do(self._saved(task_id, context).load()))

    async def list(self, params: ListTasksRequest, context: Any) -> ListTasksResponse:
        """Return a page of the owner's tasks, newest first, filtered and paged as in the SDK."""
        shown = InMemoryTaskStore(owner_resolver=self._owner)
        for name in await self._do(self._names(context)):
            task = await self.get(name, context)
            if task is not None:
                await shown.save(task, context)
        return await shown.list(params, context)

    async def delete(self, task_id: str, context: Any) -> None:
        """Delete a task of the owner."""
        points = await self._do(_places(self._home.engine, task_id, self._ns(context)))
        await self._do(prune.drop(self._home.engine, task_id, [(point.ns, point.id) for point in points]))

    def _names(self, context: Any) -> Protocol[Any]:
        points = yield from _places(self._home.engine, None, self._ns(context))
        return sorted({point.thread for point in points})

    def _ns(self, context: Any) -> str:
        return f"{_FRAMEWORK}/{self._owner(context)}"

    def _saved(self, task_id: str, context: Any) -> SavedSession:
        return SavedSession(self._home.engine, task_id, _FRAMEWORK, self._ns(context))

    async def _do(self, protocol: Protocol[Any]) -> Any:
        return await drive_async(self._home.engine.store, protocol)


def _places(*where: Any) -> Protocol[Any]:
    return (yield Read(places, where))


def _task_of(state: SessionState) -> Task | None:
    if not state.checkpoint:
        return None
    task: Task = ParseDict({**state.about, "history": state.items}, Task())
    return task
