"""What a round of syncing is about to do: the files, the journal, and what both were when they were last in step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING

import msgspec

from ..errors import PathRefused, PerdureError, ValueTooLarge
from ..handoff.desk import desk_of
from ..handoff.gathering import gather, names_of
from ..handoff.progress import Progress, Said
from ..handoff.progress_text import edits, parse, read_page
from .documents import Document, Shelf, decoded, digest, shelf_of, text_of
from .forgotten import without_forgotten
from .generated import Brief, Made, Steps
from .layout import (
    ARCHIVED,
    FOLDERS,
    GENERATED,
    HANDOFF,
    IDENTITY,
    LOGS,
    MARKER,
    MEMORY,
    NEW,
    OLD_PROGRESS,
    PROGRESS,
    TOP,
    is_path,
)
from .logs import Logged, logged_since, with_lines
from .merging import merge, merge_notes
from .placing import Saved, Strike
from .root import Displaced, Root

if TYPE_CHECKING:
    from ..engine import Engine


Under = str | tuple[str, ...]
"""How the paths begin of the files that are meant."""
Saves = Mapping[str, Sequence[Saved]]
"""By file, what somebody has saved that has lost its place."""


class Marker(msgspec.Struct, frozen=True):
    """What a folder says of itself."""

    agent: str = ""
    store: str = ""
    """Where the agent is, for commands that are given in the folder."""
    base: dict[str, str] = {}
    """By file, the digest of the text that it was last in step with."""
    seal: str = ""
    """What only the store of the agent can make: a folder from somewhere else does not have it."""


class Change(msgspec.Struct, frozen=True):
    """What becomes of one file; None is a file or a document that is not there."""

    path: str
    file: str | None
    seen: str | None
    """What people have saved in it, also what something else has the place of now."""
    document: Document | None
    wanted: Document | None


class Round(msgspec.Struct, frozen=True):
    """What one round is about to do."""

    shelf: Shelf
    marker: Marker
    changes: tuple[Change, ...]
    logged: Logged
    said: tuple[Said, ...]
    refused: tuple[PerdureError | OSError, ...] = ()
    """Files that cannot be read, and are left alone: links, pipes, what is too large."""
    saved: tuple[Displaced, ...] = ()
    """What is beside the files, and is in what is wanted."""


def marker_of(root: Root) -> Marker:
    """What a folder says; one that says nothing that can be read is as good as new."""
    data = root.read(MARKER)
    try:
        return msgspec.json.decode(data or b"{}", type=Marker)
    except msgspec.DecodeError:
        return Marker()


def seal_of(engine: Engine) -> str:
    """The seal of the folders that an agent has made its own."""
    name = engine.name.encode("utf-8", "surrogatepass")
    return blake2b(name, key=engine.store.secret[:64], person=b"workspace", digest_size=16).hexdigest()


def is_sealed(engine: Engine, marker: Marker) -> bool:
    """Whether this agent, in this store, has made a folder its own; else it only says so of itself."""
    return marker.agent == engine.name and compare_digest(marker.seal.encode(), seal_of(engine).encode())


def files_in(root: Root, refused: list[PerdureError | OSError] | None = None) -> list[str]:
    """The files of a workspace that are there; a folder that is none is left out, and told."""
    paths = [name for name in root.names() if name in TOP]
    for folder in FOLDERS:
        try:
            paths += [path for name in root.names(folder) if is_path(path := f"{folder}/{name}")]
        except PathRefused as error:
            (refused if refused is not None else []).append(error)
    return paths


def archived_in(root: Root) -> list[str]:
    """The logs that were put away."""
    with suppress(PathRefused):
        return [f"{ARCHIVED}/{name}" for name in root.names(ARCHIVED) if name.endswith(".md")]
    return []


class _Files:
    """The files that can be read; the others are nobody's business until they can."""

    def __init__(self, root: Root) -> None:
        self.refused: list[PerdureError | OSError] = []
        self.there = files_in(root, self.refused)
        self._root = root

    def read(self, paths: Iterable[str]) -> dict[str, str | None]:
        """What is in them."""
        found: dict[str, str | None] = {}
        for path in paths:
            try:
                data = self._root.read(path)
            except (PathRefused, ValueTooLarge, OSError) as error:
                self.refused.append(error)
                continue
            found[path] = None if data is None else decoded(data)
        return found


def planned(engine: Engine, root: Root, under: Under, strike: Strike, saves: Saves) -> Round:
    """Look at everything whose path begins like that, and at what was saved and has lost its place."""
    shelf, marker = shelf_of(engine), marker_of(root)
    if marker.agent not in ("", engine.name):
        marker = Marker()  # it was another agent's: what it was in step with is none of ours
    files, logged = _Files(root), Logged({}, shelf.logged)
    if f"{LOGS}/".startswith(under):
        logged = logged_since(engine, shelf.logged)
    wanted = {*files.there, *marker.base, *shelf.documents, *logged.lines, *IDENTITY, MEMORY, *GENERATED}
    meant = {path for path in wanted if is_path(path) and path.startswith(under)} | {*saves}
    texts = files.read(sorted(meant))
    if not {*logged.lines} <= {*texts}:
        logged = Logged({}, shelf.logged)  # one position says what is in all of them: they wait for each other
    looks = {path: _Look(engine, path, text, shelf, marker, saves.get(path, ())) for path, text in texts.items()}
    said, made = _made(engine, looks)
    changes = [look.change(logged.lines.get(path, ""), made.get(path)) for path, look in looks.items()]
    struck = tuple(_struck(it, strike) for it in changes)
    saved = tuple(one.it for path, text in texts.items() if text is not None for one in saves.get(path, ()))
    return Round(shelf, marker, struck, logged, tuple(_said(said, strike)), tuple(files.refused), saved)


def _struck(it: Change, strike: Strike) -> Change:
    """What must not be anywhere any more is in nothing that is written, wherever it came from."""
    if it.wanted is None:
        return it
    return msgspec.structs.replace(it, wanted=Document(strike(it.wanted.text), strike(it.wanted.rendered)))


def _said(said: Sequence[Said], strike: Strike) -> Iterable[Said]:
    for run, what in said:
        yield run, {name: strike(it) if isinstance(it, str) else [*map(strike, it)] for name, it in what.items()}


def _made(engine: Engine, looks: Mapping[str, _Look]) -> tuple[list[Said], dict[str, Made]]:
    """What people have said by editing the files that tell of progress; and those that are made, as they are now."""
    wanted, old = {*looks} & {*GENERATED}, looks.get(OLD_PROGRESS)
    said = old.said(parse) if old is not None else []
    if not wanted:
        return said, {}
    desk, made = desk_of(engine), dict[str, Made]()
    names, page = names_of(desk), looks.get(PROGRESS)
    said += page.said(lambda text: read_page(text, names).sections) if page is not None else []
    said = desk.hear(said)
    if PROGRESS in wanted:
        made[PROGRESS] = Steps(gather(desk), names)
    if HANDOFF in wanted:
        made[HANDOFF] = Brief(desk.markdown(), looks[HANDOFF].rendered)
    return said, made


class _Look:
    """One file: what it is, what the journal has, and what both were when they were last in step."""

    def __init__(
        self, engine: Engine, path: str, file: str | None, shelf: Shelf, marker: Marker, saves: Sequence[Saved]
    ) -> None:
        self._engine, self._path, self._file, self._shelf, self._marker = engine, path, file, shelf, marker
        self._known, self._saves = shelf.documents.get(path), saves

    @cached_property
    def _base(self) -> str | None:
        """What they were last in step with. Mostly that is what one of them has: then nothing is looked up."""
        wanted = self._marker.base.get(self._path)
        if wanted is None:
            return None
        for text in (self._known.text if self._known is not None else None, self._file):
            if text is not None and digest(text) == wanted:
                return text
        return text_of(self._engine, self._path, wanted)

    @cached_property
    def seen(self) -> str | None:
        """What people have saved in the file; if nobody can say what is new in it, without what was forgotten."""
        if self._file is None:
            return None
        text = self._unforgotten(self._file, self._base)
        for it in self._saves:
            saved = self._unforgotten(it.text, it.base)
            # What is made has no conflicts: it is made again.
            of_brief = self._path == HANDOFF and it.base is not None
            text = merge_notes(it.base or "", text, saved) if of_brief else merge(it.base, text, saved).text
        return text

    def _unforgotten(self, text: str, base: str | None) -> str:
        if base is not None:
            return text
        return without_forgotten(self._engine.store.secret, self._shelf.forgotten, text)

    @property
    def rendered(self) -> str:
        """What was made last, without what anybody has added."""
        return self._known.rendered if self._known is not None else ""

    def said(self, parsed: Callable[[str], Sequence[Progress]]) -> list[Said]:
        """What somebody has said by editing a page that tells of progress: in the journal, or in the file."""
        known = self._known.text if self._known is not None else ""
        found = list[Said]()
        if self._path in GENERATED and known != self.rendered:
            found += edits(parsed(self.rendered), parsed(known), removes=bool(self.rendered))
        if self.seen is None or (self._known is not None and self._file == known and not self._saves):
            return found
        before = known if self._base is None else self._base
        return [*found, *edits(parsed(before), parsed(self.seen), removes=self._base is not None)]

    def change(self, lines: str, made: Made | None) -> Change:
        """What becomes of it."""
        ours = self._ours(lines, made)
        if self.seen is None:
            return self._end(self._without_file(ours))
        if ours is None:
            return self._end(self._without_document(self.seen))
        if made is not None:
            return self._end(Document(made.with_edits(self._base, ours.text, self.seen), made.text))
        return self._end(Document(merge(self._base, ours.text, self.seen).text))

    def _end(self, wanted: Document | None) -> Change:
        return Change(self._path, self._file, self.seen, self._known, wanted)

    def _ours(self, lines: str, made: Made | None) -> Document | None:
        """What the journal has, with what was logged and what is made anew."""
        known = self._known
        if made is not None:
            return Document(made.text if known is None else made.over(known), made.text)
        if lines:
            return Document(with_lines(known.text if known is not None else None, self._path, lines))
        is_new = not self._shelf.revision and self._file is None and self._path in NEW
        return Document(NEW[self._path]) if is_new else known

    def _without_file(self, ours: Document | None) -> Document | None:
        """Somebody has removed it, and the journal has nothing new: then it is removed. Else it is written again."""
        base = self._marker.base.get(self._path)
        removed = base is not None and self._path not in GENERATED
        return None if removed and ours is not None and ours == self._known and digest(ours.text) == base else ours

    def _without_document(self, file: str) -> Document | None:
        """The journal has removed it, and nobody has edited it since; or it is new."""
        return None if self._marker.base.get(self._path) == digest(file) else Document(file)
