"""Child processes whose simulated tools need not take their time: Python runs what it finds by PYTHONPATH first."""

from __future__ import annotations

import os
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

QUICK = "import time; time.sleep = lambda seconds, sleep=time.sleep: sleep(seconds / 50)\n"


def hurry(folder: Path) -> str:
    """A PYTHONPATH with which processes hurry, kept in the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(QUICK)
    return f"{folder}{os.pathsep}{SOURCE}"
