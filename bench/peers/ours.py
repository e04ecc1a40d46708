"""Perdure as a contender."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

from perdure import Agent, Done, NotDone

from .contender import Call, Contender, on_postgres
from .settings import read_postgres_settings


class Perdure:
    """Steps, or effects with or without a check."""

    def __init__(self, url: str, outside: Path | None = None) -> None:
        self._url, self._outside = url, outside
        self._agent = Agent("bench", store=url)

    def durable(self, name: str, function: Call, *, effect: bool) -> Call:
        """A step or an effect; the check looks at the file that stands for the outside world."""
        if not effect:
            return self._agent.step(name=name)(function)
        if self._outside is None:
            return self._agent.effect(name=name)(function)
        return self._agent.effect(name=name, check=self._check)(function)

    def _check(self, number: int, **_key: str) -> Done | NotDone:
        assert self._outside is not None
        happened = self._outside.exists() and "PAY" in self._outside.read_text("utf-8")
        return Done("paid") if happened else NotDone()

    def run(self, name: str, body: Callable[[], None]) -> None:
        """A run that does not wait for people: `RunWaiting` tells that one is asked."""
        with self._agent.run(name, wait=0):
            body()

    def facts(self) -> dict[str, str]:
        """What the store has set; SQLite's are read back by Perdure itself, which refuses anything less."""
        durability = (
            read_postgres_settings(self._url) if on_postgres(self._url) else "journal_mode=wal, synchronous=full"
        )
        return {"version": importlib.metadata.version("perdure"), "durability": durability}


def contender(url: str, outside: Path | None = None) -> Contender:
    """The module's door. What the store will need is imported here: imports are told apart from opening."""
    if on_postgres(url):
        importlib.import_module("perdure.store.postgres.store")
    else:
        importlib.import_module("perdure.store.sqlite.store")
    return Perdure(url, outside)
