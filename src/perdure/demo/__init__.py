"""`perdure demo`: an agent of 50 tool calls is killed twice with SIGKILL and goes on, and everything is counted.

`agent.py` is the agent, `story.py` its processes, `evidence.py` counts what they left, `screen.py` shows it.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path


def run_demo(*, json: bool, plain: bool, folder: Path | None) -> int:
    """Play the demo; 0 when every claim was verified by counting, 1 when one was not, 2 when it cannot start.

    The files are kept in `folder`, which must be empty or new; without one they are removed afterwards.
    """
    from .evidence import examine
    from .screen import choose_display
    from .story import play

    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        print(f"error: {folder} is not an empty folder; the demo starts from nothing", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        if folder is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-demo-")))
        else:
            place = folder.absolute()
            place.mkdir(parents=True, exist_ok=True)
        display = stack.enter_context(choose_display(json=json, plain=plain))
        display.begin(place, kept=folder is not None)
        lives = play(place, display.update)
        report = examine(place, lives)
        display.end(report, place if folder is not None else None)
    return 0 if report.ok else 1
