"""Coming back: opening a run that has a history, and getting to its first new step."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, process_time

from perdure import Agent
from perdure.store.sqlite import store

from ..workload import Texts

LOADED_EARLY = store
"""Perdure imports it when a store is opened; here it belongs to the imports, which have a row of their own."""


def prepare(folder: Path, steps: int) -> dict[str, int]:
    """A run with finished steps, left as a killed process leaves it."""
    agent, texts = Agent("bench", store=f"sqlite:///{folder / 'perdure.db'}"), Texts()

    @agent.step
    def think(number: int) -> str:
        return texts(number)

    with agent.run("long"):
        for number in range(steps):
            think(number)
        _leave({"steps": steps})
    return {"steps": steps}


def resume(folder: Path, steps: int, attempt: int) -> dict[str, float]:
    """The same again in a new process: the clock starts when the imports are done."""
    begun = perf_counter()
    agent, texts = Agent("bench", store=f"sqlite:///{folder / 'perdure.db'}"), Texts(1)
    bodies = 0

    @agent.step
    def think(number: int) -> str:
        nonlocal bodies
        bodies += 1
        return texts(number)

    agent.runs.list()
    store_opened, cpu = perf_counter(), process_time()
    with agent.run("long"):
        loaded, cpu = perf_counter(), process_time() - cpu
        for number in range(steps):
            think(number)
        replayed = perf_counter()
        think(-attempt - 1)
        first_new = perf_counter()
        assert bodies == 1, f"{bodies} bodies ran: finished steps were not remembered"
        _leave(
            {
                "load_ms": (loaded - store_opened) * 1000,
                "load_cpu_ms": cpu * 1000,
                "replay_ms": (replayed - loaded) * 1000,
                "first_new_ms": (first_new - begun) * 1000,
            }
        )
    return {}


def _leave(figures: dict[str, float] | dict[str, int]) -> None:
    """Report and die inside the run, without a word to the store."""
    import json

    print(json.dumps(figures), flush=True)
    os._exit(0)
