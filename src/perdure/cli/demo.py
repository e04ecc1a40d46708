"""`perdure demo`."""

from __future__ import annotations

from pathlib import Path

import click

from ..store import is_postgres
from .stores import json_option


@click.command()
@click.option("--plain", is_flag=True, help="No colours and no live display.")
@click.option("--folder", type=click.Path(path_type=Path), help="Work in this folder, and keep it and the store.")
@click.option("--store", "url", metavar="URL", help="postgresql://...: a server, and a host for each process.")
@json_option
def demo(plain: bool, folder: Path | None, url: str | None, as_json: bool) -> int:
    """Watch an agent survive kill -9.

    Fifty tool calls without a network; the process is killed for real, twice, and goes on where it was. The store is
    a file, or a schema of its own in a PostgreSQL server: then each process is on another host.
    """
    from ..demo import run_demo

    if url is not None and not is_postgres(url):
        raise click.UsageError("--store takes a postgresql:// URL; without it the demo uses a file of its own")
    return run_demo(json=as_json, plain=plain, folder=folder, store=url)
