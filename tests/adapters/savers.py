"""PerdureSaver as these tests open it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from perdure import Agent


@contextmanager
def saver_at(url: str, **options: Any) -> Iterator[Any]:
    """A saver of its own on a store, which is closed in the end."""
    from perdure.adapters.langgraph import PerdureSaver

    with closing(Agent("graphs", store=url)) as agent:
        yield PerdureSaver(agent, **options)
