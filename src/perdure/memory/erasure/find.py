"""Finds a text in messages, recorded results, state, events, other memories and archives.

Every stored entry is decoded and searched for the literal text. The summary of a conversation that contains the text
counts as an occurrence too, whatever the summary says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.errors import ArchiveDamaged, PerdureError, ValueProblem
from perdure.journal import archive, objects, trees
from perdure.journal.objects import PACKED_FIELDS
from perdure.journal.stream_reader import iterate_streams, pages
from perdure.journal.trees.streams import StoredStream
from perdure.run.conversation import OF_THREAD, SUMMED_UP
from perdure.run.function import EXPLICIT
from perdure.store.base import Store
from perdure.store.rows import read_runs
from perdure.values.limits import TRACES_MAX
from perdure.values.lines import lines_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

SUFFIX = ".memories.jsonl"
"""The suffix of archives of memories: JSON, one memory per line."""

SNAPSHOT = "snapshot"
"""The kind of cached results of event replays, which can be recomputed."""

_NUMBERS = ("array", "arrays")
"""Kinds of artifacts without text."""

_CUT = "…".encode()
"""Marks where a summary has truncated a text."""

_SUMMED_UP = EXPLICIT + SUMMED_UP.encode()

_BEGUN_MIN, _BEGUN_MAX = 16, 2_000
"""How many bytes of a truncated text identify it, and more than any summary contains."""


class TextOccurrence(msgspec.Struct, frozen=True):
    """A place where the text of a memory occurs too."""

    kind: str
    """`message`, `summary`, `step`, `effect`, `item`, `state`, `event`, `memory`, `archive`, `file` and so on."""
    what: str
    """A description of it."""
    run: str = ""
    entry: tuple[int, int] = (0, 0)
    """Stream and number of the journal entry; (0, 0) if it is not in the journal."""
    left: str = ""
    """Why it was not erased; empty if it was, or if nobody asked for that."""

    def __str__(self) -> str:
        where = f" of run {self.run}" if self.run else ""
        return f"{self.kind} {self.what}{where}" + (f": {self.left}" if self.left else "")


def spellings(text: str) -> list[bytes]:
    """Return the forms in which a text may be stored: as it is, on one line, and within JSON (tool arguments)."""
    within = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return [one.encode() for one in dict.fromkeys([text, *within, "\n".join(lines_of(text)), " ".join(text.split())])]


class TextSearch:
    """Searches everything in a store for texts, except some entries."""

    def __init__(self, engine: Engine, texts: Sequence[str]) -> None:
        self._store: Store = engine.store
        self._needles = [needle for text in texts if text.strip() for needle in spellings(text.strip())]
        self._known: dict[bytes, bool] = {}
        """Objects that were searched, and whether they have one of the texts."""
        runs = read_runs(engine.store)
        self._runs = {run.stream: run.id for run in runs}
        self._agents = {run.stream: run.agent for run in runs}
        self._origins = {run.stream: (run.forked_from, run.forked_at) for run in runs if run.is_fork}
        self._said: dict[int, list[tuple[int, int]]] = {}
        """By stream: the entry and message numbers of messages with one of the texts."""

    def entries(self, apart: frozenset[tuple[int, int]]) -> Iterator[tuple[TextOccurrence, r.Record]]:
        """Yield the occurrences in the journal, in order."""
        for stream, *_ in iterate_streams(self._store):
            for page in pages(self._store, stream):
                for seq, kind, _, body, *_ in page:
                    if body is None or (stream, seq) in apart:
                        continue
                    record = r.decode(kind, body)
                    for what in (*self._find_occurrences(record), *self._summaries(stream, seq, record)):
                        yield TextOccurrence(*what, self._runs.get(stream, ""), (stream, seq)), record

    def search_outside_journal(self) -> Iterator[TextOccurrence]:
        """Yield the occurrences outside the journal: cached replays and unfinished uploads of artifacts."""
        if any(self._contains_packed(value) for (value,) in self._store.read("all_replay_snapshots")):
            yield TextOccurrence(SNAPSHOT, "cached results of event replays")
        ids = [identity for (identity,) in self._store.read("live_upload_objects", (0, "", 0))]
        if any(self.is_in(objects.content(self._store, *found)) for found in objects.rows_of(self._store, ids).items()):
            left = "its upload is unfinished; `perdure gc` deletes it after a day without progress"
            yield TextOccurrence("artifact", "with an unfinished upload", left=left)

    def agent_of(self, stream: int) -> str:
        """Return the agent whose run a stream is; empty if it is not a run."""
        return self._agents.get(stream, "")

    def has(self, record: r.Record) -> bool:
        """Return whether a record has one of the texts."""
        return any(True for _ in self._find_occurrences(record))

    def archives(self, folder: str) -> Iterator[TextOccurrence]:
        """Yield archives, of compacted entries or of memories, that have one of the texts."""
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".jsonl.zst") and (left := self._explain_archive_stay(path)):
                yield TextOccurrence("archive", path, left=left)
            elif name.endswith(SUFFIX) and self.is_in(Path(path).read_bytes()):
                yield TextOccurrence("archive", path)

    def _explain_archive_stay(self, path: str) -> str:
        """Return why a text stays in an archive; empty if it is not there."""
        try:
            for line in archive.lines_of(path):
                entry = line.body if isinstance(line, archive.ArchiveEntry) else None
                value = (
                    objects.decompress_object(line.size, line.data) if isinstance(line, archive.ArchiveObject) else None
                )
                if self.is_in(entry or value or b""):
                    return "it holds compacted entries, which a digest covers"
        except (ArchiveDamaged, ValueProblem):
            return "it is damaged and cannot be searched"
        return ""

    def is_in(self, data: bytes) -> bool:
        """Return whether some bytes have one of the texts."""
        return any(needle in data for needle in self._needles)

    def _contains_packed(self, packed: bytes) -> bool:
        if not packed:
            return False
        if packed[:1] == b"\x00":
            return self.is_in(packed)
        if packed not in self._known:
            try:
                whole = trees.content(self._store, packed) if packed[:1] == trees.TREE else None
                data = whole if whole is not None else objects.fetch(self._store, objects.reference(packed))
                self._known[packed] = self.is_in(data)
            except PerdureError:
                self._known[packed] = False  # dropped and garbage collected
        return self._known[packed]

    def _search_artifact(self, saved: r.ArtifactSaved) -> bool:
        """Search a file chunk by chunk: it may be larger than any value."""
        if saved.value not in self._known and saved.kind not in _NUMBERS:
            longest, before, has = max(map(len, self._needles), default=0), b"", False
            try:
                for _, chunk in StoredStream(self._store, saved.value, saved.size).chunks():
                    has = has or self.is_in(before + chunk)
                    before = (before + chunk)[-longest:]
            except PerdureError:
                pass  # dropped and garbage collected
            self._known[saved.value] = has
        return self._known.get(saved.value, False)

    def _find_occurrences(self, record: r.Record, around: tuple[str, str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield the kind and name of each occurrence; a record without a name takes those of the record around it."""
        what = describe_record(record) or around or (type(record).__name__, "")
        if isinstance(record, r.ArtifactSaved) and self._search_artifact(record):
            yield what
        for name in record.__struct_fields__:
            if name == "value" and isinstance(record, r.ArtifactSaved):
                continue
            for part in _flatten(getattr(record, name)):
                if isinstance(part, r.Record):
                    yield from self._find_occurrences(part, what)
                elif isinstance(part, bytes):
                    if self._contains_packed(part) if name in PACKED_FIELDS else self.is_in(part):
                        yield what
                elif isinstance(part, str) and self.is_in(part.encode("utf-8", "surrogatepass")):
                    yield what

    # -- summaries ----------------------------------------------------------------------------------------------------

    def _summaries(self, stream: int, seq: int, record: r.Record) -> Iterator[tuple[str, str]]:
        """Yield summaries of messages that have the text: they may quote or rephrase it."""
        for write in _list_run_writes(record):
            if write.op == r.WriteOp.MESSAGE and self.has(write):
                self._said.setdefault(stream, []).append((seq, write.position))
        for upto, packed, summary in _iterate_summaries(record):
            of_thread = isinstance(summary, r.RunWrite) and summary.key == OF_THREAD
            where = self._turns_before(stream, upto) if of_thread else self._positions(stream)
            covers = any(position < upto for position in where)
            if (covers or self._is_begun_in(packed)) and not self.has(summary):
                yield describe_record(summary) or ("summary", "")

    def _positions(self, stream: int) -> Iterator[int]:
        """Yield the messages of a run that have the text. A fork shares those of its origin up to the fork point."""
        upto: int | None = None
        while stream:
            yield from (position for seq, position in self._said.get(stream, ()) if upto is None or seq <= upto)
            stream, upto = self._origins.get(stream, (0, 0))

    def _turns_before(self, stream: int, upto: int) -> Iterator[int]:
        """Yield the earlier turns of the same thread that have the text."""
        thread = self._runs.get(stream, "").rpartition("#")[0]
        for said in self._said:
            name, _, number = self._runs.get(said, "").rpartition("#")
            if name == thread and number.isdecimal():
                yield int(number)

    def _is_begun_in(self, packed: bytes) -> bool:
        """Return whether a truncated text is there. The message that it was taken from may be gone."""
        try:
            data = packed if packed[:1] == b"\x00" else objects.fetch(self._store, objects.reference(packed))
        except PerdureError:
            return False
        heads = [piece.rstrip() for piece in data.split(_CUT)[:-1]]
        return any(
            head.endswith(needle[:size])
            for head in heads
            for needle in self._needles
            for size in range(_BEGUN_MIN, min(len(needle), len(head), _BEGUN_MAX) + 1)
        )


def _list_run_writes(record: r.Record) -> Sequence[r.RunWrite]:
    """Return what an entry has written to the data of its own run."""
    return (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())


def _iterate_summaries(record: r.Record) -> Iterator[tuple[int, bytes, r.Record]]:
    """Yield the summaries in an entry: the number of the first message not covered, the packed text, and the record.

    The result of a summarizing function is recorded as the result of a step, and then as a write.
    """
    for write in _list_run_writes(record):
        if write.op == r.WriteOp.COMPACT and write.value:
            yield write.position, write.value, write
    if isinstance(record, r.StepDone) and record.call.ident.startswith(_SUMMED_UP):
        upto = record.call.ident.removeprefix(_SUMMED_UP)
        if upto.isdigit():
            yield int(upto), record.result, record


def _flatten(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flatten(part)
    else:
        yield value


def describe_record(record: r.Record) -> tuple[str, str] | None:
    """Return the kind and name of a record; None if it is only a part of another."""
    if isinstance(record, r.RunWrite):
        return _WRITES.get(record.op, "write"), record.key
    for types, kind, words in _WORDS:
        if isinstance(record, types):
            return kind, words(record)
    return None


_WRITES = {
    r.WriteOp.MESSAGE: "message",
    r.WriteOp.SET: "run.state",
    r.WriteOp.EVENT: "event",
    r.WriteOp.RESULT: "result",
    r.WriteOp.COMPACT: "summary",
}
_WORDS: tuple[tuple[tuple[type, ...], str, Callable[..., str]], ...] = (
    ((r.StepDone,), "step", lambda record: record.call.name),
    ((r.StepFailedEntry, r.AttemptFailed), "failed step", lambda record: record.call.name),
    ((r.EffectIntended,), "effect", lambda record: record.call.name),
    (
        (r.EffectDone, r.EffectFailed, r.EffectDoubted, r.EffectAgain),
        "effect",
        lambda record: f"of entry {record.intent}",
    ),
    ((r.ItemDone,), "item", lambda record: record.scope),
    ((r.StateChange,), "state", lambda record: f"{record.space}/{record.key}, version {record.version}"),
    ((r.EventAppended,), "event", lambda record: record.kind),
    ((r.SignalSent,), "signal", lambda record: f"{record.name} to run {record.run}"),
    ((r.CheckpointMade,), "checkpoint", lambda record: f"{record.name}, version {record.version}"),
    ((r.ArtifactSaved,), "artifact", lambda record: f"{record.name}, version {record.version}"),
    ((r.ThreadPut, r.ThreadWrote), "thread", lambda record: record.thread),
    ((r.MemoryKept, r.MemorySeen), "memory", lambda record: record.id),
    ((r.RunStarted, r.TaskQueued), "input", lambda record: record.run),
    ((r.RunFinishedEntry,), "result", lambda record: ""),
    ((r.RunFailed,), "failure", lambda record: ""),
    ((r.QuestionAsked, r.WaitBegan), "question", lambda record: ""),
    ((r.Answered, r.WaitEnded), "answer", lambda record: ""),
    ((r.Forked,), "fork", lambda record: record.run),
    ((r.WorkflowMade, r.WorkflowMoved), "workflow", lambda record: f"{record.name}, version {record.version}"),
    ((r.CarriedState,), "run.state", lambda record: record.key),
)


def drop_duplicates(found: Iterator[TextOccurrence]) -> list[TextOccurrence]:
    """Return each occurrence once, up to the limit."""
    kept: dict[TextOccurrence, None] = {}
    for trace in found:
        kept[trace] = None
        if len(kept) == TRACES_MAX:
            break
    return list(kept)
