"""What a server's errors mean: which are tried again, which are ours to raise, and with which words."""

from __future__ import annotations

import re

from psycopg import pq

from ..errors import PerdureError, StorageFull, StoreBusy, StoreProblem, StoreUnavailable
from .base import RowRefused

# Raised by our own statements, where a condition of theirs does not hold: see queries.sql.
NOT_NULL, UNIQUE, DIVISION = "23502", "23505", "22012"
BROKEN_CONDITIONS = (NOT_NULL, UNIQUE, DIVISION)

_GONE = ("08", "57P")
"""Classes of states after which the connection is no good: connection exceptions, the operator's interventions."""

_ELSEWHERE = ("25006", "25P03", "25P04", "26000", "42P05")
"""A read-only server (an old primary, a replica), a transaction that the server has ended, a session that does not
know our statements any more: with a new connection all is well again."""

_AGAIN = ("40", "55P03")
"""Undone for certain, and worth another try: serialization failures and deadlocks, a row that stayed locked."""

_FULL = "53100"
FORBIDDEN = "42501"
_REFUSED = ("22", "23", "54")
"""Values that a column cannot hold, broken constraints, rows that are too large for an index."""
_FORBIDDEN = (FORBIDDEN, "28", "3D000", "3F000")


class Cut(Exception):
    """The connection is gone: nobody has heard the answer."""


class ServerError(Exception):
    """The server has refused a statement, and undone the transaction."""

    def __init__(self, state: str, text: str, index: int) -> None:
        super().__init__(text)
        self.state = state
        self.index = index
        """Which statement of the batch it was."""

    @property
    def gone(self) -> bool:
        """Whether the connection cannot be used any more."""
        stale = self.state == "0A000" and "cached plan" in str(self)  # the schema has changed under our statements
        return not self.state or self.state.startswith(_GONE) or self.state in _ELSEWHERE or stale

    @property
    def late(self) -> bool:
        """Whether the server gave up because it took too long."""
        return self.state == "57014"

    @property
    def again(self) -> bool:
        """Whether trying again may help."""
        return self.gone or self.state.startswith(_AGAIN)


def server_error(result: pq.abc.PGresult, index: int) -> ServerError:
    """The error in a result."""
    field = pq.DiagnosticField
    state = (result.error_field(field.SQLSTATE) or b"").decode("ascii", "replace")
    text = (result.error_field(field.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
    return ServerError(state, text or result.get_error_message(), index)


def translated(error: ServerError, shown: str) -> PerdureError:
    """An error of ours for one that is not tried again."""
    state = error.state
    if state == _FULL:
        return StorageFull(f"{shown}: {error}")
    if state in ("57014", "55P03"):
        return StoreBusy(
            f"{shown} did not do it in time: {error}", hint="look for long transactions in pg_stat_activity"
        )
    if state.startswith(_FORBIDDEN):
        return StoreUnavailable(f"{shown}: {error}", hint="look at the roles and rights that docs/postgres.md names")
    if state.startswith(_REFUSED):
        return RowRefused(f"{shown} refused a row: {error} (SQLSTATE {state})")
    return StoreUnavailable(f"{shown} cannot be used: {error} (SQLSTATE {state})", hint="`perdure doctor` looks closer")


_HOPEFUL = ("starting up", "shutting down", "recovery", "closed the connection", "too many clients", "not accept")
# While a connection is made libpq gives no SQLSTATE (28P01, 28000, 3D000), only the server's words.
_CREDENTIALS = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf",
    "not permitted to log in",
    "FATAL: role ",
)
_CREDENTIALS_HINT = "the server is there: look at the user in the URL, and at the password (URL, PGPASSWORD, ~/.pgpass)"
_NO_DATABASE = re.compile(r'database "(.+)" does not exist')
_HOPELESS = ("authentication", "does not exist", "no pg_hba.conf", "translate host name", "password", "invalid")


def hopeful(error: Cut) -> bool:
    """Whether a server is there, and will let us in soon. Only its words tell; in other languages we wait less."""
    return any(word in str(error) for word in _HOPEFUL)


def hopeless(error: Cut) -> bool:
    """Whether waiting will not help: the URL is wrong."""
    return any(word in str(error) for word in _HOPELESS) and not hopeful(error)


def refused(text: str, shown: str) -> StoreProblem:
    """A connection that was never made: nobody was there, or somebody did not let us in."""
    if any(word in text for word in _CREDENTIALS):
        return StoreUnavailable(f"{shown} does not let this user in: {text}", hint=_CREDENTIALS_HINT)
    if missing := _NO_DATABASE.search(text):
        return StoreUnavailable(
            f"{shown} has no such database: {text}",
            hint=f"make it: `createdb --template=template0 --encoding=UTF8 {missing[1]}`, or look at the URL",
        )
    return StoreUnavailable(f"{shown} cannot be reached: {text}", hint="look at the URL, the server and the network")


def folded(text: str) -> str:
    """Several lines as one."""
    return "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
