"""Child processes whose simulated tools need not take their time: Python runs what it finds by PYTHONPATH first."""

from __future__ import annotations

import os
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

QUICK = "import time; time.sleep = lambda seconds, sleep=time.sleep: sleep(seconds / 50)\n"

# A lease of half a minute, twice, is too long for a test. The seam is that of the crash tests: see `shorten_leases`.
SHORT_LEASES = """\
from perdure import leases
from perdure.run import doubt
leases.LEASE_MS = doubt.LEASE_MS = 1500
leases.HEARTBEAT_SECONDS = 0.3
"""


def hurry(folder: Path, *changes: str) -> str:
    """A PYTHONPATH with which processes hurry, kept in the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text("".join([QUICK, *changes]))
    return f"{folder}{os.pathsep}{SOURCE}"
