"""Cursors of lists of runs."""

from __future__ import annotations

from base64 import b64decode, b64encode

from perdure.errors import RequestInvalid
from perdure.run.listing import NEWEST, ListPlace
from perdure.server.views import check_bigint


def read_run_cursor(cursor: str | None) -> ListPlace:
    """Return the place after which a page begins."""
    if not cursor:
        return NEWEST
    try:
        at, stream, *queued = cursor.split(".")
        agent, _, run = b64decode("".join(queued), b"-_", validate=True).decode().partition("\0")
        return (check_bigint(int(at)), check_bigint(int(stream)), agent, run)
    except ValueError as error:
        raise RequestInvalid(f"cursor {cursor[:80]!r} is not one of ours") from error


def make_run_cursor(place: ListPlace) -> str:
    """Return the cursor of the page after a place. Queued runs have no stream, so their names tell them apart."""
    at, stream, agent, run = place
    queued = "" if stream else "." + b64encode(f"{agent}\0{run}".encode(), b"-_").decode()
    return f"{at}.{stream}{queued}"
