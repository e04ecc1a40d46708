"""Reading what people give to `agent.memory`: a mistake is told at the call, with what was meant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec

from ..durations import seconds_of
from ..errors import NotStorable, ValueTooLarge
from ..hints import meant
from ..limits import MEMORY_CHARACTERS_MAX, MEMORY_TAGS_MAX
from ..run.writes import named
from .found import KINDS, Memory, Query

_DAY_MS = 24 * 3600 * 1000

When = datetime | date | str
TRUST = {"trusted": 1.0, "unsure": 0.5, "untrusted": 0.0}
"""Words that people may say instead of a number."""


class Which(msgspec.Struct, frozen=True):
    """What is to be forgotten: memories by id, or by a filter; or a text, wherever it stands."""

    ids: tuple[str, ...] = ()
    query: Query | None = None
    text: str = ""


class Wish(msgspec.Struct, frozen=True):
    """A memory as somebody asks for it, read and checked."""

    text: str
    kind: str = "semantic"
    about: str = ""
    user: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""
    trust: float = 1.0
    importance: float = 0.5
    valid_from: int = 0
    valid_to: int = 0
    supersedes: tuple[str, ...] = ()
    ttl: float = 0
    meta: Mapping[str, Any] | None = None
    thread: str = ""
    derived_from: tuple[str, ...] = ()
    writer: str = ""


def wish_of(text: object, **given: Any) -> Wish:
    """A memory as somebody asks for it; a mistake is told here."""
    ttl = given.pop("ttl", None)
    read: dict[str, Any] = {
        "text": read_text(text),
        "kind": read_kind(given.pop("kind", "semantic")),
        "about": read_name(given.pop("about", None), "about"),
        "user": read_name(given.pop("user", None), "user"),
        "tags": read_tags(given.pop("tags", ())),
        "source": read_name(given.pop("source", None), "source"),
        "trust": read_trust(given.pop("trust", 1.0)),
        "importance": read_share(given.pop("importance", 0.5), "importance"),
        "valid_from": read_when(given.pop("valid_from", None), "valid_from"),
        "valid_to": read_when(given.pop("valid_to", None), "valid_to"),
        "supersedes": read_ids(given.pop("supersedes", ()), "supersedes"),
        "ttl": 0 if ttl is None else seconds_of(ttl, "ttl"),
        "meta": read_meta(given.pop("meta", None)),
        "thread": read_name(given.pop("thread", None), "thread"),
        "derived_from": read_ids(given.pop("derived_from", ()), "derived_from"),
        "writer": read_name(given.pop("writer", None), "writer"),
    }
    for name in given:
        raise TypeError(f"remember() has no {name!r}; {meant(name, read)}")
    if read["valid_from"] and 0 < read["valid_to"] <= read["valid_from"]:
        raise ValueError("valid_to is not later than valid_from")
    return Wish(**read)


def wishes_of(memories: object, common: Mapping[str, Any]) -> list[Wish]:
    """Many of them, each a text or a dict; `common` is what all of them have that do not say otherwise."""
    if isinstance(memories, str | Mapping) or not isinstance(memories, Iterable):
        raise TypeError(f"give a list of memories, not {memories!r}; remember() keeps one")
    made = []
    for it in memories:
        if not isinstance(it, str | Mapping):
            raise TypeError(f"a memory is a text, or a dict with a text, not {it!r}")
        if isinstance(it, Mapping) and "text" not in it:
            raise TypeError(f"a memory needs a text: {dict(it)!r} has none")
        made.append(wish_of(it, **common) if isinstance(it, str) else wish_of(**{**common, **it}))
    return made


def read_text(text: object) -> str:
    """What is remembered."""
    if not isinstance(text, str):
        raise TypeError(f"a memory is a text, not {type(text).__name__}: put values into meta=, or into agent.state")
    if not text.strip():
        raise ValueError("a memory needs a text")
    if len(text) > MEMORY_CHARACTERS_MAX:
        raise ValueTooLarge(
            f"a memory has at most {MEMORY_CHARACTERS_MAX:,} characters, not {len(text):,}",
            hint="save it with agent.artifacts, and remember what it is",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotStorable("a memory has no lone surrogate") from error
    return text


def read_kind(kind: object, *, empty: bool = False) -> str:
    """One of the three."""
    if kind in KINDS or (empty and kind in (None, "")):
        return str(kind or "")
    raise ValueError(f"kind={kind!r}: {meant(kind, KINDS)}")


def read_name(name: object, what: str) -> str:
    """A name that a memory has; None is none. Empty it would be everybody's, where somebody's was meant."""
    if name == "":
        raise ValueError(f"{what}='': give a name, or None for none")
    return "" if name is None else named(name, f"{what}=")


def read_tags(tags: object) -> tuple[str, ...]:
    """One tag, or several."""
    if tags is None:
        return ()
    found = (tags,) if isinstance(tags, str) else tags
    if not isinstance(found, Iterable):
        raise TypeError(f"tags={tags!r}: give a text or a list of texts")
    listed = tuple(dict.fromkeys(named(tag, "a tag") for tag in found))
    if len(listed) > MEMORY_TAGS_MAX:
        raise ValueTooLarge(f"a memory has at most {MEMORY_TAGS_MAX} tags")
    return listed


def read_trust(trust: object, what: str = "trust") -> float:
    """From 0 to 1, or a word."""
    if isinstance(trust, str):
        if trust not in TRUST:
            raise ValueError(f"{what}={trust!r}: give a number from 0 to 1; {meant(trust, TRUST)}")
        return TRUST[trust]
    return read_share(trust, what)


def read_share(share: object, what: str) -> float:
    """A number from 0 to 1."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1 or math.isnan(share):
        raise ValueError(f"{what}={share!r}: give a number from 0 to 1")
    return float(share)


def read_when(when: object, what: str) -> int:
    """A time in milliseconds since 1970; 0 when none is given. One without a zone is in UTC."""
    if when is None:
        return 0
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise ValueError(f'{what}={when!r}: give a datetime, a date, or a text such as "2026-05-31"') from None
    if isinstance(when, date) and not isinstance(when, datetime):
        when = datetime.combine(when, time())
    if not isinstance(when, datetime):
        raise TypeError(f"{what}={when!r}: give a datetime, a date, or a text in ISO format")
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000) or 1


def read_until(when: object, what: str) -> int:
    """The same for an end: of a day, the end of it."""
    at = read_when(when, what)
    is_day = isinstance(when, date) and not isinstance(when, datetime)
    return at + _DAY_MS if at and (is_day or (isinstance(when, str) and len(when) <= len("2026-05-31"))) else at


def read_at(when: object, what: str) -> int:
    """The same for a time at which something was: of a day, its last moment."""
    begins, ends = read_when(when, what), read_until(when, what)
    return ends - 1 if ends > begins else begins


def read_ids(ids: object, what: str) -> tuple[str, ...]:
    """Memories, by id or as they are; one or several."""
    if ids is None:
        return ()
    found = (ids,) if isinstance(ids, str | Memory) else ids
    if not isinstance(found, Iterable):
        raise TypeError(f"{what}={ids!r}: give a memory, its id, or a list of them")
    return tuple(it.id if isinstance(it, Memory) else named(it, f"{what}=") for it in found)


def read_id(one: object) -> str:
    """One memory, by id or as it is."""
    if isinstance(one, Memory):
        return one.id
    if not isinstance(one, str):
        raise TypeError(f"id={one!r}: give a memory, or its id")
    return named(one, "id=")


def read_meta(meta: object) -> Mapping[str, Any] | None:
    """Whatever else belongs to it."""
    if meta is None or isinstance(meta, Mapping):
        return meta
    raise TypeError(f"meta={meta!r}: give a dict")


def read_count(count: object, what: str) -> int:
    """A number from 1."""
    if type(count) is not int or count < 1:
        raise ValueError(f"{what}={count!r}: how many at most, from 1")
    return count


def read_days(days: object) -> float:
    """A number of days."""
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days < math.inf:
        raise ValueError(f"keep_days={days!r}: give a number of days")
    return float(days)


def asking(query: Query, text: object, k: object, around: object) -> Query:
    """A filter as a question."""
    if not isinstance(text, str):
        raise TypeError(f"recall looks for a text, not for {text!r}")
    if type(around) is not int or around < 0:
        raise ValueError(f"around={around!r}: how many of those said before and after each, from 0")
    return msgspec.structs.replace(query, text=text, k=read_count(k, "k"), around=around)


SEARCHED_MIN = 8
"""Bytes: shorter texts stand everywhere, and mean nobody."""


def chosen(
    ids: tuple[str, ...] | None,
    *,
    about: object,
    user: object,
    source: object,
    tags: object = (),
    text: object = None,
) -> Which:
    """What somebody wants to be forgotten: some ids, or a filter, which must say something, or a text."""
    query = Query(
        about=read_name(about, "about"),
        user=read_name(user, "user"),
        source=read_name(source, "source"),
        tags=read_tags(tags),
        all=True,
    )
    says = bool(query.about or query.user or query.source or query.tags)
    if (ids is not None) + says + (text is not None) > 1:
        raise TypeError("give ids, or a filter, or a text, but only one of them")
    if text is not None:
        wanted = read_text(text).strip()
        if len(wanted.encode()) < SEARCHED_MIN:
            raise ValueError(f"text={text!r} stands everywhere: a text has at least {SEARCHED_MIN} bytes")
        return Which(text=wanted)
    if ids is None and not says:
        raise TypeError("say which: an id, or about=, user=, source=, tags=, or text=")
    return Which(ids or (), query if ids is None else None)
