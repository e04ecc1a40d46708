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
PYTHON = FOLDER / "bin" / "python"
INSTALL_SECONDS_MAX = 900


def python(say: Callable[[str], None]) -> Path:
    """The interpreter of the peers' environment, which is made when it is not there or its pins have changed."""
    stamp, wanted = FOLDER / ".pins", hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        say("installing the peers into .venv-peers (once) ...")
        try:
            _make()
        except (OSError, MeasurementFailed) as error:
            raise NoPeers(str(error).strip().splitlines()[-1]) from error
        stamp.write_text(wanted, encoding="utf-8")
    return PYTHON


def _make() -> None:
    if not PYTHON.exists():
        run([sys.executable, "-m", "venv", str(FOLDER)], seconds=INSTALL_SECONDS_MAX)
    # Made by a tool: git and the linters are told so here.
    (FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    install = [str(PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-c", str(CONSTRAINTS)]
    run([*install, *PACKAGES], seconds=INSTALL_SECONDS_MAX)
