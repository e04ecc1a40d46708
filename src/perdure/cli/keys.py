"""`perdure keys` creates, lists, rotates and revokes the API keys of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from perdure.cli.output import CommandOutput, clean, format_age, format_time
from perdure.cli.store_option import add_common_options
from perdure.server.access import Role
from perdure.server.addresses import DEFAULT_TENANT
from perdure.server.keys import KeyRecord, KeyRing, NewKey
from perdure.store import locate
from perdure.values.clock import SYSTEM_CLOCK

T = TypeVar("T")


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke the API keys of a server."""


@keys.command()
@click.argument("name")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="The tenant whose data the key opens.")
@click.option("--agent", metavar="NAME", help="Only this agent of the tenant.")
@click.option("--role", type=click.Choice([role.value for role in Role]), default=Role.WRITER.value, show_default=True)
@click.option("--expires", metavar="DURATION", help="After this time, such as 90d; by default never.")
@click.option("--rate", metavar="N/s", help="Requests per second (100/s), minute (30/m) or hour.")
@add_common_options
def create(
    name: str,
    tenant: str,
    agent: str | None,
    role: str,
    expires: str | None,
    rate: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Create a key and print it. It is shown once; the server keeps a hash."""
    made = _with_ring(
        url,
        lambda ring: ring.create(name, tenant=tenant, agent=agent, role=Role(role), expires=expires, rate=rate),
    )
    _print_new(CommandOutput(as_json), made)
    return 0


@keys.command("list")
@add_common_options
def list_keys(url: str | None, as_json: bool) -> int:
    """List all keys, without their secrets. Revoked ones stay in the list."""
    found, out = _with_ring(url, KeyRing.list), CommandOutput(as_json)
    if out.as_json:
        out.json([describe_key(record) for record in found])
    elif not found:
        out.line("no keys; create one with `perdure keys create NAME`")
    else:
        now = SYSTEM_CLOCK.wall_ms()
        rows = [
            (
                record.id,
                clean(record.name),
                record.tenant,
                clean(record.agent or "all"),
                record.role.value,
                _status(record, now),
                record.rate or "",
                format_age(record.created_ms, now),
            )
            for record in found
        ]
        out.table(("ID", "NAME", "TENANT", "AGENT", "ROLE", "STATUS", "RATE", "CREATED"), rows)
    return 0


@keys.command()
@click.argument("id")
@add_common_options
def rotate(id: str, url: str | None, as_json: bool) -> int:
    """Give a key a new secret and print it. The old one opens nothing from now on."""
    _print_new(CommandOutput(as_json), _with_ring(url, lambda ring: ring.rotate(id)))
    return 0


@keys.command()
@click.argument("id")
@add_common_options
def revoke(id: str, url: str | None, as_json: bool) -> int:
    """Revoke a key for good."""
    record, out = _with_ring(url, lambda ring: ring.revoke(id)), CommandOutput(as_json)
    if out.as_json:
        out.json(describe_key(record))
    else:
        out.line(f"revoked {record.id} ({clean(record.name)})")
    return 0


def describe_key(record: KeyRecord) -> dict[str, Any]:
    """Return what may be known of a key."""
    moments = {
        "created_at": record.created_ms,
        "expires_at": record.expires_ms,
        "revoked_at": record.revoked_ms,
        "rotated_at": record.rotated_ms,
    }
    return {
        "id": record.id,
        "name": record.name,
        "tenant": record.tenant,
        "agent": record.agent,
        "role": record.role.value,
        "rate": record.rate,
        **{name: None if at is None else format_time(at) for name, at in moments.items()},
    }


def _print_new(out: CommandOutput, made: NewKey) -> None:
    if out.as_json:
        out.json({**describe_key(made.record), "key": made.key})
        return
    record = made.record
    out.line(made.key)
    if not out.rich:
        return  # so that KEY=$(perdure keys create NAME) works
    whose = f"agent {clean(record.agent)}" if record.agent is not None else "all agents"
    out.line(f"{record.role.value} of {whose} of tenant {record.tenant}; it is shown only now", style="dim")


def _status(record: KeyRecord, now: int) -> str:
    if record.revoked_ms is not None:
        return "revoked"
    return "valid" if record.is_valid(now) else "expired"


def _with_ring(url: str | None, do: Callable[[KeyRing], Awaitable[T]]) -> T:
    async def run() -> T:
        ring = KeyRing(locate(url))
        try:
            return await do(ring)
        finally:
            await ring.close()

    return asyncio.run(run())
