"""Putting a text in the place of a file that somebody else may save at that very moment.

What was in its place is looked at afterwards. Until all of it is in the journal it stays beside the file, under a name
that says which text it was taken for: who is killed in between has lost nothing, and the next round finds it. To be in
the file again is not enough: an editor that has read it in the meantime may save over that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from .documents import decoded, digest, encoded, text_of
from .layout import is_path
from .merging import merge
from .root import Displaced, Root

if TYPE_CHECKING:
    from ..engine import Engine

TRIES = 20
"""How often somebody may save a file while it is written; then it is left for the next round."""
_PATH_DIGITS, _TEXT_DIGITS = 12, 16
_TAG = re.compile(rf".+\.([0-9a-f]{{{_PATH_DIGITS}}})([0-9a-f]{{{_TEXT_DIGITS}}})\.\d+\.[0-9a-f]{{12}}(?:\.part)+")

Strike = Callable[[str], str]
"""Takes texts out of another that must not be in it any more."""


def as_it_is(text: str) -> str:
    """Nothing is to be taken out."""
    return text


class Outcome(StrEnum):
    """What became of a file."""

    WRITTEN = "written"
    """It is as it should be."""
    SAVED = "saved"
    """It has become more than that: somebody has saved it meanwhile, and that is beside it too."""
    MISSED = "missed"
    """Somebody has made or removed it meanwhile, and it was left alone."""
    PROTECTED = "protected"
    """It is read-only, and stays as it is."""


class Saved(msgspec.Struct, frozen=True):
    """What somebody has saved in a file that has another text now."""

    it: Displaced
    base: str | None
    """What he has changed; None when nobody knows."""
    text: str


def put(
    root: Root, path: str, before: str | None, text: str, bases: dict[str, str], strike: Strike = as_it_is
) -> Outcome:
    """Write one file that was `before`; None is a file that was not there.

    What was saved meanwhile is in it too, and beside it until the journal has it; `bases` gets what that was before.
    """
    if before is None:
        return Outcome.WRITTEN if root.make_new(path, encoded(text)) else Outcome.MISSED
    held = _swapped(root, path, (before, text), strike, bases)
    if held is None:
        return Outcome.MISSED
    return Outcome.SAVED if held else Outcome.WRITTEN


def put_alone(root: Root, path: str, before: str | None, text: str, strike: Strike = as_it_is) -> bool:
    """The same for a file that the journal does not have; False when somebody has made or removed it meanwhile."""
    if before is None:
        return root.make_new(path, encoded(text))
    held = _swapped(root, path, (before, text), strike, {})
    if held is not None and len(held) < TRIES:  # else the last one is not in the file yet
        let_go(root, held)
    return held is not None


def _swapped(
    root: Root, path: str, texts: tuple[str, str], strike: Strike, bases: dict[str, str]
) -> list[Displaced] | None:
    """Put the second text in place of the first; returns what others have saved there meanwhile, and is in it too."""
    held, (before, now) = list[Displaced](), texts
    while len(held) < TRIES:
        found = root.swap(path, encoded(now), _tag(path, before))
        if found is None:
            return None
        saved = decoded(found.data)
        if saved == before:
            let_go(root, [found])
            break
        held.append(found)
        bases[tag_of(before)] = before
        before, now = now, strike(merge(strike(before), now, strike(saved)).text)
    return held


def take_away(root: Root, path: str, before: str) -> Outcome:
    """Remove a file that was `before`; if somebody has saved it meanwhile, it stays."""
    found = root.displace(path, _tag(path, before))
    if found is None:
        return Outcome.WRITTEN
    if decoded(found.data) == before:
        let_go(root, [found])
        return Outcome.WRITTEN
    root.put_back(found)
    return Outcome.MISSED


def let_go(root: Root, held: Iterable[Displaced]) -> None:
    """Whoever still has one of them open may write to it: that one stays for the next round."""
    for it in held:
        if not it.busy:
            root.let_go(it)


def rescue(
    engine: Engine, root: Root, paths: Iterable[str], bases: Mapping[str, str], strike: Strike = as_it_is
) -> dict[str, list[Saved]]:
    """What people have saved in files that something else has the place of now: somebody was killed over them, they
    had them open for long, or it has just happened. By file; once the journal has it, it may go.

    `bases` are texts that the journal may not have.
    """
    known, found = {_path_tag(path): path for path in paths}, dict[str, list[Saved]]()
    for folder in sorted({path.rpartition("/")[0] for path in known.values()}):
        for name in root.asides(folder):
            tag = _TAG.fullmatch(name)
            if tag is None or tag[1] not in known or (it := root.beside(known[tag[1]], name)) is None:
                continue
            base = bases.get(tag[2])
            if it.busy or (base is None and _is_ours(engine, root, it, tag[2])) or root.put_back(it):
                continue  # somebody is not done with it yet, or it has its place again
            base = text_of(engine, it.path, tag[2]) if base is None else base
            saved = Saved(it, None if base is None else strike(base), strike(decoded(it.data)))
            found.setdefault(it.path, []).append(saved)
    return {path: saved for path, saved in found.items() if is_path(path) or not _merged_alone(root, path, saved)}


def tag_of(text: str) -> str:
    """By which what has lost its place says what it was taken for."""
    return digest(text)[:_TEXT_DIGITS]


def _is_ours(engine: Engine, root: Root, it: Displaced, taken_for: str) -> bool:
    """Whether nobody has saved anything there, or it never got its place: then it goes."""
    text = decoded(it.data)
    if not digest(text).startswith(taken_for) and text_of(engine, it.path, digest(text)) is None:
        return False
    root.let_go(it)
    return True


def _merged_alone(root: Root, path: str, saves: Iterable[Saved]) -> bool:
    """Into a file that the journal does not have."""
    for saved in saves:
        now = decoded(root.read(path) or b"")
        merged = merge(saved.base, now, saved.text).text
        if merged == now or put_alone(root, path, now, merged):
            root.let_go(saved.it)
    return True


def _tag(path: str, text: str) -> str:
    return _path_tag(path) + tag_of(text)


def _path_tag(path: str) -> str:
    return digest(path)[:_PATH_DIGITS]
