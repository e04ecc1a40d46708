"""Validates the arguments of `agent.memory`, so that mistakes raise at the call with a suggestion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec

from perdure.errors import NotStorable, ValueTooLarge, WrongType, WrongValue
from perdure.kernel.names import check_storable_name
from perdure.memory.results import KINDS, Memory, MemoryQuery
from perdure.values.durations import seconds_of
from perdure.values.hints import name_hint
from perdure.values.limits import MEMORY_CHARACTERS_MAX, MEMORY_TAGS_MAX

_DAY_MS = 24 * 3600 * 1000

MemoryTime = datetime | date | str
TRUST = {"trusted": 1.0, "unsure": 0.5, "untrusted": 0.0}
"""Names accepted instead of a number."""


class ForgetSelection(msgspec.Struct, frozen=True):
    """What to forget: memories by id or by a filter, or a text wherever it occurs."""

    ids: tuple[str, ...] = ()
    query: MemoryQuery | None = None
    text: str = ""


class MemoryRequest(msgspec.Struct, frozen=True):
    """The validated arguments of `remember`."""

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


def wish_of(text: object, **given: Any) -> MemoryRequest:
    """Validate the arguments of `remember`."""
    ttl = given.pop("ttl", None)
    read: dict[str, Any] = {
        "text": check_text(text),
        "kind": check_kind(given.pop("kind", "semantic")),
        "about": check_name(given.pop("about", None), "about"),
        "user": check_name(given.pop("user", None), "user"),
        "tags": check_tags(given.pop("tags", ())),
        "source": check_name(given.pop("source", None), "source"),
        "trust": parse_trust(given.pop("trust", 1.0)),
        "importance": check_share(given.pop("importance", 0.5), "importance"),
        "valid_from": parse_time(given.pop("valid_from", None), "valid_from"),
        "valid_to": parse_time(given.pop("valid_to", None), "valid_to"),
        "supersedes": collect_ids(given.pop("supersedes", ()), "supersedes"),
        "ttl": 0 if ttl is None else seconds_of(ttl, "ttl"),
        "meta": check_meta(given.pop("meta", None)),
        "thread": check_name(given.pop("thread", None), "thread"),
        "derived_from": collect_ids(given.pop("derived_from", ()), "derived_from"),
        "writer": check_name(given.pop("writer", None), "writer"),
    }
    for name in given:
        raise WrongType(f"remember() has no {name!r}; {name_hint(name, read)}")
    if read["valid_from"] and 0 < read["valid_to"] <= read["valid_from"]:
        raise WrongValue("valid_to is not later than valid_from")
    return MemoryRequest(**read)


def wishes_of(memories: object, common: Mapping[str, Any]) -> list[MemoryRequest]:
    """Validate many memories, each a text or a dict. `common` holds defaults for all of them."""
    if isinstance(memories, str | Mapping) or not isinstance(memories, Iterable):
        raise WrongType(f"give a list of memories, not {memories!r}; remember() stores one")
    made = []
    for memory in memories:
        if not isinstance(memory, str | Mapping):
            raise WrongType(f"a memory is a text, or a dict with a text, not {memory!r}")
        if isinstance(memory, Mapping) and "text" not in memory:
            raise WrongType(f"a memory needs a text: {dict(memory)!r} has none")
        made.append(wish_of(memory, **common) if isinstance(memory, str) else wish_of(**{**common, **memory}))
    return made


def check_text(text: object) -> str:
    """Validate the text of a memory."""
    if not isinstance(text, str):
        raise WrongType(f"a memory is a text, not {type(text).__name__}: put values into meta=, or into agent.state")
    if not text.strip():
        raise WrongValue("a memory needs a text")
    if len(text) > MEMORY_CHARACTERS_MAX:
        raise ValueTooLarge(
            f"a memory has at most {MEMORY_CHARACTERS_MAX:,} characters, not {len(text):,}",
            hint="save it with agent.artifacts, and remember a description of it",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotStorable("the text of a memory must not contain a lone surrogate") from error
    return text


def check_kind(kind: object, *, empty: bool = False) -> str:
    """Validate a kind of memory."""
    if kind in KINDS or (empty and kind in (None, "")):
        return str(kind or "")
    raise WrongValue(f"kind={kind!r}: {name_hint(kind, KINDS)}")


def check_name(name: object, what: str) -> str:
    """Validate a name; None means none. An empty name is refused: it would match everybody's memories."""
    if name == "":
        raise WrongValue(f"{what}='': give a name, or None for none")
    return "" if name is None else check_storable_name(name, f"{what}=")


def check_tags(tags: object) -> tuple[str, ...]:
    """Validate one tag or several."""
    if tags is None:
        return ()
    found = (tags,) if isinstance(tags, str) else tags
    if not isinstance(found, Iterable):
        raise WrongType(f"tags={tags!r}: give a text or a list of texts")
    listed = tuple(dict.fromkeys(check_storable_name(tag, "a tag") for tag in found))
    if len(listed) > MEMORY_TAGS_MAX:
        raise ValueTooLarge(f"a memory has at most {MEMORY_TAGS_MAX} tags")
    return listed


def parse_trust(trust: object, what: str = "trust") -> float:
    """Parse trust: a number from 0 to 1, or a word."""
    if isinstance(trust, str):
        if trust not in TRUST:
            raise WrongValue(f"{what}={trust!r}: give a number from 0 to 1; {name_hint(trust, TRUST)}")
        return TRUST[trust]
    return check_share(trust, what)


def check_share(share: object, what: str) -> float:
    """Validate a number from 0 to 1."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1 or math.isnan(share):
        raise WrongValue(f"{what}={share!r}: give a number from 0 to 1")
    return float(share)


def parse_time(when: object, what: str) -> int:
    """Parse a time into milliseconds since 1970, or 0 for None. A time without a zone is in UTC."""
    if when is None:
        return 0
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise WrongValue(f'{what}={when!r}: give a datetime, a date, or a text such as "2026-05-31"') from None
    if isinstance(when, date) and not isinstance(when, datetime):
        when = datetime.combine(when, time())
    if not isinstance(when, datetime):
        raise WrongType(f"{what}={when!r}: give a datetime, a date, or a text in ISO format")
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000) or 1


def parse_end(when: object, what: str) -> int:
    """Parse the end of a period like `parse_time`. A date means the end of that day."""
    at = parse_time(when, what)
    is_day = isinstance(when, date) and not isinstance(when, datetime)
    return at + _DAY_MS if at and (is_day or (isinstance(when, str) and len(when) <= len("2026-05-31"))) else at


def parse_point(when: object, what: str) -> int:
    """Parse a point in time like `parse_time`. A date means its last moment."""
    begins, ends = parse_time(when, what), parse_end(when, what)
    return ends - 1 if ends > begins else begins


def collect_ids(ids: object, what: str) -> tuple[str, ...]:
    """Return the ids of one memory or several, given as ids or as `Memory`."""
    if ids is None:
        return ()
    found = (ids,) if isinstance(ids, str | Memory) else ids
    if not isinstance(found, Iterable):
        raise WrongType(f"{what}={ids!r}: give a memory, its id, or a list of them")
    return tuple(item.id if isinstance(item, Memory) else check_storable_name(item, f"{what}=") for item in found)


def check_id(one: object) -> str:
    """Return the id of a memory, given as an id or as a `Memory`."""
    if isinstance(one, Memory):
        return one.id
    if not isinstance(one, str):
        raise WrongType(f"id={one!r}: give a memory, or its id")
    return check_storable_name(one, "id=")


def check_meta(meta: object) -> Mapping[str, Any] | None:
    """Validate metadata."""
    if meta is None or isinstance(meta, Mapping):
        return meta
    raise WrongType(f"meta={meta!r}: give a dict")


def check_count(count: object, what: str) -> int:
    """Validate a number from 1."""
    if type(count) is not int or count < 1:
        raise WrongValue(f"{what}={count!r}: give a number from 1")
    return count


def check_days(days: object) -> float:
    """Validate a number of days."""
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days < math.inf:
        raise WrongValue(f"keep_days={days!r}: give a number of days")
    return float(days)


def to_question(query: MemoryQuery, text: object, k: object, around: object) -> MemoryQuery:
    """Turn a filter into a question."""
    if not isinstance(text, str):
        raise WrongType(f"recall searches for a text, not {text!r}")
    if type(around) is not int or around < 0:
        raise WrongValue(f"around={around!r}: give the number of neighbours before and after each result, from 0")
    return msgspec.structs.replace(query, text=text, k=check_count(k, "k"), around=around)


SEARCHED_MIN = 8
"""Minimum length in bytes: shorter texts occur everywhere and identify nobody."""


def select_to_forget(
    ids: tuple[str, ...] | None,
    *,
    about: object,
    user: object,
    source: object,
    tags: object = (),
    text: object = None,
) -> ForgetSelection:
    """Validate what to forget: ids, a filter that is not empty, or a text."""
    query = MemoryQuery(
        about=check_name(about, "about"),
        user=check_name(user, "user"),
        source=check_name(source, "source"),
        tags=check_tags(tags),
        all=True,
    )
    says = bool(query.about or query.user or query.source or query.tags)
    if (ids is not None) + says + (text is not None) > 1:
        raise WrongType("give ids, or a filter, or a text, but only one of them")
    if text is not None:
        wanted = check_text(text).strip()
        if len(wanted.encode()) < SEARCHED_MIN:
            raise WrongValue(f"text={text!r} is too short and would match too much: give {SEARCHED_MIN} bytes or more")
        return ForgetSelection(text=wanted)
    if ids is None and not says:
        raise WrongType("say which: an id, or about=, user=, source=, tags=, or text=")
    return ForgetSelection(ids or (), query if ids is None else None)
