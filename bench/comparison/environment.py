"""The environment of the peers: `.venv-peers`, made from pins, so that nothing of theirs enters ours."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

from ..failures import MeasurementFailed, NoPeers
from ..lab import ROOT, run

FOLDER = ROOT / ".venv-peers"
CONSTRAINTS = ROOT / "bench" / "peers" / "constraints.txt"
PACKAGES = ("dbos", "langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg[binary]")
CHROMA = ("chromadb",)
"""Installed into the same place, but only for who is measured beside it: it is larger than all the others."""

PYTHON = FOLDER / "bin" / "python"
INSTALL_SECONDS_MAX = 900


def python(say: Callable[[str], None], packages: tuple[str, ...] = PACKAGES) -> Path:
    """The interpreter of the peers' environment; what is not there yet or has other pins now is installed first."""
    stamp, wanted = FOLDER / f".pins-{packages[0]}", hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        say(f"installing {packages[0]} into .venv-peers (once) ...")
        try:
            _install(packages)
        except (OSError, MeasurementFailed) as error:
            raise NoPeers(str(error).strip().splitlines()[-1]) from error
        stamp.write_text(wanted, encoding="utf-8")
    return PYTHON


def _install(packages: tuple[str, ...]) -> None:
    if not PYTHON.exists():
        run([sys.executable, "-m", "venv", str(FOLDER)], seconds=INSTALL_SECONDS_MAX)
    # Made by a tool: git and the linters are told so here.
    (FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    install = [str(PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-c", str(CONSTRAINTS)]
    run([*install, *packages], seconds=INSTALL_SECONDS_MAX)
