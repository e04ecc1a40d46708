"""`PerdureSessionStore`: transcripts of the Claude Agent SDK as threads `<project>/<session>`."""

from __future__ import annotations

from typing import Any

import msgspec
from claude_agent_sdk import fold_session_summary

from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.saved_session import SavedSession, SessionState
from perdure.adapters.session_calls import SessionCalls
from perdure.data import state
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, Read, drive_async, drive_sync
from perdure.work.threads import prune
from perdure.work.threads.listing import ThreadInfo, list_saved_threads
from perdure.work.threads.read import places

_FRAMEWORK = "claude"
_TURNS = "claude-turns"
"""The namespace with the number of finished turns of each session that has durable tools."""


class ClaudeTurns:
    """The turns of a session: durable tools record their calls in the run of the current one."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self.name = engine, name
        self.calls = SessionCalls(engine, self._run_id)

    def _run_id(self) -> str:
        return f"{self.name}#{1 + drive_sync(self._engine.store, state.get(self._engine, _TURNS, self.name, 0))}"

    def finish(self) -> None:
        """End the turn, because the model has given its answer. The next tool call belongs to another turn."""
        self.calls.finish(None)
        at = state.place(self._engine, _TURNS, self.name)
        ask = state.ask_update(self._engine, at, lambda done: (done or 0) + 1, None)
        drive_sync(self._engine.store, state.change(self._engine, [ask]))


class PerdureSessionStore:
    """Mirrors sessions of the Claude Agent SDK: `ClaudeAgentOptions(session_store=PerdureSessionStore("agent.db"))`.

    Use `session_store_flush="eager"`, so that entries arrive while a turn runs. If one program has several sessions
    at a time, give the tools of each `session=store.session(session_id)`.
    """

    def __init__(self, store: AgentOrStore = None, *, agent: str = _FRAMEWORK) -> None:
        self._home = EngineHolder(store, agent)
        self._saved: dict[tuple[str, str], SavedSession] = {}
        self._turns: dict[str, ClaudeTurns] = {}

    def session(self, session_id: str = "") -> ClaudeTurns:
        """Return the turns of one session, for `durable(tool, session=...)`; without an id, of all sessions here."""
        name = session_id or "claude"
        if name not in self._turns:
            self._turns[name] = ClaudeTurns(self._home.engine, name)
        return self._turns[name]

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Add entries durably. An entry with a known `uuid` is ignored."""
        if not entries:
            return
        main = key.get("subpath") is None
        await self._do(self._of(key).change(lambda known: _add(known, key, entries, main)))
        if main and any(_ends_turn(entry) for entry in entries):
            for name in {"claude", key["session_id"]} & self._turns.keys():
                await self._do(_call(self._turns[name].finish))

    async def load(self, key: Any) -> list[Any] | None:
        """Return all entries of a session, or None."""
        state = await self._do(self._of(key).load())
        return state.items if state.checkpoint else None

    async def list_sessions(self, project_key: str) -> list[Any]:
        """Return the sessions of a project with the time of the last write."""
        threads = await self._do(_call(self._threads, project_key))
        return [{"session_id": name, "mtime": _milliseconds(thread)} for name, thread in threads]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """Return the summaries that the SDK shows in lists of sessions."""
        found = []
        for name, thread in await self._do(_call(self._threads, project_key)):
            state = await self._do(self._of({"project_key": project_key, "session_id": name}).load())
            summary = state.about.get("summary")
            if summary is not None:
                found.append({**summary, "mtime": _milliseconds(thread)})
        return found

    async def delete(self, key: Any) -> None:
        """Delete a session with its subagents, or the transcript of one subagent."""
        saved = self._of(key)
        self._saved.clear()
        if key.get("subpath") is None:
            await self._do(saved.delete())
            return
        points = await self._do(_call(places, self._home.engine, saved.thread, _ns_of(key)))
        await self._do(prune.drop(self._home.engine, saved.thread, [(point.ns, point.id) for point in points]))

    async def list_subkeys(self, key: Any) -> list[str]:
        """Return the subpaths of a session that have entries."""
        points = await self._do(_call(places, self._home.engine, self._of(key).thread, None))
        start = f"{_FRAMEWORK}/"
        return sorted({point.ns[len(start) :] for point in points if point.ns.startswith(start)})

    async def _do(self, protocol: Protocol[Any]) -> Any:
        return await drive_async(self._home.engine.store, protocol)

    def _of(self, key: Any) -> SavedSession:
        thread = f"{key['project_key']}/{key['session_id']}"
        ns = _ns_of(key)
        if (thread, ns) not in self._saved:
            self._saved[thread, ns] = SavedSession(self._home.engine, thread, _FRAMEWORK, ns)
        return self._saved[thread, ns]

    def _threads(self, project: str) -> list[tuple[str, ThreadInfo]]:
        start = f"{project}/"
        found = [thread for thread in list_saved_threads(self._home.engine) if thread.id.startswith(start)]
        return [(thread.id[len(start) :], thread) for thread in found if "/" not in thread.id[len(start) :]]


def _call(function: Any, *args: Any) -> Protocol[Any]:
    return (yield Read(function, args))


def _ns_of(key: Any) -> str:
    subpath = key.get("subpath")
    return _FRAMEWORK if subpath is None else f"{_FRAMEWORK}/{subpath}"


def _milliseconds(thread: ThreadInfo) -> int:
    return int(thread.at.timestamp() * 1000)


def _add(known: SessionState, key: Any, entries: list[Any], main: bool) -> SessionState | None:
    seen = {entry.get("uuid") for entry in known.items if entry.get("uuid") is not None}
    new = list[Any]()
    for entry in entries:
        if entry.get("uuid") is None or entry["uuid"] not in seen:
            new.append(msgspec.to_builtins(entry))
            seen.add(entry.get("uuid"))
    if not new:
        return None
    about = known.about
    if main:
        about = {**about, "summary": fold_session_summary(about.get("summary"), key, new)}
    return SessionState([*known.items, *new], about)


def _ends_turn(entry: Any) -> bool:
    """Whether an entry is the answer that ends a turn."""
    message = entry.get("message")
    return (
        entry.get("type") == "assistant"
        and not entry.get("isSidechain")
        and isinstance(message, dict)
        and message.get("stop_reason") == "end_turn"
    )
