"""`playbooks/NAME.md`: the page of a playbook as a file. An edit by a person is the next version of the playbook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.data import state
from perdure.errors import PerdureError, WrongValue
from perdure.journal.agent_writes import AgentWrite, RequireRevision
from perdure.presence.handoff import readable
from perdure.presence.workspace.documents import WorkspaceDocument
from perdure.presence.workspace.generated import GeneratedFile
from perdure.presence.workspace.layout import PLAYBOOKS, is_path
from perdure.presence.workspace.merge import is_marked, merge
from perdure.values.limits import PLAYBOOK_PAGE_CHARACTERS_MAX
from perdure.work.playbooks import shelf
from perdure.work.playbooks.definition import Playbook, check_name
from perdure.work.playbooks.page import from_markdown, to_markdown

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class PlaybookShelf(msgspec.Struct, frozen=True):
    """The playbooks of an agent at one moment, by the paths of their files."""

    revision: int = 0
    books: dict[str, Playbook] = {}


def read_playbooks(engine: Engine) -> PlaybookShelf:
    """Read all playbooks whose names can be file names. The revision is read first, so it is never too new."""
    revision = state.revision(engine, shelf.SHELF)
    books = {path_of(book.name): book for book in shelf.read_playbooks(engine)}
    return PlaybookShelf(revision, {path: book for path, book in books.items() if is_path(path)})


def path_of(name: str) -> str:
    """Return the path of a playbook's file."""
    return f"{PLAYBOOKS}/{name}.md"


def is_playbook(path: str) -> bool:
    """Return whether a path is that of a playbook's file."""
    return path.startswith(f"{PLAYBOOKS}/")


class PlaybookFile(GeneratedFile):
    """The file of a playbook. What a person writes stays as written, until there is another version."""

    def __init__(self, book: Playbook) -> None:
        self.text = to_markdown(book)
        self._book = book

    def keep_additions(self, known: WorkspaceDocument) -> str:
        """A new version replaces the page, unless the page has changes that are not part of a version yet."""
        if known.rendered == self.text:
            return known.text
        if known.text == known.rendered or self._says(known.text, known.rendered):
            return self.text
        return merge(known.rendered or None, self.text, known.text).text

    def _says(self, text: str, rendered: str) -> bool:
        """Return whether a person's text says the same as the version that it became."""
        try:
            return not is_marked(text) and to_markdown(read_page(self._book, text)) == rendered
        except PerdureError:
            return False

    def merge_edits(self, base: str | None, ours: str, file: str) -> str:
        """Merge line by line. Conflicts are marked, and wait for a person."""
        return merge(base, ours, file).text


def read_page(before: Playbook, text: str) -> Playbook:
    """Read the page of a playbook from a file, which anybody may have written. Raises `WrongValue`."""
    if len(text) > PLAYBOOK_PAGE_CHARACTERS_MAX:
        raise WrongValue(f"the page has {len(text):,} characters, more than {PLAYBOOK_PAGE_CHARACTERS_MAX:,}")
    if readable(text) != text:
        raise WrongValue("the page is not UTF-8")
    return from_markdown(before, text)


class PagesRead(msgspec.Struct, frozen=True):
    """What the pages say after a round: new versions, and pages that are none."""

    documents: dict[str, WorkspaceDocument] = {}
    versions: tuple[Playbook, ...] = ()
    notes: tuple[str, ...] = ()


def read_pages(known: PlaybookShelf, pages: Mapping[str, WorkspaceDocument]) -> PagesRead:
    """Read the merged pages. One that cannot be read, or has open conflicts, leaves its playbook as it is."""
    documents: dict[str, WorkspaceDocument] = {}
    versions: list[Playbook] = []
    notes: list[str] = []
    for path, document in pages.items():
        name = path.removeprefix(f"{PLAYBOOKS}/").removesuffix(".md")
        before = known.books.get(path)
        if is_marked(document.text):
            continue
        try:
            book = read_page(before or Playbook(check_name(name)), document.text)
        except PerdureError as error:
            stays = "is no playbook yet" if before is None else f"stays at version {before.version}"
            notes.append(f"{path} cannot be read as a playbook, which {stays}: {error}")
            continue
        documents[path] = WorkspaceDocument(document.text, to_markdown(book))
        if before is None or to_markdown(before) != to_markdown(book):
            versions.append(book)
    return PagesRead(documents, tuple(versions), tuple(notes))


def make_version_writes(engine: Engine, known: PlaybookShelf, versions: Sequence[Playbook]) -> Iterable[AgentWrite]:
    """Return the writes that make the next versions, unless a playbook has changed since it was read."""
    if versions:
        yield RequireRevision((engine.stream, shelf.SHELF), known.revision)
    for book in versions:
        yield shelf.ask_version(engine, book)
