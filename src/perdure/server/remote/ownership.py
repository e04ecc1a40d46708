"""Whose rows a key may touch: a bound key those of its agent, no key but an admin's those of Perdure's own agents."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from perdure.errors import NotAllowed, RequestInvalid
from perdure.journal.retention_rules import OURS
from perdure.server.access import Principal, Role
from perdure.server.remote.read_rules import AGENT_COLUMN, READS, STREAM_COLUMN
from perdure.server.remote.rules import ALSO, PARAMETERS, RULES, Use
from perdure.store.base import Rows, Statement, Store
from perdure.store.rows import run_in

KNOWN_MAX = 20_000
"""Streams whose owner is remembered."""

_NUMBERS = ("owner", "stream", "run", "forked_from")
_NAMES = ("agent", "name")
_WORD = re.compile(r"k(\d+)x[^\"'\\]*")
"""A word of the index begins with its owner. Quotes would end it and begin another one."""

T = TypeVar("T")


class RowOwners:
    """The owners of one store's rows, and what each key may touch of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owners: OrderedDict[int, str] = OrderedDict()

    def check(self, principal: Principal, name: str, args: tuple[Any, ...], *, fresh: bool) -> None:
        """Raise `NotAllowed` if a statement touches rows that are not for this key.

        `fresh` says that the unit has created a stream, which nobody owns yet.
        """
        rule = RULES.get(name)
        appends = rule is not None and rule.use is Use.ENTRY
        if _is_free(principal) and not appends and name != "add_stream":
            return
        whose = rule.whose if rule is not None else READS[name]
        given = dict(zip(PARAMETERS[name], args, strict=True))
        if whose in _NUMBERS:
            allowed = self._may_touch(principal, given[whose], fresh=fresh)
        elif whose in _NAMES:
            allowed = _may_name(principal, given[whose], below=name == "add_stream" and given["kind"] != "agent")
        elif whose in _LISTS:
            allowed = self._may_read_list(principal, whose, given[whose])
        else:
            allowed = whose != "whole" and not (whose == "tenant" and principal.agent is not None)
        if name in ALSO:
            allowed = allowed and _may_name(principal, given[ALSO[name]])
        if not allowed:
            raise _foreign(principal, name)

    def check_streams(self, principal: Principal, streams: Iterable[int]) -> None:
        """Raise `NotAllowed` if a stream is not for this key."""
        if not _is_free(principal) and not all(self._may_touch(principal, one, fresh=False) for one in streams):
            raise _foreign(principal, "this")

    def filter_rows(self, principal: Principal, statements: Sequence[Statement], rows: Sequence[Rows]) -> list[Rows]:
        """Return the rows of lists over all agents that this key may see."""
        if _is_free(principal):
            return list(rows)
        return [self._filter(principal, one.name, found) for one, found in zip(statements, rows, strict=True)]

    def _filter(self, principal: Principal, name: str, rows: Rows) -> Rows:
        if name in AGENT_COLUMN:
            return [row for row in rows if _may_name(principal, row[AGENT_COLUMN[name]])]
        if name in STREAM_COLUMN:
            return [row for row in rows if self._may_touch(principal, row[STREAM_COLUMN[name]], fresh=False)]
        return rows

    def _may_read_list(self, principal: Principal, whose: str, text: Any) -> bool:
        """Whether all streams, entries, chunks or words of a JSON list are for this key."""
        numbers: list[int]
        if whose == "streams":
            numbers = _decoded(text, list[int])
        elif whose == "which":
            numbers = [stream for stream, _ in _decoded(text, list[tuple[int, int]])]
        elif whose == "ids":
            ids = msgspec.json.encode(_decoded(text, list[int])).decode()
            numbers = [owner for (owner,) in self._store.read("owners_of_chunks", (ids,))]
        else:
            words = [_WORD.fullmatch(word) for word, _ in _decoded(text, list[tuple[str, float]])]
            numbers = [int(word[1]) if word is not None else -1 for word in words]
        return all(self._may_touch(principal, number, fresh=False) for number in numbers)

    def _may_touch(self, principal: Principal, stream: Any, *, fresh: bool) -> bool:
        """Whether the agent behind a stream is for this key."""
        if not isinstance(stream, int) or stream < 0:
            return False
        owner = self._find_owner(stream)
        if owner is None:  # nobody's, or created by this very unit
            return fresh or stream == 0 or principal.agent is None
        return _may_name(principal, owner)

    def _find_owner(self, stream: int) -> str | None:
        """Return the agent that a stream belongs to; None if there is no such stream."""
        owner = self._owners.get(stream)
        if owner is None:
            owner = self._read_owner(stream)
            if owner is not None:
                self._owners[stream] = owner
                while len(self._owners) > KNOWN_MAX:
                    self._owners.popitem(last=False)
        return owner

    def _read_owner(self, stream: int) -> str | None:
        for number, kind, name, _ in self._store.read("streams_page", (stream - 1, 1)):
            if number != stream:
                return None
            if kind == "agent":
                return str(name)
            if kind == "process":
                return str(name).rpartition("/process ")[0]
            run = run_in(self._store.read("run_in", (stream,)))
            return run.agent if run is not None else ""
        return None


_LISTS = ("streams", "which", "ids", "words")


def _is_free(principal: Principal) -> bool:
    """Whether a key may touch everything: maintenance is done by admins."""
    return principal.role is Role.ADMIN and principal.agent is None


def _may_name(principal: Principal, agent: Any, *, below: bool = False) -> bool:
    """Whether an agent is for this key; with `below`, also its runs and processes, whose names begin with its own."""
    if not isinstance(agent, str):
        return False
    if principal.agent is None:
        return not agent.startswith(OURS)
    return agent == principal.agent or (below and agent.startswith(f"{principal.agent}/"))


def _decoded(text: Any, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError, RecursionError) as error:
        raise RequestInvalid(f"an argument is no list of what it names: {error}") from error


def _foreign(principal: Principal, name: str) -> NotAllowed:
    if principal.agent is None:
        return NotAllowed(
            f"{name} touches rows of Perdure's own agents; nothing was changed",
            hint="keep maintenance on the machine of the server, or use a key with role admin",
        )
    return NotAllowed(
        f"{name} touches rows of another agent, and this key is bound to one; nothing was changed",
        hint="use a key of that agent, or an unbound one",
    )
