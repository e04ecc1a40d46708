"""Which module speaks for which system. Imported late: each lives in an environment of its own."""

from __future__ import annotations

from pathlib import Path

from .contender import Contender


def make(system: str, url: str, outside: Path | None = None) -> Contender:
    """The system of that name on that store; `outside` is what a check may look at."""
    if system == "perdure":
        from . import ours

        return ours.contender(url, outside)
    if system == "dbos":
        from . import dbos_workflow

        return dbos_workflow.contender(url, outside)
    if system == "langgraph":
        from . import langgraph_entrypoint

        return langgraph_entrypoint.contender(url, outside)
    assert system == "floor", f"no system {system!r}"
    from . import floor

    return floor.contender(url, outside)
