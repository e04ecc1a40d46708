"""Checks what a client wants to run, before any of it runs.

A key may not do more to a journal than a local process could: entries fit their chain, views follow from entries,
objects have the content that their id says, deadlines are by the server's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.errors import CorruptValue, JournalDamaged, NotAllowed, RequestInvalid
from perdure.journal import chain, objects
from perdure.journal.append import find_fork_start
from perdure.journal.project import project
from perdure.platform.failpoints import Site
from perdure.records import decode
from perdure.server.access import Principal, Role
from perdure.server.remote.clocks import hide_prefixes, use_server_clock
from perdure.server.remote.conditions import find_condition
from perdure.server.remote.holders import HolderKeys
from perdure.server.remote.ownership import RowOwners
from perdure.server.remote.rules import PARAMETERS, RULES, StatementRule, Use
from perdure.store.base import LOST, Floats, Rows, Statement, Store
from perdure.store.remote.wire import SQL_TYPES, WireStatement, WireUnit
from perdure.store.rows import read_entry
from perdure.store.sqlite.scrub import OWED

KNOWN_MAX = 20_000
"""Streams whose head a guard remembers."""

StreamLinks = dict[int, tuple[int, bytes]]
"""The last entry of streams: its number and its link."""

_VECTOR = {name: names.index("vector") for name, names in PARAMETERS.items() if "vector" in names}
_META_WRITES = ("stale", OWED, LOST, "outside ")


class StatementGuard:
    """What is known of one store, to check the statements of its clients."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._heads: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        self.owners = RowOwners(store)
        self._holders = HolderKeys(store)

    def check_reads(self, principal: Principal, queries: Sequence[WireStatement]) -> list[Statement]:
        """Return queries as statements; raise if one of them writes or is not for this key."""
        for query in queries:
            if query.name in RULES and query.name != "check_file":
                raise RequestInvalid(f"{query.name[:80]} is no query")
        return [self._admit(principal, query, fresh=False) for query in queries]

    def show_rows(self, principal: Principal, statements: Sequence[Statement], rows: Sequence[Rows]) -> Sequence[Rows]:
        """Return the rows that a key may see, as its clients know them."""
        return hide_prefixes(statements, self.owners.filter_rows(principal, statements, rows))

    def check_unit(self, principal: Principal, unit: WireUnit) -> tuple[list[list[Statement]], StreamLinks]:
        """Return the batches of a unit as statements, and the heads of streams after its commit."""
        links: StreamLinks = {}
        batches, fresh = [], False
        # Entries of an imported agent keep the links of their old store where those around them were compacted.
        arrives = unit.site == Site.ARRIVE and principal.role is Role.ADMIN
        for given in unit.batches:
            batch = [self._admit(principal, one, fresh=fresh) for one in given]
            fresh = fresh or any(one.name == "add_stream" for one in batch)
            if not arrives:
                self._check_batch(principal, batch, links)
            batches.append(batch)
        return batches, links

    def note_committed(self, links: StreamLinks) -> None:
        """Remember the heads of streams after a commit."""
        for stream, head in links.items():
            self._heads[stream] = head
            self._heads.move_to_end(stream)
        while len(self._heads) > KNOWN_MAX:
            self._heads.popitem(last=False)

    # -- one statement ----------------------------------------------------------------------------------------

    def _admit(self, principal: Principal, given: WireStatement, *, fresh: bool) -> Statement:
        """Return a statement with checked arguments, unless its rule forbids it to this key."""
        parameters = PARAMETERS.get(given.name)
        if parameters is None or len(parameters) != len(given.args):
            raise RequestInvalid(f"there is no statement {given.name[:80]!r} with {len(given.args)} arguments")
        if not SQL_TYPES.issuperset(map(type, given.args)):
            raise RequestInvalid(f"an argument of {given.name} is no value of SQL")
        must = find_condition(given.must) if given.must else None
        rule = RULES.get(given.name)
        if rule is not None:
            _check_role(principal, given.name, rule)
        args = use_server_clock(self.store, principal.key_id, given.name, given.args)
        if given.name in _VECTOR and isinstance(args[_VECTOR[given.name]], bytes):
            place = _VECTOR[given.name]
            args = (*args[:place], Floats(args[place]), *args[place + 1 :])
        self._check_content(given.name, args)
        self.owners.check(principal, given.name, args, fresh=fresh)
        self._holders.check(principal, given.name, args)
        return Statement(given.name, self._mark_scrub(given.name, args), must)

    def _mark_scrub(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A note to scrub names the process that will do it, which is this one."""
        if name == "put_meta" and args[0].startswith(OWED):
            for note in self.store.scrub_note(args[0].removeprefix(OWED)):
                return note.args
        return args

    def _check_content(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "put_object":
            identity, size, stored = args
            try:
                data = objects.decompress_object(size, stored)
            except (CorruptValue, JournalDamaged, TypeError) as error:
                raise RequestInvalid("an object cannot be decompressed") from error
            if objects.identify(self.store, data) != identity:
                raise NotAllowed("an object has another content than its id says")
        elif name in ("get_meta", "meta_with_prefix"):
            if not isinstance(args[0], str) or "secret".startswith(args[0]):
                raise NotAllowed("this fact about the store stays on the server")
        elif name in ("put_meta", "drop_meta"):
            if not isinstance(args[0], str) or not args[0].startswith(_META_WRITES):
                raise NotAllowed("this fact about the store is changed on the server only")
        elif name == "erase_entry":
            self._check_erasure(*args)

    def _check_erasure(self, stream: int, seq: int, digest: bytes) -> None:
        """An erased entry keeps the digest of its body, so that the chain still verifies."""
        entry = read_entry(self.store, stream, seq)
        if entry is not None:
            kept = entry.digest if entry.body is None else chain.body_digest(entry.body)
            if digest != kept:
                raise NotAllowed("an erased entry must keep the digest of its body")

    # -- entries and views ------------------------------------------------------------------------------------

    def _check_batch(self, principal: Principal, batch: Sequence[Statement], links: StreamLinks) -> None:
        """Project every entry again: views change as the entries say, and not otherwise."""
        place = 0
        while place < len(batch):
            statement = batch[place]
            place += 1
            if statement.name == "append_entry":
                for expected in self._project_again(statement, links):
                    if place >= len(batch) or not _is_same(batch[place], expected):
                        raise NotAllowed("the views do not follow from the entry")
                    place += 1
            elif statement.name == "add_seal":
                stream, seq, link, *_ = statement.args
                if stream in links and links[stream] != (seq, link):
                    raise NotAllowed("the signature is for another entry")
            elif RULES.get(statement.name, _READ).use is Use.VIEW and principal.role is not Role.ADMIN:
                raise NotAllowed(f"{statement.name} does not follow from an entry")

    def _project_again(self, statement: Statement, links: StreamLinks) -> Iterator[Statement]:
        stream, seq, kind, at, body, link, _ = statement.args
        try:
            record = decode(kind, body)
            before = self._find_link(links, stream, seq, kind, body)
            linked = chain.link(before, stream, seq, kind, at, chain.body_digest(body))
        except (CorruptValue, JournalDamaged, TypeError, ValueError, KeyError) as error:
            raise RequestInvalid("an entry cannot be decoded") from error
        if linked != link:
            raise NotAllowed("an entry does not fit the chain of its stream")
        links[stream] = (seq, link)
        yield from project(stream, seq, at, record)

    def _find_link(self, links: StreamLinks, stream: int, seq: int, kind: int, body: bytes) -> bytes:
        """Return the link of the entry before."""
        if seq == 1 or seq == find_fork_start(kind, body):
            return chain.genesis(self.store.identity, stream)
        known = links.get(stream) or self._heads.get(stream)
        if known is not None and known[0] == seq - 1:
            return known[1]
        for (link,) in self.store.read("chain_at", (stream, seq - 1)):
            found: bytes = link
            return found
        raise NotAllowed("an entry has no predecessor in its stream")


_READ = StatementRule(Use.DIRECT, "store")


def _is_same(given: Statement, expected: Statement) -> bool:
    return given.name == expected.name and given.args == expected.args and _name_of(given) == _name_of(expected)


def _name_of(statement: Statement) -> str:
    return "" if statement.must is None else statement.must.__name__


def _check_role(principal: Principal, name: str, rule: StatementRule) -> None:
    if not principal.role.includes(Role.WRITER):
        raise NotAllowed("this key may only read; nothing was written", hint="use a key with role writer")
    if rule.use is Use.MAINTENANCE and principal.role is not Role.ADMIN:
        text = f"only an admin may do this (`{name}` is maintenance); nothing was written"
        raise NotAllowed(text, hint="use a key with role admin")
