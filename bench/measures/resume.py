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
    """The same again in a new process: both clocks start when the imports are done."""
    begun = _now()
    agent, texts = Agent("bench", store=f"sqlite:///{folder / 'perdure.db'}"), Texts(1)
    bodies = 0

    @agent.step
    def think(number: int) -> str:
        nonlocal bodies
        bodies += 1
        return texts(number)

    agent.runs.list()
    store_opened = _now()
    with agent.run("long"):
        loaded = _now()
        for number in range(steps):
            think(number)
        replayed = _now()
        think(-attempt - 1)
        first_new = _now()
        assert bodies == 1, f"{bodies} bodies ran: finished steps were not remembered"
        parts = {"load": (store_opened, loaded), "replay": (loaded, replayed), "first_new": (begun, first_new)}
        _leave({f"{name}_{key}": ms for name, part in parts.items() for key, ms in _milliseconds(*part).items()})
    return {}


def _now() -> tuple[float, float]:
    return perf_counter(), process_time()


def _milliseconds(begun: tuple[float, float], ended: tuple[float, float]) -> dict[str, float]:
    """What passed by the clock, and of the processor's time."""
    return {"ms": (ended[0] - begun[0]) * 1000, "cpu_ms": (ended[1] - begun[1]) * 1000}


def _leave(figures: dict[str, float] | dict[str, int]) -> None:
    """Report and die inside the run, without a word to the store."""
    import json

    print(json.dumps(figures), flush=True)
    os._exit(0)
