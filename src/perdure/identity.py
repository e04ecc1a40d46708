"""`agent.identity`: who an agent is, whom it comes from, and what it vouches for."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from . import records as r
from .clock import moment
from .errors import StoreUnavailable
from .journal.walk import pages
from .keys import signed_by

if TYPE_CHECKING:
    from .engine import Engine
    from .store.base import Store

_SIGNED = b"perdure message "
"""Before what users have signed: none of it can be taken for a head of the journal."""


class Arrival(msgspec.Struct, frozen=True):
    """An agent came out of a file: moved from another store, or as a child of somebody."""

    how: str
    """`moved`, `copied`, or `returned` to the store that it had not left after all."""
    name: str
    public_key: bytes
    store: str
    """The identity of the store that it came from."""
    at: datetime
    number: str = ""
    """Of this arrival, and no other. Two agents whose arrivals have one `file` and two numbers are twins."""
    file: str = ""
    """The SHA-256 of what is in the file that it came in."""

    def __repr__(self) -> str:
        which = f", number {self.number[:16]}" if self.number else ""
        whose = f"{self.name!r}, key {self.public_key.hex()[:16]}{which}"
        return f"<Arrival {self.how} from {whose}, at {self.at:%Y-%m-%d %H:%M}>"


def arrivals_in(store: Store, stream: int) -> list[tuple[int, r.AgentArrived]]:
    """How an agent came here, by its own stream, and when; the oldest first."""
    rows = (row for page in pages(store, stream) for row in page)
    found = ((at, r.decode(kind, body)) for _, kind, at, body, _, _ in rows if kind == r.Kind.AGENT_ARRIVED and body)
    return [(at, it) for at, it in found if isinstance(it, r.AgentArrived)]


class Identity:
    """Who an agent is: a name and an Ed25519 key.

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
        """Thirty-two bytes that anybody may know."""
        self._engine.ensure_agent()
        [(_, public_key)] = self._engine.store.read("get_agent", (self._engine.name,))
        return bytes(public_key)

    @property
    def parent(self) -> Arrival | None:
        """Whom this agent was copied from; None when it is nobody's child."""
        return next((it for it in reversed(self.arrivals) if it.how == "copied"), None)

    @property
    def arrivals(self) -> list[Arrival]:
        """How this agent came here, the oldest first; empty when it was made here."""
        engine = self._engine
        if not engine.is_known():
            return []
        return [
            Arrival(it.how, it.name, it.public_key, it.store, moment(at), it.number.hex(), it.file.hex())
            for at, it in arrivals_in(engine.store, engine.stream)
        ]

    def sign(self, message: bytes) -> bytes:
        """Sixty-four bytes that only who has this agent's private key can make."""
        self._engine.ensure_agent()
        key = self._engine.signer
        if key is None:
            raise StoreUnavailable(
                f"the private key of agent {self.name!r} is not here", hint="give key=, PERDURE_KEY or the key file"
            )
        return key.sign(_SIGNED + message)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether this agent has signed exactly this."""
        return signed_by(self.public_key, _SIGNED + message, signature)

    def __repr__(self) -> str:
        return f"<Identity {self.name!r}, key {self.public_key.hex()[:16]}>"
