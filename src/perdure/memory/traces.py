"""Where else a text is: in messages, recorded results, state, events, other memories, archives.

Everything that is stored is decoded and looked through, entry by entry. A text is found where it stands word for word;
and so is the summary of a conversation in which it does, whatever that has left of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .. import archive, objects, trees
from .. import records as r
from ..errors import ArchiveDamaged, PerdureError, ValueProblem
from ..journal.walk import all_streams, pages
from ..limits import TRACES_MAX
from ..lines import lines_of
from ..objects import PACKED_FIELDS
from ..run.functions import EXPLICIT
from ..run.spoken import SUMMED_UP
from ..store.base import Store
from ..trees.streams import Stream

if TYPE_CHECKING:
    from ..engine import Engine

SUFFIX = ".memories.jsonl"
"""Of archives of memories: one to a line, as JSON."""

SNAPSHOT = "snapshot"
"""The kind of what replays of events have kept: they begin anew without it."""

_NUMBERS = ("array", "arrays")
"""Kinds of artifacts that have no text."""

_CUT = "…".encode()
"""Where the end of a text was cut off, in a summary."""

_SUMMED_UP = EXPLICIT + SUMMED_UP.encode()

_BEGUN_MIN, _BEGUN_MAX = 16, 2_000
"""Bytes of a text that say something; and more of one than any summary has."""


class Trace(msgspec.Struct, frozen=True):
    """A place where the text of a memory stands too."""

    kind: str
    """`message`, `summary`, `step`, `effect`, `item`, `state`, `event`, `memory`, `archive`, `file` and so on."""
    what: str
    """Which one."""
    run: str = ""
    entry: tuple[int, int] = (0, 0)
    """The entry of the journal, by stream and number; (0, 0) for what is not in the journal."""
    left: str = ""
    """Why it was not erased; empty when it was, or when nobody asked for that."""

    def __str__(self) -> str:
        where = f" of run {self.run}" if self.run else ""
        return f"{self.kind} {self.what}{where}" + (f": {self.left}" if self.left else "")


def spellings(text: str) -> list[bytes]:
    """A text as it may stand somewhere: as it is, in one line, and within JSON, as the arguments of tools have it."""
    within = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return [one.encode() for one in dict.fromkeys([text, *within, "\n".join(lines_of(text)), " ".join(text.split())])]


class Looking:
    """Looks for texts in everything that a store has, apart from some entries."""

    def __init__(self, engine: Engine, texts: Sequence[str]) -> None:
        self._store: Store = engine.store
        self._needles = [needle for text in texts if text.strip() for needle in spellings(text.strip())]
        self._known: dict[bytes, bool] = {}
        """Objects that were looked into, and whether they have one of the texts."""
        rows = engine.store.read("all_runs")
        self._runs = {row[0]: row[2] for row in rows}
        self._agents: dict[int, str] = {row[0]: row[1] for row in rows}
        self._origins = {row[0]: (row[11], row[12]) for row in rows if row[11]}
        self._said: dict[int, list[tuple[int, int]]] = {}
        """By stream: messages that have one of the texts, by the number of their entry and their own."""

    def entries(self, apart: frozenset[tuple[int, int]]) -> Iterator[tuple[Trace, r.Record]]:
        """What the journal has, in its order."""
        for stream, *_ in all_streams(self._store):
            for page in pages(self._store, stream):
                for seq, kind, _, body, *_ in page:
                    if body is None or (stream, seq) in apart:
                        continue
                    record = r.decode(kind, body)
                    for what in (*self._found(record), *self._summaries(stream, seq, record)):
                        yield Trace(*what, self._runs.get(stream, ""), (stream, seq)), record

    def beside(self) -> Iterator[Trace]:
        """What is kept beside the journal: results of replays, and artifacts that are not whole yet."""
        if any(self._packed(value) for (value,) in self._store.read("all_replays")):
            yield Trace(SNAPSHOT, "what replays of events have kept")
        ids = [identity for (identity,) in self._store.read("all_pending", (0, "", 0))]
        if any(self.is_in(objects.content(self._store, *found)) for found in objects.rows_of(self._store, ids).items()):
            left = "it is on its way, and goes with `perdure gc` if nobody goes on with it for a day"
            yield Trace("artifact", "that is not whole yet", left=left)

    def agent_of(self, stream: int) -> str:
        """Whose run a stream is; empty for one that is none."""
        return self._agents.get(stream, "")

    def has(self, record: r.Record) -> bool:
        """Whether anything in a record has one of the texts."""
        return any(True for _ in self._found(record))

    def archives(self, folder: str) -> Iterator[Trace]:
        """Files of folded entries, and of memories that a rule has let go."""
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".jsonl.zst") and (left := self._in_archive(path)):
                yield Trace("archive", path, left=left)
            elif name.endswith(SUFFIX) and self.is_in(Path(path).read_bytes()):
                yield Trace("archive", path)

    def _in_archive(self, path: str) -> str:
        """Why it stays there, if it is there, or may be."""
        try:
            for line in archive.lines_of(path):
                entry = line.body if isinstance(line, archive.Entry) else None
                value = objects.restored(line.size, line.data) if isinstance(line, archive.Object) else None
                if self.is_in(entry or value or b""):
                    return "entries that were folded are in it, under a digest"
        except (ArchiveDamaged, ValueProblem):
            return "it is damaged, and nobody can tell what is in it"
        return ""

    def is_in(self, data: bytes) -> bool:
        """Whether some bytes have one of the texts."""
        return any(needle in data for needle in self._needles)

    def _packed(self, packed: bytes) -> bool:
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
                self._known[packed] = False  # dropped, and collected since: there is nothing to be found
        return self._known[packed]

    def _in_artifact(self, saved: r.ArtifactSaved) -> bool:
        """A file may be larger than any value: it is looked through chunk by chunk."""
        if saved.value not in self._known and saved.kind not in _NUMBERS:
            longest, before, has = max(map(len, self._needles), default=0), b"", False
            try:
                for _, chunk in Stream(self._store, saved.value, saved.size).chunks():
                    has = has or self.is_in(before + chunk)
                    before = (before + chunk)[-longest:]
            except PerdureError:
                pass  # dropped, and collected since
            self._known[saved.value] = has
        return self._known.get(saved.value, False)

    def _found(self, record: r.Record, around: tuple[str, str] | None = None) -> Iterator[tuple[str, str]]:
        """What has one of the texts: a record, or the one around it, if it has no name of its own."""
        what = in_words(record) or around or (type(record).__name__, "")
        if isinstance(record, r.ArtifactSaved) and self._in_artifact(record):
            yield what
        for name in record.__struct_fields__:
            if name == "value" and isinstance(record, r.ArtifactSaved):
                continue
            for part in _flat(getattr(record, name)):
                if isinstance(part, r.Record):
                    yield from self._found(part, what)
                elif isinstance(part, bytes):
                    if self._packed(part) if name in PACKED_FIELDS else self.is_in(part):
                        yield what
                elif isinstance(part, str) and self.is_in(part.encode("utf-8", "surrogatepass")):
                    yield what

    # -- summaries ----------------------------------------------------------------------------------------------------

    def _summaries(self, stream: int, seq: int, record: r.Record) -> Iterator[tuple[str, str]]:
        """What stands for a message that has the text may have some words of it, or say it in others."""
        for write in _writes_of(record):
            if write.op == r.Op.MESSAGE and self.has(write):
                self._said.setdefault(stream, []).append((seq, write.position))
        for upto, packed, summary in _summed_up(record):
            covers = any(position < upto for position in self._positions(stream))
            if (covers or self._is_begun_in(packed)) and not self.has(summary):
                yield in_words(summary) or ("summary", "")

    def _positions(self, stream: int) -> Iterator[int]:
        """The messages of a run that have it; a fork has those of its origin up to where they part."""
        upto: int | None = None
        while stream:
            yield from (position for seq, position in self._said.get(stream, ()) if upto is None or seq <= upto)
            stream, upto = self._origins.get(stream, (0, 0))

    def _is_begun_in(self, packed: bytes) -> bool:
        """Whether a text stands there with its end cut off: the message that it was cut from may be gone."""
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


def _writes_of(record: r.Record) -> Sequence[r.Write]:
    """What an entry of a run has written to the run's own data."""
    return (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())


def _summed_up(record: r.Record) -> Iterator[tuple[int, bytes, r.Record]]:
    """Summaries of messages in an entry: of those before which number, packed, and what has it.

    What a function has returned that sums up is the result of a step, and then a write.
    """
    for write in _writes_of(record):
        if write.op == r.Op.COMPACT and write.value:
            yield write.position, write.value, write
    if isinstance(record, r.StepDone) and record.call.ident.startswith(_SUMMED_UP):
        upto = record.call.ident.removeprefix(_SUMMED_UP)
        if upto.isdigit():
            yield int(upto), record.result, record


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def in_words(record: r.Record) -> tuple[str, str] | None:
    """What kind of thing a record is, and which one; nothing of what is only a part of one."""
    if isinstance(record, r.Write):
        return _WRITES.get(record.op, "write"), record.key
    for types, kind, words in _WORDS:
        if isinstance(record, types):
            return kind, words(record)
    return None


_WRITES = {
    r.Op.MESSAGE: "message",
    r.Op.SET: "run.state",
    r.Op.EVENT: "event",
    r.Op.RESULT: "result",
    r.Op.COMPACT: "summary",
}
_WORDS: tuple[tuple[tuple[type, ...], str, Callable[..., str]], ...] = (
    ((r.StepDone,), "step", lambda it: it.call.name),
    ((r.StepFailed, r.AttemptFailed), "failed step", lambda it: it.call.name),
    ((r.EffectIntended,), "effect", lambda it: it.call.name),
    ((r.EffectDone, r.EffectFailed, r.EffectDoubted, r.EffectAgain), "effect", lambda it: f"of entry {it.intent}"),
    ((r.ItemDone,), "item", lambda it: it.scope),
    ((r.StateChange,), "state", lambda it: f"{it.space}/{it.key}, version {it.version}"),
    ((r.Happened,), "event", lambda it: it.kind),
    ((r.SignalSent,), "signal", lambda it: f"{it.name} to run {it.run}"),
    ((r.CheckpointMade,), "checkpoint", lambda it: f"{it.name}, version {it.version}"),
    ((r.ArtifactSaved,), "artifact", lambda it: f"{it.name}, version {it.version}"),
    ((r.ThreadPut, r.ThreadWrote), "thread", lambda it: it.thread),
    ((r.MemoryKept, r.MemorySeen), "memory", lambda it: it.id),
    ((r.RunStarted, r.TaskQueued), "input", lambda it: it.run),
    ((r.RunFinished,), "result", lambda it: ""),
    ((r.RunFailed,), "failure", lambda it: ""),
    ((r.QuestionAsked, r.WaitBegan), "question", lambda it: ""),
    ((r.Answered, r.WaitEnded), "answer", lambda it: ""),
    ((r.Forked,), "fork", lambda it: it.run),
    ((r.WorkflowMade, r.WorkflowMoved), "workflow", lambda it: f"{it.name}, version {it.version}"),
    ((r.Carried,), "run.state", lambda it: it.key),
)


def once(found: Iterator[Trace]) -> list[Trace]:
    """Each place once, and so many at most."""
    kept: dict[Trace, None] = {}
    for trace in found:
        kept[trace] = None
        if len(kept) == TRACES_MAX:
            break
    return list(kept)
