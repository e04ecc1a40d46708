"""`run.executor()`: a thread pool whose work belongs to a run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class RunExecutor(ThreadPoolExecutor):
    """Threads that know which run they work for."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Like that of any executor; the run's context goes along."""
        here = copy_context()
        return super().submit(lambda: here.run(fn, *args, **kwargs))
