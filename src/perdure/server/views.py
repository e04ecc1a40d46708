"""Records of the library as answers: times become ISO 8601 text, stored values their JSON form."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from perdure.errors import RequestInvalid, WrongValue
from perdure.server.values import to_json

V = TypeVar("V")
PAGE = 100
PAGE_MAX = 1000


class PageQuery(msgspec.Struct, frozen=True):
    """The part of a list to return."""

    cursor: str | None = None
    """`next` of the page before."""
    limit: int = PAGE


def format_ms(at: int) -> str:
    """Format milliseconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_moment(at: datetime | None) -> str | None:
    """Format a datetime as ISO 8601 in UTC."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(record: Any) -> Any:
    """Convert a record to plain data, recursively."""
    if isinstance(record, datetime):
        return format_moment(record)
    if isinstance(record, enum.Enum):
        return record.value
    if isinstance(record, msgspec.Struct):
        return {name: plain(getattr(record, name)) for name in record.__struct_fields__}
    if isinstance(record, list | tuple):
        return [plain(item) for item in record]
    if isinstance(record, Mapping) and all(type(key) is str for key in record):
        return {key: plain(item) for key, item in record.items()}
    return to_json(record)


def take_page(found: list[V], query: PageQuery, name_of: Callable[[V], str]) -> tuple[list[V], str | None]:
    """Return one page of a list that is sorted by name, and the cursor of the next."""
    limit = check_limit(query.limit)
    rest = [one for one in found if query.cursor is None or name_of(one) > query.cursor]
    page = rest[:limit]
    return page, name_of(page[-1]) if len(rest) > limit else None


def check_limit(limit: int) -> int:
    """Return the size of a page."""
    if not 1 <= limit <= PAGE_MAX:
        raise RequestInvalid(f"limit={limit}: from 1 to {PAGE_MAX}")
    return limit


def check_bigint(number: int) -> int:
    """Return a number of a cursor, which both stores must be able to compare."""
    if not 0 <= number < 1 << 63:
        raise WrongValue(f"{number}: must be from 0 to 2**63 - 1")
    return number
