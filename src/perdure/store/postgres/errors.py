"""Classifies the server's errors: which are retried, and which Perdure error stands for the others."""

from __future__ import annotations

import re

from psycopg import pq

from perdure.errors import PerdureError, StorageFull, StoreBusy, StoreProblem, StoreUnavailable
from perdure.store.base import RowRefused
from perdure.store.outage import ConnectionCut, ServerRefusal

# Raised by our own statements if a condition does not hold: see queries.sql.
NOT_NULL, UNIQUE, DIVISION = "23502", "23505", "22012"
BROKEN_CONDITIONS = (NOT_NULL, UNIQUE, DIVISION)

_GONE = ("08", "57P")
"""SQLSTATE classes that end the connection: connection exceptions and operator intervention."""

_ELSEWHERE = ("25006", "25P03", "25P04", "26000", "42P05")
"""A read-only server (an old primary, a replica), a transaction that the server ended, a session without our prepared
statements: a new connection helps."""

_AGAIN = ("40", "55P03")
"""Certainly rolled back and worth a retry: serialization failures, deadlocks, lock timeouts."""

_FULL = "53100"
FORBIDDEN = "42501"
_REFUSED = ("22", "23", "54")
"""Values that a column cannot hold, broken constraints, rows that are too large for an index."""
_FORBIDDEN = (FORBIDDEN, "28", "3D000", "3F000")


class ServerError(ServerRefusal):
    """The server refused a statement and rolled back the transaction."""

    def __init__(self, state: str, text: str, index: int) -> None:
        super().__init__(text)
        self.state = state
        self.index = index
        """The index of the statement in the batch."""

    @property
    def gone(self) -> bool:
        """Whether the connection is unusable."""
        stale = self.state == "0A000" and "cached plan" in str(self)  # the schema changed after they were prepared
        return not self.state or self.state.startswith(_GONE) or self.state in _ELSEWHERE or stale

    def translate(self, shown: str) -> PerdureError:
        """Return the Perdure error for a refusal that is not retried."""
        return translate_error(self, shown)

    @property
    def late(self) -> bool:
        """Whether the statement timed out."""
        return self.state == "57014"

    @property
    def is_retryable(self) -> bool:
        """Whether a retry may help."""
        return self.gone or self.state.startswith(_AGAIN)


def server_error(result: pq.abc.PGresult, index: int) -> ServerError:
    """Make the error of a failed result."""
    field = pq.DiagnosticField
    state = (result.error_field(field.SQLSTATE) or b"").decode("ascii", "replace")
    text = (result.error_field(field.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
    return ServerError(state, text or result.get_error_message(), index)


def translate_error(error: ServerError, shown: str) -> PerdureError:
    """Return the Perdure error for a server error that is not retried."""
    state = error.state
    if state == _FULL:
        return StorageFull(f"{shown}: {error}")
    if state in ("57014", "55P03"):
        return StoreBusy(
            f"{shown} did not answer in time: {error}", hint="check pg_stat_activity for long transactions"
        )
    if state.startswith(_FORBIDDEN):
        return StoreUnavailable(f"{shown}: {error}", hint="compare the grants with docs/operations/postgres.md")
    if state.startswith(_REFUSED):
        return RowRefused(f"{shown} refused a row: {error} (SQLSTATE {state})")
    return StoreUnavailable(
        f"{shown} cannot be used: {error} (SQLSTATE {state})", hint="run `perdure doctor` for details"
    )


_HOPEFUL = ("starting up", "shutting down", "recovery", "closed the connection", "too many clients", "not accept")
# While connecting, libpq gives no SQLSTATE (28P01, 28000, 3D000), only the server's text.
_CREDENTIALS = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf",
    "not permitted to log in",
    "FATAL: role ",
)
_CREDENTIALS_HINT = "the server is reachable: check the user in the URL and the password (URL, PGPASSWORD, ~/.pgpass)"
_NO_DATABASE = re.compile(r'database "(.+)" does not exist')
_HOPELESS = ("authentication", "does not exist", "no pg_hba.conf", "translate host name", "password", "invalid")


def is_transient(error: ConnectionCut) -> bool:
    """Whether the server will soon accept connections. Known by its English text only; others wait less."""
    return any(word in str(error) for word in _HOPEFUL)


def is_permanent(error: ConnectionCut) -> bool:
    """Whether waiting cannot help, because the URL or the credentials are wrong."""
    return any(word in str(error) for word in _HOPELESS) and not is_transient(error)


def connection_error(text: str, shown: str) -> StoreProblem:
    """Return the error for a failed connection attempt."""
    if any(word in text for word in _CREDENTIALS):
        return StoreUnavailable(f"{shown} refused the login: {text}", hint=_CREDENTIALS_HINT)
    if missing := _NO_DATABASE.search(text):
        return StoreUnavailable(
            f"{shown} has no such database: {text}",
            hint=f"create it with `createdb --template=template0 --encoding=UTF8 {missing[1]}`, or correct the URL",
        )
    return StoreUnavailable(f"{shown} cannot be reached: {text}", hint="check the URL, the server and the network")


def join_lines(text: str) -> str:
    """Join several lines into one."""
    return "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
