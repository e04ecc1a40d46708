"""`perdure demo`."""

from __future__ import annotations

from pathlib import Path

import click

from .stores import json_option


@click.command()
@click.option("--plain", is_flag=True, help="No colours and no live display.")
@click.option("--folder", type=click.Path(path_type=Path), help="Work in this folder, and keep it.")
@json_option
def demo(plain: bool, folder: Path | None, as_json: bool) -> int:
    """Watch an agent survive kill -9.

    Fifty tool calls without a network; the process is killed for real, twice, and goes on where it was.
    """
    from ..demo import run_demo

    return run_demo(json=as_json, plain=plain, folder=folder)
