"""Creates, migrates and identifies the schema of a store.

If the schema is current, nothing is created, so a role needs only the right to use the tables.
"""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from perdure.errors import NotDurableWarning, StoreUnavailable
from perdure.platform.failpoints import CommitMoment, Site, reach
from perdure.store import sql
from perdure.store.base import Statement
from perdure.store.postgres.connection import PipelineConnection, RawStatement, StatementBatch, StatementResult
from perdure.store.postgres.errors import FORBIDDEN, ServerError
from perdure.store.postgres.url import ServerAddress
from perdure.store.schema_version import StoreVersions, unpublished_error

_BEGIN, _COMMIT = RawStatement(b"BEGIN"), RawStatement(b"COMMIT")
_KEYS = ("schema", "oldest", "secret", "identity")
_PRESENT = b"""
SELECT to_regclass(quote_ident($1::text) || '.meta') IS NOT NULL,
       to_regclass(quote_ident($1::text) || '.homes') IS NOT NULL
           AND to_regclass(quote_ident($1::text) || '.journal') IS NULL,
       current_setting('server_encoding'),
       current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'
"""
# One process at a time, by the name of the schema.
_LOCK = b"SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended('perdure ' || $1::text, 0))) AS held"
_NAME = b"SELECT set_config('perdure.schema', $1::text, true)"
_CREATE = b"""
DO $$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = current_setting('perdure.schema')) THEN
    EXECUTE format('CREATE SCHEMA %I', current_setting('perdure.schema'));
  END IF;
END $$
"""
_PUT_VERSION = b"""
INSERT INTO meta (key, value) VALUES ('schema', $1::bytea), ('oldest', $2::bytea)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""


_SERVER = b"""
SELECT current_setting('server_version'), current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
       current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
       has_schema_privilege($1::text, 'CREATE')
"""


class ServerInfo(msgspec.Struct, frozen=True):
    """Settings and privileges on the server."""

    version: str
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    standbys: str
    may_migrate: bool
    pooled: bool


class StoreFacts(msgspec.Struct, frozen=True):
    """The store's own metadata."""

    version: int
    oldest: int
    """The schema that a program must know to use this one."""
    secret: bytes
    identity: str
    stale: bool = False
    """Whether the views must be rebuilt; known if the schema is current."""


def prepare_schema(link: PipelineConnection, place: ServerAddress, create: bool) -> StoreFacts:
    """Create or migrate the schema; refuse one that is too new."""
    history = sql.migrations("postgres")
    facts = _facts(link, place)
    if facts is None and not create:
        raise _no_store_error(place)
    if facts is None or facts.version < len(history):
        reach(Site.STORE_CREATE, CommitMoment.BEFORE)
        try:
            _migrate(link, place, history)
        except ServerError as error:
            if error.state != FORBIDDEN:
                raise
            raise _not_owner_error(place, facts) from error
        reach(Site.STORE_CREATE, CommitMoment.AFTER)
        facts = _facts(link, place)
    if facts is None:
        raise StoreUnavailable(f"{place.shown} no longer has the schema that was just created")
    StoreVersions(facts.version, facts.oldest, len(history), ()).refuse_newer()
    moved, stale = _send_batch(link, place, [Statement("moved_arrivals"), Statement("get_meta", ("stale",))])[-2:]
    if moved.rows:
        _count_on(link, place)
    return msgspec.structs.replace(facts, stale=bool(stale.rows))


def _count_on(link: PipelineConnection, place: ServerAddress) -> None:
    """Order new events after those of the old server: after a move, transaction ids start lower."""
    with suppress(ServerError):  # a read-only role leaves it to writers
        _send_batch(link, place, [Statement("raise_arrivals")])


def read_facts(link: PipelineConnection, place: ServerAddress) -> StoreFacts:
    """Read the store's metadata without changing anything."""
    facts = _facts(link, place)
    if facts is None:
        raise _no_store_error(place)
    return facts


def _no_store_error(place: ServerAddress) -> StoreUnavailable:
    return StoreUnavailable(
        f"there is no store in schema {place.schema} of {place.shown.partition('?')[0]}",
        hint="create one with `perdure init --store URL`, or name another with --store",
    )


def _not_owner_error(place: ServerAddress, facts: StoreFacts | None) -> StoreUnavailable:
    where = f"schema {place.schema} of {place.shown.partition('?')[0]}"
    if facts is None:
        problem, command = f"there is no store in {where}, and this role may not create one", "init"
    else:
        known = len(sql.migrations("postgres"))
        problem = f"the store in {where} has schema {facts.version}, and this role may not migrate it to {known}"
        command = "migrate"
    return StoreUnavailable(problem, hint=f"ask the owner to run `perdure {command} --store URL`")


def server(link: PipelineConnection, place: ServerAddress) -> ServerInfo:
    """Read the server's settings."""
    [row] = _send_batch(link, place, [RawStatement(_SERVER, (place.schema,))])[-1].rows
    version, fsync, full_page_writes, synchronous, standbys, may_migrate = row
    return ServerInfo(version, fsync, full_page_writes, synchronous, standbys, may_migrate, link.pooled)


def _facts(link: PipelineConnection, place: ServerAddress) -> StoreFacts | None:
    [answer] = (_send_batch(link, place, [RawStatement(_PRESENT, (place.schema,))]))[-1:]
    present, old, encoding, durable = answer.rows[0]
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{place.shown} has the encoding {encoding}", hint="create a database with ENCODING 'UTF8'"
        )
    if not durable:
        warnings.warn(
            f"{place.shown} runs with fsync or full_page_writes off, so a power failure loses data",
            NotDurableWarning,
            stacklevel=2,
        )
    if not present:
        return None
    if old:
        raise unpublished_error(f"schema {place.schema} of {place.shown.partition('?')[0]}")
    answers = _send_batch(link, place, [Statement("get_meta", (key,)) for key in _KEYS])
    values = [answer.rows for answer in answers[-len(_KEYS) :]]
    if not all(values):
        raise StoreUnavailable(
            f"schema {place.schema} of {place.shown} belongs to another program, or its metadata is missing",
            hint="choose another schema=",
        )
    version, oldest, secret, identity = (rows[0][0] for rows in values)
    return StoreFacts(int(version), int(oldest), secret, identity.hex())


def _migrate(link: PipelineConnection, place: ServerAddress, history: tuple[str, ...]) -> None:
    """Apply all pending migrations in one transaction, under a lock."""
    opening = [
        _BEGIN,
        *link.begin_with(),
        RawStatement(_LOCK, (place.schema,)),
        RawStatement(_NAME, (place.schema,)),
        RawStatement(_CREATE),
    ]
    _send_batch(link, place, opening, begun=True)
    facts = _facts(link, place)
    pending = history[facts.version :] if facts is not None else history
    # In one round trip: over an unreliable connection many would never succeed.
    pieces = [RawStatement(piece.encode()) for text in pending for piece in _statements(text)]
    if pieces:
        _send_batch(link, place, pieces, begun=True)
    reach(Site.STORE_CREATE, CommitMoment.BEGUN)
    closing: StatementBatch = [
        RawStatement(_PUT_VERSION, (b"%d" % len(history), b"%d" % sql.find_oldest_schema("postgres"))),
        Statement("put_meta", ("secret", secrets.token_bytes(32))),
        Statement("put_meta", ("identity", secrets.token_bytes(16))),
    ]
    if pending:
        _send_batch(link, place, closing, begun=True)
        reach(Site.STORE_CREATE, CommitMoment.WRITTEN)
    _send_batch(link, place, [_COMMIT], begun=True)


def _statements(text: str) -> Iterator[str]:
    """Split a migration into statements; a function body between two `$$` stays whole."""
    begun = ""
    for piece in text.split(";\n"):
        begun += piece
        if begun.count("$$") % 2:
            begun += ";\n"
        else:
            if begun.strip():
                yield begun
            begun = ""


def _send_batch(
    link: PipelineConnection, place: ServerAddress, batch: StatementBatch, *, begun: bool = False
) -> list[StatementResult]:
    first = () if begun or link.in_transaction else link.begin_with()
    return link.send_batch([*first, *batch], time.monotonic() + place.statement_seconds)
