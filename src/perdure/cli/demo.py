"""`perdure demo`."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.cli.store_option import json_option


@click.command()
@click.option("--plain", is_flag=True, help="No colours.")
@click.option("--folder", type=click.Path(path_type=Path), help="Work in this folder and keep it.")
@json_option
def demo(plain: bool, folder: Path | None, as_json: bool) -> int:
    """Watch an agent survive kill -9.

    Fifty tool calls, offline. The process is killed twice with SIGKILL and continues where it was.
    """
    from perdure.demo import run_demo

    return run_demo(json=as_json, plain=plain, folder=folder)
