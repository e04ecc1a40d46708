"""`perdure notify` shows and repeats the notices that a server sends about open questions."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_time
from perdure.cli.store_option import add_common_options, json_option
from perdure.server.addresses import DEFAULT_TENANT
from perdure.server.notify.deliveries import Deliveries
from perdure.server.notify.targets import SECRET_PREFIX
from perdure.server.tenants import Tenants
from perdure.store import locate

T = TypeVar("T")


@click.group()
def notify() -> None:
    """Show and repeat the notices that a server sends about open questions."""


@notify.command("list")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@click.option("--status", type=click.Choice(["pending", "delivered", "dead"]), help="Only these.")
@add_common_options
def list_notices(tenant: str, status: str | None, url: str | None, as_json: bool) -> int:
    """List the notices of open questions. `dead` ones were refused in every attempt."""
    found = _with_deliveries(url, tenant, Deliveries.list).values()
    shown, out = [one for one in found if status in (None, one.status)], CommandOutput(as_json)
    if out.as_json:
        out.json([{"id": one.key, **msgspec.structs.asdict(one)} for one in shown])
    elif not shown:
        out.line("no notices")
    else:
        rows = [
            (
                one.key,
                one.status,
                one.label,
                clean(f"{one.agent}/{one.run}"),
                str(one.attempts),
                format_time(one.next_ms) if one.status == "pending" else "",
                clean(one.error),
            )
            for one in shown
        ]
        out.table(("ID", "STATUS", "TO", "RUN", "ATTEMPTS", "NEXT", "ERROR"), rows)
    return 0


@notify.command()
@click.argument("id")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@add_common_options
def retry(id: str, tenant: str, url: str | None, as_json: bool) -> int:
    """Send a notice again now, dead or not."""
    again, out = _with_deliveries(url, tenant, lambda deliveries: deliveries.retry(id)), CommandOutput(as_json)
    if out.as_json:
        out.json({"id": again.key, **msgspec.structs.asdict(again)})
    else:
        out.line(f"{again.key} is due now; a running server sends it")
    return 0


@notify.command()
@json_option
def secret(as_json: bool) -> int:
    """Print a new secret for PERDURE_NOTIFY_SECRET. The receiver needs it too."""
    made = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    if as_json:
        CommandOutput(as_json).json({"secret": made})
    else:
        click.echo(made)
    return 0


def _with_deliveries(url: str | None, tenant: str, do: Callable[[Deliveries], Awaitable[T]]) -> T:
    async def run() -> T:
        tenants = Tenants(locate(url))
        try:
            with tenants.using():
                return await do(Deliveries(await tenants.server_agent(tenant)))
        finally:
            await tenants.close()

    return asyncio.run(run())
