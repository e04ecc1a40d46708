"""Putting a text in the place of a file that somebody else may save at that very moment.

What was in its place is looked at afterwards. Until all of it is in the file again it stays beside it, under a name
that says which text it was taken for: who is killed in between has lost nothing, and the next round finds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from .documents import decoded, digest, encoded, text_of
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
    MERGED = "merged"
    """It has become more than that: somebody has saved it meanwhile."""
    MISSED = "missed"
    """Somebody has made or removed it meanwhile, and it was left alone."""
    PROTECTED = "protected"
    """It is read-only, and stays as it is."""


def put(root: Root, path: str, before: str | None, text: str, strike: Strike = as_it_is) -> Outcome:
    """Write one file that was `before`; None is a file that was not there."""
    if before is None:
        return Outcome.WRITTEN if root.make_new(path, encoded(text)) else Outcome.MISSED
    held, now = list[Displaced](), text
    for _ in range(TRIES):
        found = root.swap(path, encoded(now), _tag(path, before))
        if found is None:
            return Outcome.MISSED
        held.append(found)
        saved = decoded(found.data)
        if saved == before:
            _let_go(root, held)
            return Outcome.WRITTEN if now == text else Outcome.MERGED
        before, now = now, strike(merge(strike(before), now, strike(saved)).text)
    return Outcome.MERGED


def take_away(root: Root, path: str, before: str) -> Outcome:
    """Remove a file that was `before`; if somebody has saved it meanwhile, it stays."""
    found = root.displace(path, _tag(path, before))
    if found is None:
        return Outcome.WRITTEN
    if decoded(found.data) == before:
        _let_go(root, [found])
        return Outcome.WRITTEN
    root.put_back(found)
    return Outcome.MISSED


def _let_go(root: Root, held: Iterable[Displaced]) -> None:
    """Whoever still has one of them open may write to it: that one stays for the next round."""
    for it in held:
        if not it.busy:
            root.let_go(it)


def rescue(engine: Engine, root: Root, paths: Iterable[str]) -> None:
    """Bring back what people had saved in files that somebody was killed over, or that they had open for long."""
    known = {_path_tag(path): path for path in paths}
    for folder in sorted({path.rpartition("/")[0] for path in known.values()}):
        for name in root.asides(folder):
            tag = _TAG.fullmatch(name)
            if tag is not None and tag[1] in known and (found := root.beside(known[tag[1]], name)) is not None:
                _rescued(engine, root, found, tag[2])


def _rescued(engine: Engine, root: Root, found: Displaced, taken_for: str) -> None:
    text = decoded(found.data)
    if found.busy:
        return  # somebody is not done with it yet
    if digest(text).startswith(taken_for) or text_of(engine, found.path, digest(text)) is not None:
        root.let_go(found)  # nobody has saved anything there, or it is ours, and never got its place
        return
    data = root.read(found.path)
    if data is None:
        root.put_back(found)
        return
    now = decoded(data)
    merged = merge(text_of(engine, found.path, taken_for), now, text).text
    if merged == now or put(root, found.path, now, merged) != Outcome.MISSED:
        root.let_go(found)


def _tag(path: str, text: str) -> str:
    return _path_tag(path) + digest(text)[:_TEXT_DIGITS]


def _path_tag(path: str) -> str:
    return digest(path)[:_PATH_DIGITS]
