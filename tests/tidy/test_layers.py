"""Imports point downwards, make no circles, and need no more than the core's dependencies."""

from __future__ import annotations

import pytest

from tests.tidy import layers, project_rules
from tests.tidy.source import ROOT, Source, expect_none, sources

CORE = ("apsw", "msgspec", "rich", "click")


def snippet(text: str, path: str = "src/perdure/journal/append.py") -> Source:
    return Source(path, text)


def test_every_unit_has_a_layer() -> None:
    expect_none(layers.without_layer(sources("src")))


def test_imports_point_downwards() -> None:
    expect_none(c for source in sources("src") for c in layers.upward(source))


def test_there_are_no_circles() -> None:
    expect_none(layers.circles(sources("src")))


def test_the_core_needs_only_its_dependencies() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    core = project_rules.dependencies(pyproject)["core"]
    expect_none(c for source in sources("src") for c in layers.foreign(source, core))
    expect_none(c for source in sources("src") for c in layers.too_early(source))


def test_agents_page_names_every_unit() -> None:
    expect_none(layers.unmapped((ROOT / "AGENTS.md").read_text(), sources("src")))


UPWARD = [
    "from perdure.agent import Agent",
    "import perdure.cli.main",
    "from perdure import runs",
    "from perdure import Agent",
    "from .. import run",
    "from ..run import Run",
    "def f():\n    from ..state import State",
    "if TYPE_CHECKING:\n    from ..run import Run",
]
DOWNWARD = [
    "from perdure.errors import PerdureError",
    "from perdure import errors",
    "from ..store.base import Store",
    "from ..objects import put",
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


def test_the_package_itself_imports_the_facade_but_not_the_surface() -> None:
    text = "from .agent import Agent\nfrom .cli.main import main\n"
    (complaint,) = layers.upward(snippet(text, "src/perdure/__init__.py"))
    assert "imports cli (surface)" in complaint


def test_circles_are_noticed() -> None:
    journal = snippet("from ..leases import Lease")
    leases = snippet("def f():\n    from .journal import append", "src/perdure/leases.py")
    (complaint,) = layers.circles([journal, leases])
    assert "journal" in complaint
    assert "leases" in complaint
    for_types = snippet("if TYPE_CHECKING:\n    from .journal import append", "src/perdure/leases.py")
    assert layers.circles([journal, for_types]) == []


def test_units_without_a_layer_are_noticed() -> None:
    assert len(layers.without_layer([snippet("", "src/perdure/novel/x.py")])) == 1
    assert len(layers.unmapped("| `journal/` |", [snippet(""), snippet("", "src/perdure/novel.py")])) == 1


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
    assert list(layers.foreign(snippet("from psycopg import pq", "src/perdure/store/postgres_link.py"), CORE)) == []
    assert len(list(layers.foreign(snippet("from psycopg import pq", "src/perdure/store/sqlite.py"), CORE))) == 1
    early, place = "from .postgres import PostgresStore", "src/perdure/store/base.py"
    assert len(list(layers.too_early(snippet(early, place)))) == 1
    assert list(layers.too_early(snippet(f"def f():\n    {early}", place))) == []
    assert list(layers.too_early(snippet("from .postgres_url import parse", place))) == []
    assert list(layers.too_early(snippet(early, "src/perdure/store/postgres_x.py"))) == []
