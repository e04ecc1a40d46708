"""`<store>-mark`: a file next to a SQLite store that records the last acknowledged entries.

SQLite treats a damaged write-ahead log as one that ends there: it opens the store as of an earlier commit, without an
error. So every commit, after it has landed and before it is acknowledged, appends a line to a second file, without a
sync: the new heads of its streams, and the effects that may begin. A process that opens the store looks up the last
heads in the journal. A loss always affects the end of the journal, so a missing head reveals it.

    "PdM1", CRC-32 of the rest, length of the rest, then a `MarkedCommit` as MessagePack

Each line is independent. A mark that is missing, old, torn or of another store proves nothing, so a sound store is
never reported. SIGKILL loses no line, because the page cache survives. After a power cut the database may be ahead of
the mark, never behind: a line is written after its commit was synced. Commits with `durability="process"` are not
synced, so their lines count only until the machine restarts.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec

from perdure.platform.process import identify_this_process
from perdure.records import CallIdentity, EffectAgain, EffectIntended, EntryKind, Forked, RunStarted, decode
from perdure.records.stores import EntriesLost, LostEntries, LostIntent
from perdure.store.base import Rows

SUFFIX = "-mark"
MAGIC = b"PdM1"
_FRAME = struct.Struct("<4sII")
_pack_frame = _FRAME.pack

LINK_BYTES = 8
"""The stored part of a 32-byte link: enough to tell histories apart."""

MARK_BYTES_MAX = 1 << 19
MARK_BYTES_KEPT = 1 << 18
"""A larger mark is cut to its newest part, which is several times what a log holds."""

TAIL_BYTES = 1 << 14
"""How much is read when a store is opened."""

PROBES, PROBE_BYTES = 4, 1 << 12
"""How many places of the mark, and how much at each, are checked after the database file was written."""

INTENTS_MAX = 256
"""Intents per line; importing an agent may commit more, which the line then notes."""

_TOLD = frozenset({EntryKind.EFFECT_INTENDED, EntryKind.EFFECT_AGAIN, EntryKind.RUN_STARTED, EntryKind.FORKED})
"""Entries that the mark describes in detail."""

TOLD_MAX = 5
"""How many runs, and effects of each, an error names."""

MarkEntry = tuple[Any, ...]
"""The arguments of `append_entry`: stream, seq, kind, at, body, chain, fence."""

ReadQuery = Callable[[str, tuple[Any, ...]], Rows]


class MarkedHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The entries of one stream in one commit."""

    stream: int
    first: int
    last: int
    link: bytes
    """The first bytes of the link of the last entry."""


class MarkedIntent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An effect that may begin."""

    stream: int
    seq: int
    intent: LostIntent


class MarkedCommit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The entries that one commit added to the journal."""

    store: bytes
    """The first bytes of the store's identity: another file may have had this name."""
    adoptions: int
    """How often losses of this store had been accepted."""
    boot: bytes
    synced: bool
    heads: tuple[MarkedHead, ...]
    intents: tuple[MarkedIntent, ...] = ()
    names: tuple[tuple[int, str], ...] = ()
    """Streams and names of runs that began."""
    more: bool = False


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(MarkedCommit).decode


def call_digest(secret: bytes, call: CallIdentity) -> bytes:
    """Identify a call without storing its scope and arguments, which may have to be forgotten."""
    return blake2b(_ENCODE(call), digest_size=16, key=secret[:32]).digest()


def forget_marked(path: str, texts: Sequence[bytes], *, everything: bool) -> None:
    """Remove the lines that contain one of these texts, or all lines if the texts are no longer known."""
    name = path + SUFFIX
    kept = (
        []
        if everything
        else [line for line in lines(_read(name, 0, MARK_BYTES_MAX * 2)) if not _is_in_journal(line, texts)]
    )
    with suppress(FileNotFoundError):
        fd = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(fd, 0)
            os.write(fd, b"".join(map(_frame_line, kept)))
        finally:
            os.close(fd)


def is_marked(path: str) -> bool:
    """Whether a store at this path has acknowledged anything."""
    return bool(lines(_read(path + SUFFIX, -TAIL_BYTES, TAIL_BYTES)))


def remove_mark(path: str) -> None:
    """Delete the mark, because a new file has taken the path."""
    with suppress(FileNotFoundError):
        os.unlink(path + SUFFIX)


class DurabilityMark:
    """The mark of an open store. Only the current writer writes it."""

    def __init__(self, path: str, identity: bytes, secret: bytes, adoptions: int, *, synced: bool) -> None:
        self.path = path + SUFFIX
        self.adoptions = adoptions
        self._secret = secret
        self._process = identify_this_process()
        self._store = identity[:8]
        self._boot = blake2b(self._process.boot.encode(), digest_size=8).digest()
        self._prefix = (self._store, adoptions, self._boot, synced)
        """The first fields of each line."""
        self._start = _ENCODE((*self._prefix, None))[:-1]
        """The encoded start of a line that has one field more, the heads."""
        self._fd: int | None = None
        self._unchecked = 0
        """Bytes that may be written before the next check of its size, which is unknown at first."""

    def write(self, entries: Sequence[MarkEntry]) -> None:
        """Append the entries of a commit. On a full disk the line is skipped: the commit itself has landed."""
        # Encoded as a `MarkedCommit`; tuples are faster to build, and fields at the end have defaults.
        if len(entries) == 1:  # nearly always
            entry = entries[0]
            seq = entry[1]
            heads = ((entry[0], seq, seq, entry[5][:LINK_BYTES]),)
            if entry[2] in _TOLD:
                body = _ENCODE((*self._prefix, heads, *self._details(entries)))
            else:
                body = self._start + _ENCODE(heads)
        else:
            told = self._details([entry for entry in entries if entry[2] in _TOLD])
            body = _ENCODE((*self._prefix, _heads_of(entries), *told))
        line = _pack_frame(MAGIC, crc32(body), len(body)) + body
        self._unchecked -= len(line)
        try:
            if self._fd is None or self._unchecked < 0:
                self._append_checked(line)
            else:
                os.write(self._fd, line)
        except OSError:
            self._unchecked = 0  # check the size before the next line

    def _details(self, entries: Iterable[MarkEntry]) -> tuple[object, ...]:
        """Return the last fields of a `MarkedCommit`: intents, names, and whether there are more intents."""
        intents: list[MarkedIntent] = []
        names: list[tuple[int, str]] = []
        for stream, seq, kind, at, body, _, _ in entries:
            record = decode(kind, body)
            if isinstance(record, EffectIntended):
                digest, call = call_digest(self._secret, record.call), record.call
                intent = LostIntent(digest, call.name, record.key, self._process, record.timeout_ms, at)
                intents.append(MarkedIntent(stream, seq, intent))
            elif isinstance(record, EffectAgain):
                intents.append(MarkedIntent(stream, seq, LostIntent(b"", "", "", self._process, 0, at, record.intent)))
            elif isinstance(record, RunStarted | Forked):
                names.append((stream, f"{record.agent}/{record.run}"))
        return intents[:INTENTS_MAX], names, len(intents) > INTENTS_MAX

    def _append_checked(self, line: bytes) -> None:
        """Append a line to a file that may have to be opened or cut."""
        if self._fd is None:
            flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o600)
        self._unchecked = MARK_BYTES_MAX // 8
        if os.fstat(self._fd).st_size > MARK_BYTES_MAX:
            self._truncate(line)
        else:
            os.write(self._fd, line)

    def _truncate(self, line: bytes) -> None:
        """Cut the mark in place: other processes have the same file open and append at its new end."""
        assert self._fd is not None
        newest = os.pread(self._fd, MARK_BYTES_KEPT, os.fstat(self._fd).st_size - MARK_BYTES_KEPT)
        os.ftruncate(self._fd, 0)
        os.write(self._fd, newest[max(newest.find(MAGIC), 0) :] + line)

    def read_newest(self) -> list[MarkedCommit]:
        """The last lines."""
        return self._parse_lines(_read(self.path, -TAIL_BYTES, TAIL_BYTES))

    def read_all(self) -> list[MarkedCommit]:
        """Every line, oldest first."""
        return self._parse_lines(_read(self.path, 0, MARK_BYTES_MAX * 2))

    def compute_adoptions(self) -> int:
        """Return the value of `adoptions` that invalidates every line of the mark."""
        return 1 + max((marked.adoptions for marked in self.read_all()), default=self.adoptions)

    def probes(self) -> list[MarkedCommit]:
        """Sample lines from all over the mark."""
        size = self._size()
        places = {size * number // PROBES for number in range(PROBES)}
        return [marked for at in sorted(places) for marked in self._parse_lines(_read(self.path, at, PROBE_BYTES))]

    def _size(self) -> int:
        try:
            return os.stat(self.path, follow_symlinks=False).st_size
        except OSError:
            return 0

    def _parse_lines(self, data: bytes) -> list[MarkedCommit]:
        found = []
        for line in lines(data):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                marked = _DECODE(line)
                if (
                    marked.store == self._store
                    and marked.adoptions >= self.adoptions
                    and (marked.synced or marked.boot == self._boot)
                ):
                    found.append(marked)
        return found

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _read(path: str, at: int, count: int) -> bytes:
    """Read bytes of a mark; a negative `at` counts from the end."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return b""
    try:
        return os.pread(fd, count, at if at >= 0 else max(0, os.fstat(fd).st_size + at))
    finally:
        os.close(fd)


def _heads_of(entries: Sequence[MarkEntry]) -> tuple[MarkedHead, ...]:
    heads: dict[int, MarkedHead] = {}
    for stream, seq, _, _, _, link, _ in entries:
        first = heads[stream].first if stream in heads else seq
        heads[stream] = MarkedHead(stream, first, seq, link[:LINK_BYTES])
    return tuple(heads.values())


def _frame_line(body: bytes) -> bytes:
    return _pack_frame(MAGIC, crc32(body), len(body)) + body


def _is_in_journal(line: bytes, texts: Sequence[bytes]) -> bool:
    return any(text in line for text in texts)


def lines(data: bytes) -> list[bytes]:
    """Return the whole lines in a piece of a mark and skip torn ones."""
    found, at = [], data.find(MAGIC)
    while at >= 0 and at + _FRAME.size <= len(data):
        _, checksum, length = _FRAME.unpack_from(data, at)
        body = data[at + _FRAME.size : at + _FRAME.size + length]
        whole = len(body) == length and crc32(body) == checksum
        if whole:
            found.append(body)
        at = data.find(MAGIC, at + (_FRAME.size + length if whole else 1))
    return found


# -- comparing it with the journal ------------------------------------------------------------------------------------


def has_all_heads(read: ReadQuery, marks: Iterable[MarkedCommit]) -> bool:
    """Whether the newest head of every stream in these lines is in the journal."""
    newest = {head.stream: head for marked in marks for head in marked.heads}
    return all(_is_there(read, head) for head in newest.values())


def _is_there(read: ReadQuery, head: MarkedHead) -> bool:
    rows = read("chain_at", (head.stream, head.last))
    if rows:
        link = rows[0][0]
        return isinstance(link, bytes) and link[:LINK_BYTES] == head.link
    compaction = read("last_compaction", (head.stream,))
    if not compaction:
        return False
    # Compacted since: the chain continues from there, and `verify` checks it.
    return int(compaction[0][0]) > head.last


def losses(read: ReadQuery, marks: Sequence[MarkedCommit]) -> tuple[LostEntries, ...]:
    """Return the entries that the mark has and the journal lacks, by stream."""
    heads: dict[int, list[tuple[MarkedHead, bool]]] = {}
    for marked in marks:
        for head in marked.heads:
            heads.setdefault(head.stream, []).append((head, marked.more))
    return tuple(
        _loss_of(read, stream, known, marks)
        for stream, known in sorted(heads.items())
        if not _is_there(read, known[-1][0])
    )


def _loss_of(
    read: ReadQuery, stream: int, known: Sequence[tuple[MarkedHead, bool]], marks: Sequence[MarkedCommit]
) -> LostEntries:
    gone = [(head, more) for head, more in known if not _is_there(read, head)]
    end = read("head_of", (stream,))
    kept = min(int(end[0][0]) if end else 0, gone[0][0].first - 1)
    reached = kept
    for head, more in gone:
        if head.first > reached + 1 or more:
            break
        reached = head.last
    intents = tuple(
        marked.intent for line in marks for marked in line.intents if marked.stream == stream and marked.seq > kept
    )
    last = known[-1][0].last
    return LostEntries(stream, _name_of(read, stream, marks), EntriesLost(kept + 1, last, intents, reached == last))


def _name_of(read: ReadQuery, stream: int, marks: Iterable[MarkedCommit]) -> str:
    rows = read("streams_page", (stream - 1, 1))
    if rows and rows[0][0] == stream:
        return str(rows[0][2])
    return next((name for marked in marks for number, name in marked.names if number == stream), "")


def describe_loss(path: str, found: Sequence[LostEntries]) -> str:
    """Describe the missing entries for people."""
    told = "; ".join(map(describe_lost, found[:TOLD_MAX]))
    more = f"; and of {len(found) - TOLD_MAX} more" if len(found) > TOLD_MAX else ""
    return f"{path} was restored to an earlier state. These acknowledged entries are missing: {told}{more}"


def describe_lost(one: LostEntries) -> str:
    """Describe the missing entries of one stream."""
    lost = one.lost
    which = f"entry {lost.last}" if lost.first == lost.last else f"entries {lost.first} to {lost.last}"
    begun = [intent for intent in lost.intents if intent.key]
    effects = ", ".join(f"{intent.name} with key {intent.key}" for intent in begun[:TOLD_MAX])
    if len(begun) > TOLD_MAX:
        effects += f" and {len(begun) - TOLD_MAX} more effects"
    unknown = "" if lost.complete else "; the effects that started in them are unknown"
    return f"{which} of {one.name or f'stream {one.stream}'}{f' (started: {effects})' if effects else ''}{unknown}"
