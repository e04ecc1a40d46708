"""The objects of a store in a database: whether they are there, of which version, and how they get there.

A role that may only use them needs no other rights when the schema is current: nothing is created then.
"""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from ..errors import NotDurableWarning, StoreUnavailable
from ..failpoints import Moment, Site, reach
from . import sql
from .base import Statement
from .postgres_errors import FORBIDDEN, ServerError
from .postgres_link import Answer, Batch, Link, Raw
from .postgres_url import Place
from .versions import Versions

_BEGIN, _COMMIT = Raw(b"BEGIN"), Raw(b"COMMIT")
_KEYS = ("schema", "oldest", "secret", "identity")
_PRESENT = b"""
SELECT to_regclass(quote_ident($1::text) || '.meta') IS NOT NULL, current_setting('server_encoding'),
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


class Server(msgspec.Struct, frozen=True):
    """What a server says about itself."""

    version: str
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    standbys: str
    may_migrate: bool
    pooled: bool


class Facts(msgspec.Struct, frozen=True):
    """What the store says about itself."""

    version: int
    oldest: int
    """The oldest version of the schema whose programs can work with this one."""
    secret: bytes
    identity: str
    stale: bool = False
    """Whether views have to be made anew; known when the schema is current."""


def prepared(link: Link, place: Place, create: bool) -> Facts:
    """Make the schema when it is not there, bring an old one forward, refuse one that is too new for us."""
    history = sql.migrations("postgres")
    facts = _facts(link, place)
    if facts is None and not create:
        raise _no_store(place)
    if facts is None or facts.version < len(history):
        reach(Site.STORE_CREATE, Moment.BEFORE)
        try:
            _migrate(link, place, history)
        except ServerError as error:
            if error.state != FORBIDDEN:
                raise
            raise _not_the_owner(place, facts) from error
        reach(Site.STORE_CREATE, Moment.AFTER)
        facts = _facts(link, place)
    if facts is None:
        raise StoreUnavailable(f"{place.shown} has lost what was made in it just now")
    Versions(facts.version, facts.oldest, len(history), ()).refuse_newer()
    moved, stale = _talk(link, place, [Statement("moved_arrivals"), Statement("get_meta", ("stale",))])[-2:]
    if moved.rows:
        _count_on(link, place)
    return msgspec.structs.replace(facts, stale=bool(stale.rows))


def _count_on(link: Link, place: Place) -> None:
    """Events are in the order of transactions: one that was moved here goes on behind those of the old server."""
    with suppress(ServerError):  # who may only read leaves it to those who write
        _talk(link, place, [Statement("raise_arrivals")])


def found(link: Link, place: Place) -> Facts:
    """What the store says about itself, which is left as it is."""
    facts = _facts(link, place)
    if facts is None:
        raise _no_store(place)
    return facts


def _no_store(place: Place) -> StoreUnavailable:
    return StoreUnavailable(
        f"there is no store in schema {place.schema} of {place.shown.partition('?')[0]}",
        hint="make one with `perdure init --store URL`, or say which one with --store",
    )


def _not_the_owner(place: Place, facts: Facts | None) -> StoreUnavailable:
    where = f"schema {place.schema} of {place.shown.partition('?')[0]}"
    if facts is None:
        problem, command = f"there is no store in {where}, and this role may not make one", "init"
    else:
        known = len(sql.migrations("postgres"))
        problem = f"the store in {where} has schema {facts.version}, and this role may not bring it forward to {known}"
        command = "migrate"
    return StoreUnavailable(problem, hint=f"let the owner run `perdure {command} --store URL`")


def server(link: Link, place: Place) -> Server:
    """Ask it."""
    [row] = _talk(link, place, [Raw(_SERVER, (place.schema,))])[-1].rows
    version, fsync, full_page_writes, synchronous, standbys, may_migrate = row
    return Server(version, fsync, full_page_writes, synchronous, standbys, may_migrate, link.pooled)


def _facts(link: Link, place: Place) -> Facts | None:
    [answer] = (_talk(link, place, [Raw(_PRESENT, (place.schema,))]))[-1:]
    present, encoding, durable = answer.rows[0]
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{place.shown} has the encoding {encoding}", hint="make a database with ENCODING 'UTF8'"
        )
    if not durable:
        warnings.warn(
            f"{place.shown} runs with fsync or full_page_writes off: it loses data when the power fails",
            NotDurableWarning,
            stacklevel=2,
        )
    if not present:
        return None
    answers = _talk(link, place, [Statement("get_meta", (key,)) for key in _KEYS])
    values = [answer.rows for answer in answers[-len(_KEYS) :]]
    if not all(values):
        raise StoreUnavailable(
            f"schema {place.schema} of {place.shown} belongs to another program, or has lost its facts",
            hint="choose another schema=",
        )
    version, oldest, secret, identity = (rows[0][0] for rows in values)
    return Facts(int(version), int(oldest), secret, identity.hex())


def _migrate(link: Link, place: Place, history: tuple[str, ...]) -> None:
    """All of it in one transaction; whoever comes second finds it done."""
    opening = [_BEGIN, *link.begin_with(), Raw(_LOCK, (place.schema,)), Raw(_NAME, (place.schema,)), Raw(_CREATE)]
    _talk(link, place, opening, begun=True)
    facts = _facts(link, place)
    pending = history[facts.version :] if facts is not None else history
    # One message, however many there are: over a line that is cut again and again it would not come to an end.
    pieces = [Raw(piece.encode()) for text in pending for piece in _statements(text)]
    if pieces:
        _talk(link, place, pieces, begun=True)
    reach(Site.STORE_CREATE, Moment.BEGUN)
    closing: Batch = [
        Raw(_PUT_VERSION, (b"%d" % len(history), b"%d" % sql.oldest("postgres"))),
        Statement("put_meta", ("secret", secrets.token_bytes(32))),
        Statement("put_meta", ("identity", secrets.token_bytes(16))),
    ]
    if pending:
        _talk(link, place, closing, begun=True)
        reach(Site.STORE_CREATE, Moment.WRITTEN)
    _talk(link, place, [_COMMIT], begun=True)


def _statements(text: str) -> Iterator[str]:
    """The parts of a migration. Between two `$$` is the body of a function, which is one piece."""
    begun = ""
    for piece in text.split(";\n"):
        begun += piece
        if begun.count("$$") % 2:
            begun += ";\n"
        else:
            if begun.strip():
                yield begun
            begun = ""


def _talk(link: Link, place: Place, batch: Batch, *, begun: bool = False) -> list[Answer]:
    first = () if begun or link.in_transaction else link.begin_with()
    return link.talk([*first, *batch], time.monotonic() + place.statement_seconds)
