"""A process that is killed in the middle of its talk with a server, at any of four moments of each round trip.

    unsent      the message is about to be written
    sent        it is on its way: the server may be doing it now, or has done it
    answered    the answer has arrived, and nobody has read it
    read        it is read, and nobody has drawn a conclusion

No failpoint is armed here: where one is, a commit travels apart from what it commits, so that a kill can fall between
the two. Python's profiler tells the moments instead, in code that runs as it does for everybody.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from perdure.store.postgres.connection import PipelineConnection
from tests.crash import short_program, victim
from tests.crash.world import World

_TALK = PipelineConnection.send_batch.__code__


def a_short_run(folder: str, colour: str) -> None:
    _listen(folder, partial(short_program.main, folder, colour))


def a_long_run(folder: str, colour: str) -> None:
    cast = victim.Cast(folder, colour)
    _listen(folder, lambda: cast.palette.perform(victim.survive(cast)))


def _listen(folder: str, program: Callable[[], None]) -> None:
    """Run it. CRASH_NTH is the number of the moment of the kill; without it, all are counted."""
    moments: list[str] = []
    nth = int(os.environ.get("CRASH_NTH", "0"))

    def hook(frame: FrameType, event: str, what: Any) -> None:
        moment = _moment(frame, event, what)
        if moment is None:
            return
        moments.append(moment)
        if len(moments) == nth:
            World(folder).note("killed", moment)
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(hook)
    sys.setprofile(hook)
    program()
    sys.setprofile(None)
    (Path(folder) / "reached.txt").write_text("\n".join(moments))


def _moment(frame: FrameType, event: str, what: Any) -> str | None:
    if frame.f_code is _TALK:
        return {"call": "unsent", "return": "read"}.get(event)
    if event in ("c_call", "c_return") and getattr(what, "__qualname__", "") == "poll.poll":
        return "sent" if event == "c_call" else "answered"
    return None
