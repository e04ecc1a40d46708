"""`perdure demo`: an agent of 50 tool calls is killed twice with SIGKILL and goes on, and everything is counted.

`agent.py` is the agent, `stage.py` the store and the hosts, `story.py` the processes, `evidence.py` counts what they
left, `screen.py` shows it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path


def run_demo(*, json: bool, plain: bool, folder: Path | None, store: str | None = None) -> int:
    """Play the demo; 0 when every claim was verified by counting, 1 when one was not, 2 when it cannot start.

    `store` is the URL of a PostgreSQL server; without it the store is a file. What was made is kept in `folder`,
    which must be empty or new, and in the server. Without a folder it is removed, unless something went wrong: then
    it is what one wants to see.
    """
    if folder is not None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            print(f"error: {folder} is not an empty folder, and the demo starts from nothing", file=sys.stderr)
            return 2
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if _play(folder.absolute(), store, json, plain, keep=True) else 1
    place = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    ok = True  # an exception, such as Ctrl-C, leaves nothing behind
    try:
        ok = _play(place, store, json, plain, keep=False)
    finally:
        if ok:
            shutil.rmtree(place)
    return 0 if ok else 1


def _play(place: Path, store: str | None, json: bool, plain: bool, *, keep: bool) -> bool:
    from .evidence import examine
    from .screen import choose_display
    from .stage import drop, stage_in
    from .story import play

    stage, ok = stage_in(place, store), True
    try:
        with choose_display(json=json, plain=plain) as display:
            display.begin(stage, kept=keep)
            lives = play(stage, display.update)
            report = examine(stage, lives)
            ok = report.ok
            display.end(report, stage if keep or not ok else None)
    finally:
        if ok and not keep:
            drop(stage)
    return ok
