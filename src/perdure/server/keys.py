"""API keys: `pdk_<id>_<secret>`, of which the server keeps only a hash.

Keys are state of the agent `perdure:keys` in a store of their own, so every change of a key is in a journal.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Any

import msgspec

from perdure.api.aio import AsyncAgent
from perdure.errors import KeyNotFound, Unauthenticated, WrongValue
from perdure.server.access import Principal, Role
from perdure.server.addresses import DEFAULT_TENANT, check_tenant, is_missing, key_store_url, make_folder
from perdure.values.clock import SYSTEM_CLOCK, Clock
from perdure.values.durations import seconds_of

PREFIX = "pdk"
SPACE = "keys"
NAME_CHARACTERS_MAX = 100
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|m|h)")
_RATE_SECONDS = {"s": 1, "m": 60, "h": 3600}
_NO_HASH = "0" * 64


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is kept: everything but its secret."""

    id: str
    name: str
    hash: str
    tenant: str = DEFAULT_TENANT
    agent: str | None = None
    role: Role = Role.WRITER
    rate: str | None = None
    created_ms: int = 0
    expires_ms: int | None = None
    revoked_ms: int | None = None
    rotated_ms: int | None = None

    @property
    def requests_per_second(self) -> float | None:
        """The rate as a number; None if the key has the server's."""
        return None if self.rate is None else parse_rate(self.rate)

    def is_valid(self, now: int) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_ms is None and (self.expires_ms is None or now < self.expires_ms)


class NewKey(msgspec.Struct, frozen=True):
    """A key at the one moment when its secret is known."""

    record: KeyRecord
    key: str


class KeyRing:
    """The keys of a server."""

    def __init__(self, store: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._url = key_store_url(store)
        self.agent = AsyncAgent("perdure:keys", store=self._url)
        """Owns the keys, and the sessions that they opened."""
        self._clock = clock

    async def prepare(self) -> None:
        """Create the store of the keys if it does not exist."""
        make_folder(self._url)
        await self.agent.state.version(SPACE, "")

    async def create(
        self,
        name: str,
        *,
        tenant: str = DEFAULT_TENANT,
        agent: str | None = None,
        role: Role = Role.WRITER,
        expires: str | None = None,
        rate: str | None = None,
    ) -> NewKey:
        """Create a key and return it with its secret, which is not kept."""
        if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
            raise WrongValue(f"the name of a key has 1 to {NAME_CHARACTERS_MAX} printable characters")
        if rate is not None:
            parse_rate(rate)
        make_folder(self._url)
        now = self._clock.wall_ms()
        secret = secrets.token_hex(24)
        record = KeyRecord(
            id=secrets.token_hex(6),
            name=name,
            hash=_hash(secret),
            tenant=check_tenant(tenant),
            agent=agent,
            role=role,
            rate=rate,
            created_ms=now,
            expires_ms=None if expires is None else now + int(seconds_of(expires, "expires") * 1000),
        )
        await self._write(record, if_version=0)
        return NewKey(record, _key_of(record.id, secret))

    async def list(self) -> list[KeyRecord]:
        """Return all keys, the oldest first. Revoked ones stay in the list."""
        if is_missing(self._url):
            return []
        found = [_read_record(value) for _, value in await self.agent.state.items(SPACE)]
        return sorted(found, key=lambda record: (record.created_ms, record.id))

    async def find(self, id: str) -> KeyRecord:
        """Return one key."""
        value = None if is_missing(self._url) else await self.agent.state.get(SPACE, id)
        if value is None:
            raise KeyNotFound(f"there is no key {id!r}")
        return _read_record(value)

    async def rotate(self, id: str) -> NewKey:
        """Give a key a new secret. The old one opens nothing from now on."""
        record = await self.find(id)
        if record.revoked_ms is not None:
            raise KeyNotFound(f"key {id!r} is revoked", hint="create a new one with `perdure keys create NAME`")
        secret = secrets.token_hex(24)
        record = msgspec.structs.replace(record, hash=_hash(secret), rotated_ms=self._clock.wall_ms())
        await self._write(record)
        return NewKey(record, _key_of(id, secret))

    async def revoke(self, id: str) -> KeyRecord:
        """Revoke a key for good. Revoking again changes nothing."""
        record = await self.find(id)
        if record.revoked_ms is None:
            record = msgspec.structs.replace(record, revoked_ms=self._clock.wall_ms())
            await self._write(record)
        return record

    async def verify(self, token: str) -> Principal:
        """Return the principal of a key. Every wrong key takes the same path and gets the same answer."""
        prefix, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        value = await self.agent.state.get(SPACE, key_id) if key_id.isascii() and key_id.isalnum() else None
        record = None if value is None else _read_record(value)
        same = hmac.compare_digest(_hash(secret), record.hash if record is not None else _NO_HASH)
        if record is None or not same or prefix != PREFIX or not record.is_valid(self._clock.wall_ms()):
            raise Unauthenticated("the key is not valid")
        return _principal_of(record)

    async def recognize(self, id: str, hash: str) -> Principal | None:
        """Return the principal of a key that was verified before; None once it was revoked, rotated or has expired."""
        value = await self.agent.state.get(SPACE, id)
        record = None if value is None else _read_record(value)
        if record is None or record.hash != hash or not record.is_valid(self._clock.wall_ms()):
            return None
        return _principal_of(record)

    async def close(self) -> None:
        """Close the store of the keys."""
        await self.agent.close()

    async def _write(self, record: KeyRecord, if_version: int | None = None) -> None:
        await self.agent.state.set(SPACE, record.id, msgspec.to_builtins(record), if_version=if_version)


def parse_rate(text: str) -> float:
    """Return requests per second.

    >>> parse_rate("100/s"), parse_rate("30/m")
    (100.0, 0.5)
    """
    found = _RATE.fullmatch(text)
    if found is None or float(found[1]) <= 0:
        raise WrongValue(f'rate {text!r}: write a number per second, minute or hour, such as "100/s" or "30/m"')
    return float(found[1]) / _RATE_SECONDS[found[2]]


def _hash(secret: str) -> str:
    # The secret has 192 random bits, so a plain hash resists guessing; a slow one would only slow down requests.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _key_of(id: str, secret: str) -> str:
    return f"{PREFIX}_{id}_{secret}"


def _principal_of(record: KeyRecord) -> Principal:
    return Principal(record.id, record.tenant, record.agent, record.role, record.requests_per_second)


def _read_record(value: Any) -> KeyRecord:
    return msgspec.convert(value, KeyRecord)
