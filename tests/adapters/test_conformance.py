"""LangGraph's own suite for checkpointers: every capability is there, and every test passes; async, and sync."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import CapabilityResult

from perdure.adapters.langgraph import PerdureSaver

TESTS = 81
"""Of the version that is pinned."""


class BySync(PerdureSaver):
    """The suite calls async methods only: this gives it the sync ones."""

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        for one in self.list(config, **options):
            yield one

    async def aput(self, *args: Any) -> Any:
        return self.put(*args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        self.put_writes(*args, **options)

    async def adelete_thread(self, *args: Any) -> None:
        self.delete_thread(*args)

    async def adelete_for_runs(self, *args: Any) -> None:
        self.delete_for_runs(*args)

    async def acopy_thread(self, *args: Any) -> None:
        self.copy_thread(*args)

    async def aprune(self, *args: Any, **options: Any) -> None:
        self.prune(*args, **options)


@pytest.mark.parametrize("saver", [PerdureSaver, BySync])
async def test_every_capability_is_there_and_passes(
    store_url: str, saver: Callable[[str], BaseCheckpointSaver[Any]]
) -> None:
    @checkpointer_test(name="PerdureSaver")
    async def made() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        async with saver(store_url) as one:  # type: ignore[attr-defined]
            yield one

    report = await validate(made)
    found: list[CapabilityResult] = list(report.results.values())
    assert [(one.failures, one.detected) for one in found] == [([], True)] * 8
    assert sum(one.tests_passed for one in found) == TESTS
