"""The tools of data: get_state, set_state, save_checkpoint, restore_checkpoint."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from perdure.errors import WrongValue
from perdure.mcp.tool import McpCaller, McpTool, ToolAnswer, ToolInput, to_plain

KEYS_SHOWN = 200
CHECKPOINTS_SHOWN = 100
SPACE = "notes"
"""The namespace of keys that name none."""


class GetStateInput(ToolInput, frozen=True):
    """Arguments of get_state."""

    key: Annotated[str | None, Meta(description="The key; without one, all keys of the namespace are returned")] = None
    namespace: Annotated[str, Meta(description="A group of keys, e.g. the name of the project")] = SPACE


class StateResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of get_state."""

    namespace: str
    found: bool
    key: str = ""
    value: Any = None
    version: int = 0
    items: dict[str, Any] = {}


_MORE_KEYS = f"Only the first {KEYS_SHOWN} keys are shown: ask for others by `key`."


async def _get_state(caller: McpCaller, given: GetStateInput) -> ToolAnswer:
    state = caller.agent.state
    if given.key is None:
        items = dict(await state.items(given.namespace, limit=KEYS_SHOWN))
        result = StateResult(given.namespace, bool(items), items=to_plain(items))
        text = f"Namespace {given.namespace!r} has {', '.join(items) or 'nothing'}."
        advice = _MORE_KEYS if len(items) == KEYS_SHOWN else ""
        return ToolAnswer(f"{text} {advice}".rstrip(), to_plain(result), advice)
    version = await state.version(given.namespace, given.key)
    if not version:
        result = StateResult(given.namespace, False, given.key)
        return ToolAnswer(f"There is no key {given.key!r} in {given.namespace!r}.", to_plain(result))
    value = to_plain(await state.get(given.namespace, given.key))
    result = StateResult(given.namespace, True, given.key, value, version)
    return ToolAnswer(_json(value), to_plain(result))


class SetStateInput(ToolInput, frozen=True):
    """Arguments of set_state."""

    key: Annotated[str, Meta(description="The key", min_length=1)]
    value: Annotated[Any, Meta(description="Any JSON value. Leave it out together with `delete`")] = UNSET
    namespace: Annotated[str, Meta(description="A group of keys, e.g. the name of the project")] = SPACE
    if_version: Annotated[
        int | None, Meta(description="Refuse if the key has another version by now; 0: it must not exist yet")
    ] = None
    ttl: Annotated[str | None, Meta(description="Expires after this time, e.g. `2h`")] = None
    delete: Annotated[bool, Meta(description="Delete the key instead. Its history stays")] = False


class SetStateResult(msgspec.Struct, frozen=True):
    """Result of set_state."""

    namespace: str
    key: str
    version: int
    deleted: bool = False


async def _set_state(caller: McpCaller, given: SetStateInput) -> ToolAnswer:
    state = caller.agent.state
    if given.delete:
        there = await state.delete(given.namespace, given.key, given.if_version)
        result = SetStateResult(given.namespace, given.key, 0, there)
        return ToolAnswer("Deleted." if there else "There was no such key.", to_plain(result))
    if isinstance(given.value, UnsetType):
        raise WrongValue("`value` is missing; nothing was changed", hint="give any JSON value, or `delete`: true")
    version = await state.set(given.namespace, given.key, given.value, given.ttl, given.if_version)
    return ToolAnswer(f"Set; version {version}.", to_plain(SetStateResult(given.namespace, given.key, version)))


class SaveCheckpointInput(ToolInput, frozen=True):
    """Arguments of save_checkpoint."""

    name: Annotated[str, Meta(description="What is saved, e.g. `refactoring`. The same name makes a new version")]
    data: Annotated[Any, Meta(description="Everything needed to go on: plan, files touched, findings, next action")]
    labels: Annotated[tuple[str, ...], Meta(description="Labels; a version with a label is never removed")] = ()


class SavedVersion(msgspec.Struct, frozen=True):
    """Result of save_checkpoint."""

    name: str
    version: int


async def _save(caller: McpCaller, given: SaveCheckpointInput) -> ToolAnswer:
    version = await caller.agent.checkpoint.create(given.name, given.data, labels=given.labels)
    return ToolAnswer(f"Saved {given.name!r}, version {version}.", to_plain(SavedVersion(given.name, version)))


class RestoreInput(ToolInput, frozen=True):
    """Arguments of restore_checkpoint."""

    name: Annotated[str | None, Meta(description="The name; without one, all checkpoints are listed")] = None
    version: Annotated[int | None, Meta(description="An older version; default the newest")] = None


class ListedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint in the list."""

    name: str
    version: int
    at: str


class RestoredCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of restore_checkpoint."""

    name: str = ""
    version: int = 0
    data: Any = None
    checkpoints: list[ListedCheckpoint] = []


async def _restore(caller: McpCaller, given: RestoreInput) -> ToolAnswer:
    there = await caller.agent.checkpoint.list()
    if given.name is None:
        newest = {one.name: ListedCheckpoint(one.name, one.version, one.at.isoformat()) for one in there}
        shown = [*newest.values()][-CHECKPOINTS_SHOWN:]
        names = ", ".join(f"{one.name} (version {one.version})" for one in shown) or "none yet"
        return ToolAnswer(f"Checkpoints: {names}.", to_plain(RestoredCheckpoint(checkpoints=shown)))
    data = to_plain(await caller.agent.checkpoint.restore(given.name, given.version))
    version = given.version or max((one.version for one in there if one.name == given.name), default=0)
    return ToolAnswer(_json(data), to_plain(RestoredCheckpoint(given.name, version, data)))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


TOOLS = (
    McpTool(
        name="get_state",
        title="Get state",
        description=(
            "Read a durable value by key, with its version; without a key, list a namespace. State is for small exact "
            "values: counters, settings, ids. Use `recall` for knowledge."
        ),
        arguments=GetStateInput,
        result=StateResult,
        handler=_get_state,
        read_only=True,
    ),
    McpTool(
        name="set_state",
        title="Set state",
        description=(
            "Write a durable value by key. It is on disk when this returns, and all sessions see it. Pass the "
            "`version` that you read as `if_version` when others may write the same key."
        ),
        arguments=SetStateInput,
        result=SetStateResult,
        handler=_set_state,
        idempotent=True,
    ),
    McpTool(
        name="save_checkpoint",
        title="Save a checkpoint",
        description=(
            "Save where you are in a long piece of work, so that any session can go on from here. Save before risky "
            "or long steps and whenever much has changed. Older versions stay."
        ),
        arguments=SaveCheckpointInput,
        result=SavedVersion,
        handler=_save,
    ),
    McpTool(
        name="restore_checkpoint",
        title="Restore a checkpoint",
        description=(
            "Return what save_checkpoint saved: the newest version of a name, or an older one. Without a name, list "
            "all checkpoints. It only reads; your files are not changed."
        ),
        arguments=RestoreInput,
        result=RestoredCheckpoint,
        handler=_restore,
        read_only=True,
    ),
)
