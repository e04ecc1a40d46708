"""Imports point downwards, make no cycles, and need no more than the core's dependencies."""

from __future__ import annotations

import pytest

from tests.tidy import layers, project_rules
from tests.tidy.source import ROOT, Source, expect_none, sources

CORE = ("apsw", "msgspec", "rich", "click")


def snippet(text: str, path: str = "src/perdure/journal/append.py") -> Source:
    return Source(path, text)


def test_every_package_has_a_floor() -> None:
    expect_none(layers.find_without_floor(sources("src")))


def test_imports_point_downwards() -> None:
    expect_none(c for source in sources("src") for c in layers.upward(source))


def test_there_are_no_cycles() -> None:
    expect_none(layers.cycles(sources("src")))


def test_the_core_needs_only_its_dependencies() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    core = project_rules.dependencies(pyproject)["core"]
    expect_none(c for source in sources("src") for c in layers.foreign(source, core))
    expect_none(c for source in sources("src") for c in layers.find_early_imports(source))


def test_agents_page_names_every_unit() -> None:
    expect_none(layers.find_unmapped((ROOT / "AGENTS.md").read_text(), sources("src")))


UPWARD = [
    "from perdure.api.aio import AsyncAgent",
    "import perdure.cli.main",
    "from perdure import run",
    "from perdure import Agent",
    "from .. import run",
    "from ..run import core",
    "def f():\n    from perdure.data.state import delete",
    "if TYPE_CHECKING:\n    from perdure.run.core import RunCore",
]
DOWNWARD = [
    "from perdure.errors import PerdureError",
    "from perdure import errors, records",
    "from perdure.store.base import Store",
    "from perdure.journal.objects import put",
    "from . import chain",
    "from .chain import link",
    "import json",
]


@pytest.mark.parametrize("text", UPWARD)
def test_imports_upwards_are_noticed(text: str) -> None:
    assert len(list(layers.upward(snippet(text)))) == 1


@pytest.mark.parametrize("text", DOWNWARD)
def test_imports_downwards_are_fine(text: str) -> None:
    assert list(layers.upward(snippet(text))) == []


def test_the_package_itself_imports_the_api_but_not_the_surface() -> None:
    text = "from perdure.api.sync import Agent\nfrom perdure.cli.main import main\n"
    (complaint,) = layers.upward(snippet(text, "src/perdure/__init__.py"))
    assert "imports cli" in complaint


def test_siblings_on_one_floor_do_not_import_each_other() -> None:
    (complaint,) = layers.upward(snippet("from perdure.memory import read", "src/perdure/work/tasks/claim.py"))
    assert "work imports memory" in complaint


def test_cycles_are_noticed() -> None:
    state = "src/perdure/data/state.py"
    for_types = "if TYPE_CHECKING:\n    from perdure.data.events.read import EventReader"
    (complaint,) = layers.cycles([snippet(for_types, state), snippet("from perdure.data import state", _READ)])
    assert "perdure.data.events.read -> perdure.data.state" in complaint
    assert layers.cycles([snippet("", state), snippet("from perdure.data import state", _READ)]) == []


_READ = "src/perdure/data/events/read.py"


def test_within_a_folder_only_imports_at_the_top_make_a_cycle() -> None:
    append = "from perdure.data.events.append import append"
    late = f"def f():\n    {append}"
    other = snippet("from perdure.data.events.read import read", "src/perdure/data/events/append.py")
    assert layers.cycles([snippet(late, _READ), other]) == []
    assert len(layers.cycles([snippet(append, _READ), other])) == 1


def test_packages_without_a_floor_are_noticed() -> None:
    assert len(layers.find_without_floor([snippet("", "src/perdure/novel/x.py")])) == 1
    assert len(layers.find_unmapped("| `journal/` |", [snippet(""), snippet("", "src/perdure/novel.py")])) == 1


@pytest.mark.parametrize(
    "text", ["import requests", "import rich", "import numpy as np", "from pydantic import BaseModel"]
)
def test_foreign_packages_are_noticed(text: str) -> None:
    assert len(list(layers.foreign(snippet(text), CORE))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import apsw",
        "import msgspec.json",
        "def f():\n    import numpy",
        "if TYPE_CHECKING:\n    import numpy",
    ],
)
def test_dependencies_are_fine(text: str) -> None:
    assert list(layers.foreign(snippet(text), CORE)) == []


def test_the_surface_may_use_what_is_for_people() -> None:
    assert list(layers.foreign(snippet("import click", "src/perdure/cli/main.py"), CORE)) == []


def test_who_is_imported_late_may_import_at_the_top_and_nobody_may_import_him_early() -> None:
    assert (
        list(layers.foreign(snippet("from psycopg import pq", "src/perdure/store/postgres/connection.py"), CORE)) == []
    )
    assert len(list(layers.foreign(snippet("from psycopg import pq", "src/perdure/store/sqlite/store.py"), CORE))) == 1
    early, place = "from perdure.store.postgres.store import PostgresStore", "src/perdure/store/base.py"
    assert len(list(layers.find_early_imports(snippet(early, place)))) == 1
    assert list(layers.find_early_imports(snippet(f"def f():\n    {early}", place))) == []
    assert list(layers.find_early_imports(snippet("from perdure.store.postgres.url import parse", place))) == []
    assert list(layers.find_early_imports(snippet(early, "src/perdure/store/postgres/x.py"))) == []
