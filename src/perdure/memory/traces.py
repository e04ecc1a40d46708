"""Where else a text is: in messages, recorded results, state, events, other memories, archives.

Everything that is stored is decoded and looked through, entry by entry. A text is found where it stands word for word.
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
from ..errors import ArchiveDamaged, PerdureError
from ..journal.walk import all_streams, pages
from ..limits import TRACES_MAX
from ..objects import PACKED_FIELDS
from ..store.base import Store

if TYPE_CHECKING:
    from ..engine import Engine

SUFFIX = ".memories.jsonl"
"""Of archives of memories: one to a line, as JSON."""


class Trace(msgspec.Struct, frozen=True):
    """A place where the text of a memory stands too."""

    kind: str
    """`message`, `step`, `effect`, `item`, `state`, `event`, `memory`, `archive` and so on."""
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
    """A text as it may stand somewhere: as it is, and within JSON, as the arguments and results of tools have it."""
    within = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return [one.encode() for one in dict.fromkeys([text, *within])]


class Looking:
    """Looks for texts in everything that a store has, apart from some entries."""

    def __init__(self, engine: Engine, texts: Sequence[str]) -> None:
        self._store: Store = engine.store
        self._needles = [needle for text in texts if text.strip() for needle in spellings(text.strip())]
        self._known: dict[bytes, bool] = {}
        """Objects that were looked into, and whether they have one of the texts."""
        self._runs = {row[0]: row[2] for row in engine.store.read("all_runs")}

    def entries(self, apart: frozenset[tuple[int, int]]) -> Iterator[tuple[Trace, r.Record]]:
        """What the journal has, in its order."""
        for stream, *_ in all_streams(self._store):
            for page in pages(self._store, stream):
                for seq, kind, _, body, *_ in page:
                    if body is None or (stream, seq) in apart:
                        continue
                    record = r.decode(kind, body)
                    for what in self._found(record):
                        yield Trace(*what, self._runs.get(stream, ""), (stream, seq)), record

    def has(self, record: r.Record) -> bool:
        """Whether anything in a record has one of the texts."""
        return any(True for _ in self._found(record))

    def archives(self, folder: str) -> Iterator[Trace]:
        """Files of folded entries, and of memories that a rule has let go."""
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".jsonl.zst") and self._in_archive(path):
                yield Trace("archive", path, left="entries that were folded are in it, under a digest")
            elif name.endswith(SUFFIX) and self.is_in(Path(path).read_bytes()):
                yield Trace("archive", path)

    def _in_archive(self, path: str) -> bool:
        try:
            for line in archive.lines_of(path):
                if isinstance(line, archive.Entry) and line.body is not None and self.is_in(line.body):
                    return True
                if isinstance(line, archive.Object) and self.is_in(objects.restored(line.size, line.data)):
                    return True
        except ArchiveDamaged:
            return False
        return False

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

    def _found(self, record: r.Record) -> Iterator[tuple[str, str]]:
        for name in record.__struct_fields__:
            value = getattr(record, name)
            parts = value if isinstance(value, tuple) else (value,)
            for part in parts:
                if isinstance(part, r.Record):
                    yield from self._found(part)
                elif isinstance(part, bytes):
                    if name in PACKED_FIELDS and self._packed(part):
                        yield in_words(record)
                elif isinstance(part, str) and self.is_in(part.encode("utf-8", "surrogatepass")):
                    yield in_words(record)


def in_words(record: r.Record) -> tuple[str, str]:
    """What kind of thing a record is, and which one."""
    if isinstance(record, r.Write):
        return _WRITES.get(record.op, "write"), record.key
    for types, kind, words in _WORDS:
        if isinstance(record, types):
            return kind, words(record)
    return type(record).__name__, ""


_WRITES = {r.Op.MESSAGE: "message", r.Op.SET: "run.state", r.Op.EVENT: "event", r.Op.RESULT: "result"}
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
)


def once(found: Iterator[Trace]) -> list[Trace]:
    """Each place once, and so many at most."""
    kept: dict[Trace, None] = {}
    for trace in found:
        kept[trace] = None
        if len(kept) == TRACES_MAX:
            break
    return list(kept)
