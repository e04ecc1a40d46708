"""Versions of a program, and a store with the runs of the first one: what `perdure replay-check` is tried on."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import main
from perdure.kernel.engine import close_left

from .kit import Behind, World

NUMBERS = itertools.count(1)
"""Modules are imported once in a process."""


class Shop:
    """Versions of a program, and a store with the runs of the first one."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.url = url

    def write_version(self, program: str, change: tuple[str, str] = ("", "")) -> str:
        """A version of it, as a module of its own; returns its name."""
        name = f"replayed_{next(NUMBERS)}"
        assert change[0] in program
        (self._folder / f"{name}.py").write_text(program.replace(*change) if change[0] else program)
        return name

    def module(self, name: str) -> Any:
        """One that was written."""
        return importlib.import_module(name)

    def tables(self) -> dict[str, list[Any]]:
        """All that the store holds."""
        names = (
            "journal",
            "streams",
            "runs",
            "leases",
            "holders",
            "store_locations",
            "run_state",
            "questions",
            "agent_state",
            "objects",
        )
        with Behind(self.url) as behind:
            return {name: sorted(map(repr, behind.execute(f"SELECT * FROM {name}"))) for name in names}


@pytest.fixture
def shop(
    tmp_path: Path, store_url: str, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shop]:
    monkeypatch.setenv("REPLAYED", store_url)
    monkeypatch.setenv("WORLD", str(world.path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield Shop(tmp_path, store_url)
    close_left(store_url)


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["replay-check", *arguments, "--json"])
    told = capsys.readouterr()
    assert told.out, told.err
    return code, json.loads(told.out)
