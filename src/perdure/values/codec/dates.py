"""Stores dates, times and time zones."""

from __future__ import annotations

import os
import re
import sys
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final, TypeAlias

from msgspec.msgpack import Decoder

from perdure.errors import CorruptValue, UnknownType
from perdure.values.codec.leaves import Leaf, is_utf8
from perdure.values.codec.refusals import Refusal, type_name
from perdure.values.codec.tags import ENCODE, ExtensionTag

ZoneParts: TypeAlias = tuple[int, int, str]
"""(kind, number, text). The kinds are permanent, like the tags."""

FIXED: Final = 0  # timezone(timedelta(microseconds=number))
NAMED: Final = 1  # timezone(timedelta(microseconds=number), text)
KEYED: Final = 2  # ZoneInfo(text)
PYDANTIC: Final = 3  # pydantic_core.TzInfo(number seconds), which pydantic gives to parsed datetimes

# Names below the zone folders. They cannot leave these folders.
_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+-]{1,64}(/[A-Za-z0-9_+-]{1,64}){0,3}")

_MICROSECOND: Final = timedelta(microseconds=1)


def _take_zone(zone: tzinfo | None) -> ZoneParts | None:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        if name and not is_utf8(name[0]):
            raise Refusal("a time zone whose name has lone surrogates cannot be stored")
        return (NAMED, offset // _MICROSECOND, name[0]) if name else (FIXED, offset // _MICROSECOND, "")
    key = _zone_key(zone)
    if key is not None:
        return (KEYED, 0, key)
    pydantic_core = sys.modules.get("pydantic_core")
    if pydantic_core is not None and type(zone) is pydantic_core.TzInfo:
        seconds, rest = divmod(zone.utcoffset(None) or timedelta(), timedelta(seconds=1))
        if not rest:
            return (PYDANTIC, seconds, "")
    raise Refusal(f"the time zone {type_name(type(zone))} cannot be stored; use zoneinfo.ZoneInfo or timezone")


def _zone_key(zone: tzinfo) -> str | None:
    """Return the key of a ZoneInfo, or None if it was made from a file."""
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is None or type(zone) is not zoneinfo.ZoneInfo:
        return None
    key = zone.key  # type: ignore[attr-defined]
    return key if type(key) is str and _ZONE_KEY.fullmatch(key) else None


def _make_zone(parts: ZoneParts | None) -> tzinfo | None:
    if parts is None:
        return None
    kind, number, text = parts
    if kind == FIXED:
        return timezone(timedelta(microseconds=number))
    if kind == NAMED:
        return timezone(timedelta(microseconds=number), text)
    if kind == KEYED:
        return _find_zone(text)
    if kind == PYDANTIC:
        return _pydantic_zone(number)
    raise CorruptValue(f"a stored time zone has the unknown kind {kind}")


def _find_zone(key: str) -> tzinfo:
    import zoneinfo

    if not _ZONE_KEY.fullmatch(key):
        raise CorruptValue("a stored time zone has an impossible key")
    try:
        if _is_zone(key):
            return zoneinfo.ZoneInfo(key)
    except (LookupError, ValueError, OSError):
        pass  # the file is not a zone
    hint = "`pip install tzdata` installs all zones"
    raise UnknownType(f"the time zone {key!r} is not known on this machine", hint=hint)


@lru_cache(maxsize=1024)
def _is_zone(key: str) -> bool:
    """Return whether a zone exists. For other keys, ZoneInfo would import a package of that name."""
    import zoneinfo

    files = (os.path.join(folder, key) for folder in zoneinfo.TZPATH)
    return any(map(os.path.isfile, files)) or key in zoneinfo.available_timezones()


def _pydantic_zone(seconds: int) -> tzinfo:
    try:
        from pydantic_core import TzInfo
    except ImportError:
        raise UnknownType(
            "a pydantic time zone was stored, and pydantic is not installed", hint="`pip install pydantic`"
        ) from None
    return TzInfo(seconds)


_DATETIME: Final = Decoder(tuple[int, int, int, int, int, int, int, int, ZoneParts | None])
_TIME: Final = Decoder(tuple[int, int, int, int, int, ZoneParts | None])
_DATE: Final = Decoder(tuple[int, int, int])
_ZONE: Final = Decoder(ZoneParts)


def _dump_datetime(value: datetime) -> bytes:
    v = value
    clock = (v.hour, v.minute, v.second, v.microsecond, v.fold)
    return ENCODE((v.year, v.month, v.day, *clock, _take_zone(v.tzinfo)))


def _load_datetime(payload: bytes) -> datetime:
    *parts, fold, zone = _DATETIME.decode(payload)
    return datetime(*parts, tzinfo=_make_zone(zone), fold=fold)  # type: ignore[arg-type, misc]


def _dump_time(value: time) -> bytes:
    clock = (value.hour, value.minute, value.second, value.microsecond, value.fold)
    return ENCODE((*clock, _take_zone(value.tzinfo)))


def _load_time(payload: bytes) -> time:
    *parts, fold, zone = _TIME.decode(payload)
    return time(*parts, tzinfo=_make_zone(zone), fold=fold)  # type: ignore[arg-type, misc]


def _dump_date(value: date) -> bytes:
    return ENCODE((value.year, value.month, value.day))


def _load_date(payload: bytes) -> date:
    return date(*_DATE.decode(payload))


def _dump_timedelta(value: timedelta) -> bytes:
    return ENCODE((value.days, value.seconds, value.microseconds))


def _load_timedelta(payload: bytes) -> timedelta:
    return timedelta(*_DATE.decode(payload))


def _dump_zone(value: tzinfo) -> bytes:
    return ENCODE(_take_zone(value))


def _load_zone(payload: bytes) -> tzinfo | None:
    return _make_zone(_ZONE.decode(payload))


ZONE: Final = Leaf(ExtensionTag.ZONE.value, _dump_zone, _load_zone)

LEAVES: Final[dict[type, Leaf]] = {
    datetime: Leaf(ExtensionTag.DATETIME.value, _dump_datetime, _load_datetime),
    date: Leaf(ExtensionTag.DATE.value, _dump_date, _load_date),
    time: Leaf(ExtensionTag.TIME.value, _dump_time, _load_time),
    timedelta: Leaf(ExtensionTag.TIMEDELTA.value, _dump_timedelta, _load_timedelta),
    timezone: ZONE,
}


def find_loaded_leaves() -> dict[type, Leaf]:
    """Return the zone types of modules that have been imported."""
    found: dict[type, Any] = {}
    for module, name in (("zoneinfo", "ZoneInfo"), ("pydantic_core", "TzInfo")):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None:
            found[kind] = ZONE
    return found
