"""`run.executor()`: a thread pool whose work belongs to a run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from perdure.kernel.bodies import join_body
from perdure.kernel.scope import FRAME
from perdure.values.numbers import require_whole_number

P = ParamSpec("P")
R = TypeVar("R")


class RunExecutor(ThreadPoolExecutor):
    """A thread pool that propagates the run's context."""

    def __init__(self, max_workers: int | None = None) -> None:
        if max_workers is not None:
            require_whole_number("max_workers", max_workers, 1)
        super().__init__(max_workers)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a call with the run's context.

        A call submitted by the body of an effect counts as part of that body until its future is done.
        """
        here, work = copy_context(), join_body(FRAME.get())
        try:
            future = super().submit(lambda: here.run(fn, *args, **kwargs))
        except BaseException:
            if work is not None:
                work.end()
            raise
        if work is not None:
            future.add_done_callback(lambda _: work.end())
        return future
