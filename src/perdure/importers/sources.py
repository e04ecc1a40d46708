"""The sources that `perdure import SOURCE PATH` knows, and the import of one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from perdure.errors import CallProblem, ValueProblem
from perdure.importers import claude_code
from perdure.importers.chatgpt import read_chatgpt
from perdure.importers.claude_code import read_claude_code
from perdure.importers.items import ImportedItem
from perdure.importers.ledger import ImportCounts, ImportPolicy, ImportWriter
from perdure.importers.letta import read_letta
from perdure.importers.markdown import read_markdown
from perdure.importers.mem0 import read_mem0
from perdure.importers.reader import ImportReader, UnreadPlace
from perdure.kernel.engine import Engine

ITEMS_MAX = 2_000_000
"""Things of one import."""


class ImportSource(msgspec.Struct, frozen=True):
    """A tool whose data can be imported."""

    read: Callable[[ImportReader], Iterator[ImportedItem]]
    help: str
    default: Callable[[], Path] | None = None
    """Where the tool keeps its data, if that is known."""


SOURCES: Mapping[str, ImportSource] = {
    "claude-code": ImportSource(
        read_claude_code,
        "Import past sessions of Claude Code as threads. PATH: default ~/.claude/projects, or one .jsonl file.",
        claude_code.find_default,
    ),
    "chatgpt": ImportSource(read_chatgpt, "Import conversations of ChatGPT as threads. PATH: the export, a zip file."),
    "mem0": ImportSource(read_mem0, "Import memories of mem0. PATH: exported JSON, history.db, or a folder of them."),
    "letta": ImportSource(read_letta, "Import agents of Letta: memory blocks and messages. PATH: .af file or folder."),
    "markdown": ImportSource(
        read_markdown,
        "Import notes as memories, a section each: MEMORY.md, CLAUDE.md, Obsidian. PATH: a file or a folder.",
    ),
}


class ImportReport(msgspec.Struct, frozen=True):
    """What an import has done, and what it could not read."""

    source: str
    path: str
    agent: str
    dry_run: bool
    threads: ImportCounts
    memories: ImportCounts
    unread: list[UnreadPlace]
    unread_count: int


class SourceImport:
    """The import of one source. After an interrupt, `report` tells what was imported until then."""

    def __init__(self, engine: Engine, policy: ImportPolicy, path: Path, progress: Callable[[int, int], None]) -> None:
        self._source, self._policy, self._path = SOURCES[policy.source], policy, path
        self._engine = engine
        self._reader = ImportReader(path, progress)
        self._writer = ImportWriter(engine, policy)

    def run(self) -> ImportReport:
        """Import everything that can be read. Run again, it continues where it was interrupted."""
        for number, item in enumerate(self._source.read(self._reader)):
            if number >= ITEMS_MAX:
                self._reader.note(self._path, f"more than {ITEMS_MAX:,} entries: the others were not read")
                break
            self._add(item)
        self._writer.flush()
        return self.report()

    def _add(self, item: ImportedItem) -> None:
        """Import one thing. One that no store can hold does not keep the others out."""
        try:
            self._writer.add(item)
        except (ValueProblem, CallProblem) as error:
            self._reader.note(f"{item.meta.get('path', self._path)}: {item.key[:200]}", str(error)[:200])

    def report(self) -> ImportReport:
        """Return what was done so far."""
        return ImportReport(
            self._policy.source,
            str(self._path),
            self._engine.name,
            self._policy.dry_run,
            self._writer.threads,
            self._writer.memories,
            self._reader.unread,
            self._reader.unread_count,
        )
