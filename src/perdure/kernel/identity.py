"""`agent.identity`: an agent's name, key, signatures and origin."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.errors import StoreUnavailable
from perdure.journal.keys import is_signed_by
from perdure.journal.stream_reader import pages
from perdure.values.clock import moment

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.store.base import Store

_SIGNED = b"perdure message "
"""Prefix of every message that users sign, so that no signature can pass for one of a journal head."""


class Arrival(msgspec.Struct, frozen=True):
    """An arrival of an agent from a file: moved from another store, or copied from a parent."""

    how: str
    """`moved`, `copied`, or `returned` to a store that it never left."""
    name: str
    public_key: bytes
    store: str
    """The identity of the store of origin."""
    at: datetime
    number: str = ""
    """Unique to this arrival. Two agents whose arrivals share `file` but not `number` are copies."""
    file: str = ""
    """The SHA-256 of the content of the file."""

    def __repr__(self) -> str:
        which = f", number {self.number[:16]}" if self.number else ""
        whose = f"{self.name!r}, key {self.public_key.hex()[:16]}{which}"
        return f"<Arrival {self.how} from {whose}, at {self.at:%Y-%m-%d %H:%M}>"


def arrivals_in(store: Store, stream: int) -> list[tuple[int, r.AgentArrived]]:
    """Return the arrivals recorded in an agent's own stream and their times, oldest first."""
    rows = (row for page in pages(store, stream) for row in page)
    found = (
        (at, r.decode(kind, body)) for _, kind, at, body, _, _ in rows if kind == r.EntryKind.AGENT_ARRIVED and body
    )
    return [(at, record) for at, record in found if isinstance(record, r.AgentArrived)]


class Identity:
    """An agent's identity: a name and an Ed25519 key.

    >>> agent.identity.public_key.hex()
    >>> signature = agent.identity.sign(b"I agree")
    >>> agent.identity.verify(b"I agree", signature)
    True
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        """The agent's name in this store."""
        return self._engine.name

    @property
    def public_key(self) -> bytes:
        """The public Ed25519 key, 32 bytes."""
        self._engine.ensure_agent()
        [(_, public_key)] = self._engine.store.read("get_agent", (self._engine.name,))
        return bytes(public_key)

    @property
    def parent(self) -> Arrival | None:
        """The agent that this one was copied from, or None."""
        return next((arrival for arrival in reversed(self.arrivals) if arrival.how == "copied"), None)

    @property
    def arrivals(self) -> list[Arrival]:
        """How this agent came to this store, oldest first; empty if it was created here."""
        engine = self._engine
        if not engine.is_known():
            return []
        return [
            Arrival(
                arrival.how,
                arrival.name,
                arrival.public_key,
                arrival.store,
                moment(at),
                arrival.number.hex(),
                arrival.file.hex(),
            )
            for at, arrival in arrivals_in(engine.store, engine.stream)
        ]

    def sign(self, message: bytes) -> bytes:
        """Sign a message with the agent's private key. Returns 64 bytes."""
        self._engine.ensure_agent()
        key = self._engine.signer
        if key is None:
            raise StoreUnavailable(
                f"the private key of agent {self.name!r} was not found", hint="set key=, PERDURE_KEY or the key file"
            )
        return key.sign(_SIGNED + message)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether this agent signed exactly this message."""
        return is_signed_by(self.public_key, _SIGNED + message, signature)

    def __repr__(self) -> str:
        return f"<Identity {self.name!r}, key {self.public_key.hex()[:16]}>"
