"""Records what a model call has cost, from inside the step that makes it."""

from __future__ import annotations

from typing import Any

from perdure.kernel.protocol import drive_sync
from perdure.kernel.scope import current_frame
from perdure.run import usage
from perdure.run.core import core_of


def report_usage(
    model: str, input_tokens: Any, output_tokens: Any, *, provider: str = "", cached: Any = 0, cache_write: Any = 0
) -> None:
    """Record the tokens of a call for `agent.usage()` and `agent.savings()`. The answer is paid for in any case."""
    frame = current_frame()
    if frame is None:
        return
    try:
        counts = [int(count or 0) for count in (input_tokens, output_tokens, cached, cache_write)]
        made = usage.check_report(model or "unknown", provider, *counts)
    except (TypeError, ValueError):  # invalid numbers: record a call of unknown cost
        made = usage.check_report("unknown", "", 0, 0, 0, 0)
    drive_sync(frame.run.store, usage.record(core_of(frame), made, None))
