"""Plans a round of syncing: compares the files, the journal, and their last common version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import PathRefused, PerdureError, ValueTooLarge
from perdure.presence.handoff.gather import gather, names_of
from perdure.presence.handoff.pending import desk_of
from perdure.presence.handoff.progress import Progress, ProgressUpdate
from perdure.presence.handoff.progress_text import edits, parse, parse_page
from perdure.presence.workspace.documents import DocumentSet, WorkspaceDocument, decode_text, digest, shelf_of, text_of
from perdure.presence.workspace.generated import GeneratedFile, HandoffFile, ProgressFile
from perdure.presence.workspace.layout import (
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
    PLAYBOOKS,
    PROGRESS,
    TOP,
    is_path,
)
from perdure.presence.workspace.logs import LogUpdate, append_log_lines, read_logged_since
from perdure.presence.workspace.merge import merge, merge_notes
from perdure.presence.workspace.playbook_pages import (
    PagesRead,
    PlaybookFile,
    PlaybookShelf,
    is_playbook,
    read_pages,
    read_playbooks,
)
from perdure.presence.workspace.redactions import remove_forgotten
from perdure.presence.workspace.replace_file import RedactText, SavedCopy
from perdure.presence.workspace.root import DisplacedFile, WorkspaceRoot
from perdure.values.lazy import lazy

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


PathPrefix = str | tuple[str, ...]
"""The path prefixes to sync."""
SavedCopies = Mapping[str, Sequence[SavedCopy]]
"""By file, the saves of people in displaced files."""


class FolderMarker(msgspec.Struct, frozen=True):
    """The marker file of a folder."""

    agent: str = ""
    store: str = ""
    """The URL of the agent's store, for commands run in the folder."""
    base: dict[str, str] = {}
    """By file, the digest of the text that it was last synced with."""
    seal: str = ""
    """A keyed digest that only the agent's store can make, so that a foreign folder cannot fake it."""


class FileChange(msgspec.Struct, frozen=True):
    """The planned change of one file; None stands for a missing file or document."""

    path: str
    file: str | None
    seen: str | None
    """What people have saved in it, including displaced saves."""
    document: WorkspaceDocument | None
    wanted: WorkspaceDocument | None


class SyncRound(msgspec.Struct, frozen=True):
    """The plan of one round."""

    shelf: DocumentSet
    marker: FolderMarker
    changes: tuple[FileChange, ...]
    logged: LogUpdate
    said: tuple[ProgressUpdate, ...]
    refused: tuple[PerdureError | OSError, ...] = ()
    """Unreadable files, which are left alone: links, pipes, files that are too large."""
    saved: tuple[DisplacedFile, ...] = ()
    """Displaced files whose contents are part of the result."""
    playbooks: PlaybookShelf = PlaybookShelf()
    pages: PagesRead = PagesRead()
    """The playbooks when the round began, and what their pages say now."""


def marker_of(root: WorkspaceRoot) -> FolderMarker:
    """Read the marker of a folder. An unreadable one counts as missing."""
    data = root.read(MARKER)
    try:
        return msgspec.json.decode(data or b"{}", type=FolderMarker)
    except msgspec.DecodeError:
        return FolderMarker()


def seal_of(engine: Engine) -> str:
    """Return the seal of an agent's folders."""
    name = engine.name.encode("utf-8", "surrogatepass")
    return blake2b(name, key=engine.store.content_key, person=b"workspace", digest_size=16).hexdigest()


def is_sealed(engine: Engine, marker: FolderMarker) -> bool:
    """Return whether this agent has created the folder, in this store, rather than the folder only claiming so."""
    return marker.agent == engine.name and compare_digest(marker.seal.encode(), seal_of(engine).encode())


def files_in(root: WorkspaceRoot, refused: list[PerdureError | OSError] | None = None) -> list[str]:
    """Return the existing files of a workspace. Unreadable folders are skipped, and added to `refused`."""
    paths = [name for name in root.names() if name in TOP]
    for folder in FOLDERS:
        try:
            paths += [path for name in root.names(folder) if is_path(path := f"{folder}/{name}")]
        except PathRefused as error:
            (refused if refused is not None else []).append(error)
    return paths


def list_archived(root: WorkspaceRoot) -> list[str]:
    """Return the archived logs."""
    with suppress(PathRefused):
        return [f"{ARCHIVED}/{name}" for name in root.names(ARCHIVED) if name.endswith(".md")]
    return []


class _ReadableFiles:
    """Reads files, and collects those that cannot be read."""

    def __init__(self, root: WorkspaceRoot) -> None:
        self.refused: list[PerdureError | OSError] = []
        self.there = files_in(root, self.refused)
        self._root = root

    def read(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Return the contents of files."""
        found: dict[str, str | None] = {}
        for path in paths:
            try:
                data = self._root.read(path)
            except (PathRefused, ValueTooLarge, OSError) as error:
                self.refused.append(error)
                continue
            found[path] = None if data is None else decode_text(data)
        return found


def plan_sync(
    engine: Engine, root: WorkspaceRoot, under: PathPrefix, strike: RedactText, saves: SavedCopies
) -> SyncRound:
    """Plan the sync of all paths with a prefix, including displaced saves."""
    shelf, marker = shelf_of(engine), marker_of(root)
    if marker.agent not in ("", engine.name):
        marker = FolderMarker()  # of another agent: its versions mean nothing here
    files, logged = _ReadableFiles(root), LogUpdate({}, shelf.logged)
    if f"{LOGS}/".startswith(under):
        logged = read_logged_since(engine, shelf.logged)
    playbooks = read_playbooks(engine) if _may_have(under, PLAYBOOKS) else PlaybookShelf()
    known = {*shelf.documents, *playbooks.books}
    wanted = {*files.there, *marker.base, *known, *logged.lines, *IDENTITY, MEMORY, *GENERATED}
    meant = {path for path in wanted if is_path(path) and path.startswith(under)} | {*saves}
    texts = files.read(sorted(meant))
    if not {*logged.lines} <= {*texts}:
        logged = LogUpdate({}, shelf.logged)  # one position covers all logs, so all wait for the unreadable one
    looks = {path: _FileMerge(engine, path, text, shelf, marker, saves.get(path, ())) for path, text in texts.items()}
    said, made = _generate_files(engine, looks)
    made |= {path: PlaybookFile(book) for path, book in playbooks.books.items() if path in looks}
    changes = [look.change(logged.lines.get(path, ""), made.get(path)) for path, look in looks.items()]
    struck = [_redact_change(change, strike) for change in changes]
    pages = read_pages(
        playbooks, {one.path: one.wanted for one in struck if one.wanted is not None and is_playbook(one.path)}
    )
    done = tuple(
        msgspec.structs.replace(one, wanted=pages.documents.get(one.path, one.wanted)) if one.wanted else one
        for one in struck
    )
    saved = tuple(one.displaced for path, text in texts.items() if text is not None for one in saves.get(path, ()))
    told = tuple(_redact_progress(said, strike))
    return SyncRound(shelf, marker, done, logged, told, tuple(files.refused), saved, playbooks, pages)


def _may_have(under: PathPrefix, folder: str) -> bool:
    """Return whether paths with these prefixes may be in a folder."""
    prefixes = (under,) if isinstance(under, str) else under
    return any(f"{folder}/".startswith(prefix) or prefix.startswith(f"{folder}/") for prefix in prefixes)


def _redact_change(change: FileChange, strike: RedactText) -> FileChange:
    """Remove forgotten texts from everything that is written."""
    if change.wanted is None:
        return change
    return msgspec.structs.replace(
        change, wanted=WorkspaceDocument(strike(change.wanted.text), strike(change.wanted.rendered))
    )


def _redact_progress(said: Sequence[ProgressUpdate], strike: RedactText) -> Iterable[ProgressUpdate]:
    for run, what in said:
        yield (
            run,
            {name: strike(item) if isinstance(item, str) else [*map(strike, item)] for name, item in what.items()},
        )


def _generate_files(
    engine: Engine, looks: Mapping[str, _FileMerge]
) -> tuple[list[ProgressUpdate], dict[str, GeneratedFile]]:
    """Return the progress reported by edits, and the generated files in their current version."""
    wanted, old = {*looks} & {*GENERATED}, looks.get(OLD_PROGRESS)
    said = old.find_reported(parse) if old is not None else []
    if not wanted:
        return said, {}
    desk, made = desk_of(engine), dict[str, GeneratedFile]()
    names, page = names_of(desk), looks.get(PROGRESS)
    said += page.find_reported(lambda text: parse_page(text, names).sections) if page is not None else []
    said = desk.hear(said)
    if PROGRESS in wanted:
        made[PROGRESS] = ProgressFile(gather(desk), names)
    if HANDOFF in wanted:
        made[HANDOFF] = HandoffFile(desk.markdown(), looks[HANDOFF].rendered)
    return said, made


class _FileMerge:
    """Merges one file: its text, the document in the journal, and their last common version."""

    def __init__(
        self,
        engine: Engine,
        path: str,
        file: str | None,
        shelf: DocumentSet,
        marker: FolderMarker,
        saves: Sequence[SavedCopy],
    ) -> None:
        self._engine, self._path, self._file, self._shelf, self._marker = engine, path, file, shelf, marker
        self._known, self._saves = shelf.documents.get(path), saves

    @lazy
    def _base(self) -> str | None:
        """Return the last common version. Mostly one side still has it, and nothing is looked up."""
        wanted = self._marker.base.get(self._path)
        if wanted is None:
            return None
        for text in (self._known.text if self._known is not None else None, self._file):
            if text is not None and digest(text) == wanted:
                return text
        return text_of(self._engine, self._path, wanted)

    @lazy
    def read_saved_text(self) -> str | None:
        """Return what people have saved in the file. Without a base, forgotten lines are removed."""
        if self._file is None:
            return None
        text = self._unforgotten(self._file, self._base)
        for saved_file in self._saves:
            saved = self._unforgotten(saved_file.text, saved_file.base)
            # Generated text has no conflicts: it is generated again.
            of_brief = self._path == HANDOFF and saved_file.base is not None
            text = (
                merge_notes(saved_file.base or "", text, saved)
                if of_brief
                else merge(saved_file.base, text, saved).text
            )
        return text

    def _unforgotten(self, text: str, base: str | None) -> str:
        if base is not None:
            return text
        return remove_forgotten(self._engine.store.content_key, self._shelf.forgotten, text)

    @property
    def rendered(self) -> str:
        """The last generated text, without additions."""
        return self._known.rendered if self._known is not None else ""

    def find_reported(self, parsed: Callable[[str], Sequence[Progress]]) -> list[ProgressUpdate]:
        """Return the progress reported by editing the page, in the journal or in the file."""
        known = self._known.text if self._known is not None else ""
        found = list[ProgressUpdate]()
        if self._path in GENERATED and known != self.rendered:
            found += edits(parsed(self.rendered), parsed(known), removes=bool(self.rendered))
        if self.read_saved_text is None or (self._known is not None and self._file == known and not self._saves):
            return found
        before = known if self._base is None else self._base
        return [*found, *edits(parsed(before), parsed(self.read_saved_text), removes=self._base is not None)]

    def change(self, lines: str, made: GeneratedFile | None) -> FileChange:
        """Return the planned change."""
        ours = self._ours(lines, made)
        if self.read_saved_text is None:
            return self._end(ours if made is not None else self._resolve_missing_file(ours))
        if ours is None:
            return self._end(self._resolve_missing_document(self.read_saved_text))
        if made is not None:
            return self._end(
                WorkspaceDocument(made.merge_edits(self._base, ours.text, self.read_saved_text), made.text)
            )
        return self._end(WorkspaceDocument(merge(self._base, ours.text, self.read_saved_text).text))

    def _end(self, wanted: WorkspaceDocument | None) -> FileChange:
        return FileChange(self._path, self._file, self.read_saved_text, self._known, wanted)

    def _ours(self, lines: str, made: GeneratedFile | None) -> WorkspaceDocument | None:
        """Return the document with new log lines, or newly generated."""
        known = self._known
        if made is not None:
            return WorkspaceDocument(made.text if known is None else made.keep_additions(known), made.text)
        if lines:
            return WorkspaceDocument(append_log_lines(known.text if known is not None else None, self._path, lines))
        if known is not None and known.rendered and is_playbook(self._path):
            return None  # the playbook was deleted
        is_new = not self._shelf.revision and self._file is None and self._path in NEW
        return WorkspaceDocument(NEW[self._path]) if is_new else known

    def _resolve_missing_file(self, ours: WorkspaceDocument | None) -> WorkspaceDocument | None:
        """Delete the document if the file was removed and the journal has nothing new. Else restore the file."""
        base = self._marker.base.get(self._path)
        removed = base is not None and self._path not in GENERATED
        return None if removed and ours is not None and ours == self._known and digest(ours.text) == base else ours

    def _resolve_missing_document(self, file: str) -> WorkspaceDocument | None:
        """Return None if the document was removed and the file not edited since; else the file is new."""
        return None if self._marker.base.get(self._path) == digest(file) else WorkspaceDocument(file)
