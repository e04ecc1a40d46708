"""`perdure demo`: an agent of 50 tool calls is killed twice with SIGKILL and goes on, and everything is counted.

`agent.py` is the agent, `story.py` its processes, `evidence.py` counts what they left, `screen.py` shows it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path


def run_demo(*, json: bool, plain: bool, folder: Path | None) -> int:
    """Play the demo; 0 when every claim was verified by counting, 1 when one was not, 2 when it cannot start.

    The files are kept in `folder`, which must be empty or new. Without one they are removed, unless something
    went wrong: then they are what one wants to see.
    """
    if folder is not None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            print(f"error: {folder} is not an empty folder, and the demo starts from nothing", file=sys.stderr)
            return 2
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if _play(folder.absolute(), json, plain, keep=True) else 1
    place = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    ok = True  # an exception, such as Ctrl-C, leaves nothing behind
    try:
        ok = _play(place, json, plain, keep=False)
    finally:
        if ok:
            shutil.rmtree(place)
    return 0 if ok else 1


def _play(place: Path, json: bool, plain: bool, *, keep: bool) -> bool:
    from .evidence import examine
    from .screen import choose_display
    from .story import play

    with choose_display(json=json, plain=plain) as display:
        display.begin(place, kept=keep)
        lives = play(place, display.update)
        report = examine(place, lives)
        display.end(report, place if keep or not report.ok else None)
    return report.ok
