"""Taking a text out of the documents: what else stands in them stays, and nothing of it comes back from a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .. import state
from ..failpoints import Site
from ..journal.landing import Unchanged, Wanted
from ..memory.forgetting import Redacted
from ..run.requests import Protocol, Read
from .documents import LOGGED, SPACE, Document, Shelf, ask, decoded, encoded, shelf_of, stored
from .home import Home, in_step
from .layout import ARCHIVE, LOGS, archived_from

if TYPE_CHECKING:
    from ..engine import Engine

FORGOTTEN = "[forgotten]"


def redact(engine: Engine, texts: Sequence[str]) -> Protocol[Redacted]:
    """Put a mark in place of texts, in all documents and in the files of the open folder."""
    home, archived = engine.home, tuple[str, ...]()
    if home is not None:
        yield from in_step(engine, home)  # what people have saved meanwhile is looked through too
        archived = yield Read(_archived, (home, texts))
    shelf: Shelf = yield Read(shelf_of, (engine,))
    had = {path: it for path, it in shelf.documents.items() if without(it.text, texts) != it.text}
    if had or archived:
        away = [log for path in archived if (log := archived_from(path)) not in shelf.documents]
        yield from state.land(engine, Site.STATE, _asks(engine, shelf, had, away, texts))
        if away:
            yield from state.land(engine, Site.STATE, [ask(engine, log, None) for log in away])
    if had and home is not None:
        yield from in_step(engine, home)
    paths = (*had, *archived)
    return Redacted(paths, _left_in(home, paths) if paths else ())


def _left_in(home: Home | None, paths: Sequence[str]) -> tuple[str, ...]:
    """Where else it may be, which is not for us to change."""
    if home is None:
        return ("a folder of the workspace that is not open here still has it, and brings it back when it is synced",)
    committed = os.path.exists(os.path.join(home.root.path, ".git"))
    return (f"git has what was committed of {', '.join(paths)}",) if committed else ()


def _asks(
    engine: Engine, shelf: Shelf, had: Mapping[str, Document], away: Sequence[str], texts: Sequence[str]
) -> list[Wanted]:
    new = {path: Document(without(it.text, texts), without(it.rendered, texts)) for path, it in had.items()}
    # An entry is erased as a whole. So what was written together with the text is written anew: how far the logs are
    # shown; and that old ones were put away, which needs something that can be.
    new |= dict.fromkeys(away, Document(FORGOTTEN))
    asks = [ask(engine, path, stored(it)) for path, it in new.items()]
    asks += [ask(engine, LOGGED, shelf.logged)] if shelf.logged else []
    return [Unchanged((engine.stream, SPACE), shelf.revision), *asks]


def without(text: str, texts: Sequence[str]) -> str:
    """A text with a mark in place of others, as a log has them too: with the lines after the first indented."""
    for needle in texts:
        for shape in (needle, "\n  ".join(needle.split("\n"))):
            text = text.replace(shape, FORGOTTEN)
    return text


def _archived(home: Home, texts: Sequence[str]) -> tuple[str, ...]:
    """The logs that were put away: they are files only."""
    folder, changed = f"{LOGS}/{ARCHIVE}", list[str]()
    for path in (f"{folder}/{name}" for name in home.root.names(folder)):
        before = decoded(home.root.read(path) or b"")
        if (after := without(before, texts)) != before:
            home.root.write(path, encoded(after))
            changed.append(path)
    return tuple(changed)
