"""What happens when replayed code writes another value than recorded: it is never dropped without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure import records as r
from perdure.errors import Diverged, ReplayDiffers, RunFinished
from perdure.kernel.program_line import calling_place, find_calling_line, format_value, warn_at

if TYPE_CHECKING:
    from perdure.run.core import RunCore

HINT = (
    "new work needs another run id; the next message of a conversation, agent.thread(id); take times and random values "
    'from run.now(), run.random() or run.uuid(); on_change="rerun" records the new value instead'
)


def handle_difference(
    run: RunCore, what: str, recorded: Any, value: Any, *, telemetry: bool = False, line: str = ""
) -> bool:
    """Handle a value that differs from the recorded one. Returns False if the new one must be recorded.

    `telemetry` (events, progress, usage) only warns, except in strict mode and on finished runs.
    """
    line = line or find_calling_line()
    where = f" at {line}" if line else ""
    text = f"{what} is {format_value(value)}{where}, and run {run.id!r} has recorded {format_value(recorded)}"
    if run.on_change == "rerun":
        if run.finished:
            raise RunFinished(f"{text}; the run is finished, and records nothing new")
        return False
    if not telemetry or run.finished or run.engine.strict:
        raise Diverged(f"{text}; nothing was written, and all that is recorded is kept", hint=HINT)
    if (what, line) not in run.differences:
        run.differences.add((what, line))
        run.account.note(r.ReplayDiffered(what, line))
        warn_at(calling_place(), ReplayDiffers(f"{text}; the recorded value stays"))
    return True
