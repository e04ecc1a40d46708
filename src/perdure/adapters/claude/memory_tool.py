"""`MemoryTool` and `AsyncMemoryTool`: Anthropic's memory tool, with its files in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool

from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.stored_files import FileTree, StoredEntry, StoredFiles, normalize
from perdure.kernel.protocol import drive_async, drive_sync

_ROOT = "/memories"
_LINES_MAX = 999_999
_WIDTH = len(str(_LINES_MAX))
_FOLDER_BYTES = 4096
"""The size that listings show for a folder, as file systems do."""

Operation = Callable[[FileTree], str]


class MemoryTool(BetaAbstractMemoryTool):
    """Anthropic's memory tool for `client.beta.messages.run_tools(tools=[MemoryTool("agent.db")])`.

    Files survive the process, have a history, and move with the agent. Answers are those of Anthropic's own tool.
    """

    def __init__(self, store: AgentOrStore = None, *, agent: str = "claude", cache_control: Any = None) -> None:
        super().__init__(cache_control=cache_control)
        self._home = EngineHolder(store, agent)

    def view(self, command: Any) -> str:
        return self._apply(_view(command))

    def create(self, command: Any) -> str:
        return self._apply(_create(command))

    def str_replace(self, command: Any) -> str:
        return self._apply(_str_replace(command))

    def insert(self, command: Any) -> str:
        return self._apply(_insert(command))

    def delete(self, command: Any) -> str:
        return self._apply(_delete(command))

    def rename(self, command: Any) -> str:
        return self._apply(_rename(command))

    def clear_all_memory(self) -> str:
        return self._apply(_clear)

    def _apply(self, operation: Operation) -> str:
        return drive_sync(self._home.engine.store, StoredFiles(self._home.engine, "memories").apply(operation))


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for asynchronous clients. It shares its files with `MemoryTool`."""

    def __init__(self, store: AgentOrStore = None, *, agent: str = "claude", cache_control: Any = None) -> None:
        super().__init__(cache_control=cache_control)
        self._home = EngineHolder(store, agent)

    async def view(self, command: Any) -> str:
        return await self._apply(_view(command))

    async def create(self, command: Any) -> str:
        return await self._apply(_create(command))

    async def str_replace(self, command: Any) -> str:
        return await self._apply(_str_replace(command))

    async def insert(self, command: Any) -> str:
        return await self._apply(_insert(command))

    async def delete(self, command: Any) -> str:
        return await self._apply(_delete(command))

    async def rename(self, command: Any) -> str:
        return await self._apply(_rename(command))

    async def clear_all_memory(self) -> str:
        return await self._apply(_clear)

    async def _apply(self, operation: Operation) -> str:
        files = StoredFiles(self._home.engine, "memories")
        return await drive_async(self._home.engine.store, files.apply(operation))


def _locate(path: str) -> str:
    if not path.startswith(_ROOT):
        raise ToolError(f"Path must start with /memories, got: {path}")
    found = normalize(path)
    if found != _ROOT and not found.startswith(_ROOT + "/"):
        raise ToolError(f"Path {path} would escape /memories directory")
    return found


def _read(tree: FileTree, path: str) -> str:
    where = _locate(path)
    if not tree.exists(where):
        raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
    if tree.is_dir(where):
        raise ToolError(f"The path {path} is not a file.")
    return tree.read(where).decode()


def _number(lines: list[str], first: int) -> str:
    return "\n".join(f"{str(first + at).rjust(_WIDTH)}\t{line}" for at, line in enumerate(lines))


def _view(command: Any) -> Operation:
    def view(tree: FileTree) -> str:
        where = _locate(command.path)
        if where == _ROOT or tree.is_dir(where):
            return _list(tree, where, command.path)
        lines = _read(tree, command.path).split("\n")
        if len(lines) > _LINES_MAX:
            raise ToolError(f"File {command.path} exceeds maximum line limit of 999,999 lines.")
        first, shown = 1, lines
        if command.view_range and len(command.view_range) == 2:
            first = max(1, command.view_range[0])
            shown = lines[first - 1 : len(lines) if command.view_range[1] == -1 else command.view_range[1]]
        return f"Here's the content of {command.path} with line numbers:\n{_number(shown, first)}"

    return view


def _list(tree: FileTree, where: str, path: str) -> str:
    head = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    lines = [f"{_format_size(_FOLDER_BYTES)}\t{path}"]
    for entry in _walk(tree, where, 2) if tree.exists(where) else ():
        size = _format_size(_FOLDER_BYTES if entry.is_dir else entry.size)
        lines.append(f"{size}\t{path}{entry.path[len(where) :]}{'/' if entry.is_dir else ''}")
    return "\n".join([head, *lines])


def _walk(tree: FileTree, where: str, levels: int) -> Iterator[StoredEntry]:
    for entry in tree.children(where) if levels else ():
        if not entry.path.rpartition("/")[2].startswith("."):
            yield entry
            yield from _walk(tree, entry.path, levels - 1) if entry.is_dir else ()


def _format_size(size: int) -> str:
    power = min(max(0, (size.bit_length() - 1) // 10), 3)
    number = size / 1024**power
    return f"{int(number) if number == int(number) else format(number, '.1f')}{'BKMG'[power]}"


def _create(command: Any) -> Operation:
    def create(tree: FileTree) -> str:
        where = _locate(command.path)
        if tree.exists(where):
            raise ToolError(f"File {command.path} already exists")
        try:
            tree.write(where, command.file_text.encode())
        except NotADirectoryError as error:
            raise ToolError(f"The path {error} is not a directory.") from error
        return f"File created successfully at: {command.path}"

    return create


def _str_replace(command: Any) -> Operation:
    def replace(tree: FileTree) -> str:
        content, old = _read(tree, command.path), command.old_str
        found = [at for at in range(len(content)) if old and content.startswith(old, at)]
        if not found:
            told = f"No replacement was performed, old_str `{old}` did not appear verbatim in {command.path}."
            raise ToolError(told)
        if content.count(old) > 1:
            lines = ", ".join(str(content[:at].count("\n") + 1) for at in found)
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}. "
                "Please ensure it is unique"
            )
        changed = content.replace(old, command.new_str)
        tree.write(_locate(command.path), changed.encode())
        line = content[: found[0]].count("\n")
        start = max(0, line - 2)
        snippet = _number(changed.split("\n")[start : line + 3], start + 1)
        return (
            f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{snippet}"
        )

    return replace


def _insert(command: Any) -> Operation:
    def insert(tree: FileTree) -> str:
        lines = _read(tree, command.path).split("\n")
        if lines[-1] == "":
            lines.pop()
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. "
                f"It should be within the range [0, {len(lines)}]."
            )
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        tree.write(_locate(command.path), ("\n".join(lines).removesuffix("\n") + "\n").encode())
        return f"The file {command.path} has been edited."

    return insert


def _delete(command: Any) -> Operation:
    def delete(tree: FileTree) -> str:
        where = _locate(command.path)
        if where == _ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        if not tree.exists(where):
            raise ToolError(f"The path {command.path} does not exist")
        tree.remove(where)
        return f"Successfully deleted {command.path}"

    return delete


def _rename(command: Any) -> Operation:
    def rename(tree: FileTree) -> str:
        old, new = _locate(command.old_path), _locate(command.new_path)
        if old == _ROOT:
            raise ToolError("Cannot rename the /memories directory itself")
        if tree.exists(new):
            raise ToolError(f"The destination {command.new_path} already exists")
        if not tree.exists(old):
            raise ToolError(f"The path {command.old_path} does not exist")
        if new.startswith(old + "/"):
            raise ToolError(f"The destination {command.new_path} is inside {command.old_path}")
        tree.rename(old, new)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    return rename


def _clear(tree: FileTree) -> str:
    if tree.exists(_ROOT):
        tree.remove(_ROOT)
    return "All memory cleared"
