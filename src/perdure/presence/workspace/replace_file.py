"""Replaces a file that a person may save at the same moment.

The displaced file is examined afterwards. It stays next to the new one until the journal has all of it, under a name
that says which text was expected there, so a crash loses nothing and the next round finds it. Merging it back into the
file would not be enough: an editor that has the file open may overwrite that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from perdure.presence.workspace.documents import decode_text, digest, encode_text, text_of
from perdure.presence.workspace.layout import is_path
from perdure.presence.workspace.merge import merge
from perdure.presence.workspace.root import DisplacedFile, WorkspaceRoot

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

TRIES = 20
"""How often a file may be saved while it is written; then it is left for the next round."""
_PATH_DIGITS, _TEXT_DIGITS = 12, 16
_TAG = re.compile(rf".+\.([0-9a-f]{{{_PATH_DIGITS}}})([0-9a-f]{{{_TEXT_DIGITS}}})\.\d+\.[0-9a-f]{{12}}(?:\.part)+")

RedactText = Callable[[str], str]
"""Removes forgotten texts from another text."""


def keep_text(text: str) -> str:
    """Return the text unchanged: nothing is forgotten."""
    return text


class PlacementOutcome(StrEnum):
    """What became of a file."""

    WRITTEN = "written"
    """It has the new text."""
    SAVED = "saved"
    """It has the new text merged with a concurrent save, which is also kept next to it."""
    MISSED = "missed"
    """It was created or removed meanwhile, and left alone."""
    PROTECTED = "protected"
    """It is read-only, and left alone."""


class SavedCopy(msgspec.Struct, frozen=True):
    """A save by a person in a file that was replaced."""

    displaced: DisplacedFile
    base: str | None
    """The text that the person edited; None if unknown."""
    text: str


def place_file(
    root: WorkspaceRoot,
    path: str,
    before: str | None,
    text: str,
    bases: dict[str, str],
    strike: RedactText = keep_text,
) -> PlacementOutcome:
    """Write a file that contained `before`; None if it did not exist.

    Concurrent saves are merged, and kept next to it until the journal has them; `bases` collects their bases.
    """
    if before is None:
        return PlacementOutcome.WRITTEN if root.make_new(path, encode_text(text)) else PlacementOutcome.MISSED
    held = _swap_text(root, path, (before, text), strike, bases)
    if held is None:
        return PlacementOutcome.MISSED
    return PlacementOutcome.SAVED if held else PlacementOutcome.WRITTEN


def place_unjournaled(
    root: WorkspaceRoot, path: str, before: str | None, text: str, strike: RedactText = keep_text
) -> bool:
    """Write a file that is not in the journal. Returns False if it was created or removed meanwhile."""
    if before is None:
        return root.make_new(path, encode_text(text))
    held = _swap_text(root, path, (before, text), strike, {})
    if held is not None and len(held) < TRIES:  # otherwise the last save is not merged yet
        release_displaced(root, held)
    return held is not None


def _swap_text(
    root: WorkspaceRoot, path: str, texts: tuple[str, str], strike: RedactText, bases: dict[str, str]
) -> list[DisplacedFile] | None:
    """Replace the first text by the second. Returns the concurrent saves, which are merged."""
    held, (before, now) = list[DisplacedFile](), texts
    while len(held) < TRIES:
        found = root.swap(path, encode_text(now), _tag(path, before))
        if found is None:
            return None
        saved = decode_text(found.data)
        if saved == before:
            release_displaced(root, [found])
            break
        held.append(found)
        bases[tag_of(before)] = before
        before, now = now, strike(merge(strike(before), now, strike(saved)).text)
    return held


def remove_unchanged(root: WorkspaceRoot, path: str, before: str) -> PlacementOutcome:
    """Remove a file that contained `before`. If it was saved meanwhile, it stays."""
    found = root.displace(path, _tag(path, before))
    if found is None:
        return PlacementOutcome.WRITTEN
    if decode_text(found.data) == before:
        release_displaced(root, [found])
        return PlacementOutcome.WRITTEN
    root.restore_displaced(found)
    return PlacementOutcome.MISSED


def release_displaced(root: WorkspaceRoot, held: Iterable[DisplacedFile]) -> None:
    """Delete displaced files. One that is still open stays for the next round, because it may be written to."""
    for displaced in held:
        if not displaced.busy:
            root.drop_displaced(displaced)


def rescue(
    engine: Engine, root: WorkspaceRoot, paths: Iterable[str], bases: Mapping[str, str], strike: RedactText = keep_text
) -> dict[str, list[SavedCopy]]:
    """Return by file the saves of people in displaced files. They may be deleted once the journal has them.

    They remain after a crash, while an editor keeps them open, or from a moment ago. `bases` are texts that may not be
    in the journal.
    """
    known, found = {_path_tag(path): path for path in paths}, dict[str, list[SavedCopy]]()
    for folder in sorted({path.rpartition("/")[0] for path in known.values()}):
        for name in root.asides(folder):
            tag = _TAG.fullmatch(name)
            if tag is None or tag[1] not in known or (displaced := root.find_displaced(known[tag[1]], name)) is None:
                continue
            base = bases.get(tag[2])
            if (
                displaced.busy
                or (base is None and _is_ours(engine, root, displaced, tag[2]))
                or root.restore_displaced(displaced)
            ):
                continue  # still open, or back in place
            base = text_of(engine, displaced.path, tag[2]) if base is None else base
            saved = SavedCopy(displaced, None if base is None else strike(base), strike(decode_text(displaced.data)))
            found.setdefault(displaced.path, []).append(saved)
    return {path: saved for path, saved in found.items() if is_path(path) or not _merge_saves(root, path, saved)}


def tag_of(text: str) -> str:
    """Return the tag in the name of a displaced file that identifies the expected text."""
    return digest(text)[:_TEXT_DIGITS]


def _is_ours(engine: Engine, root: WorkspaceRoot, displaced: DisplacedFile, taken_for: str) -> bool:
    """Return whether a displaced file holds only our own text, so that it can be deleted."""
    text = decode_text(displaced.data)
    if not digest(text).startswith(taken_for) and text_of(engine, displaced.path, digest(text)) is None:
        return False
    root.drop_displaced(displaced)
    return True


def _merge_saves(root: WorkspaceRoot, path: str, saves: Iterable[SavedCopy]) -> bool:
    """Merge saves into a file that is not in the journal."""
    for saved in saves:
        now = decode_text(root.read(path) or b"")
        merged = merge(saved.base, now, saved.text).text
        if merged == now or place_unjournaled(root, path, now, merged):
            root.drop_displaced(saved.displaced)
    return True


def _tag(path: str, text: str) -> str:
    return _path_tag(path) + tag_of(text)


def _path_tag(path: str) -> str:
    return digest(path)[:_PATH_DIGITS]
