"""All code on all pages runs, and all links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.docs.pages import actions_of, broken_links, find_long_lines
from tests.postgres.cluster import Cluster

ROOT = Path(__file__).parents[2]
RUN_PAGE = Path(__file__).with_name("run_page.py")
PAGE_SECONDS_MAX = 240

PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()]
PLACE = re.compile(r"`([\w/]+/(?:\w+\.py)?)`(?: `(\w+)`)?")
LINKING = sorted({*PAGES, *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")})


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_page(page: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Follow a page in an empty folder, knowing nothing of whoever runs the tests."""
    actions = [asdict(action) for action in actions_of(page.read_text("utf-8"))]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {"PATH": tools, "HOME": str(folder), "LANG": "C.UTF-8", "TERM": "dumb", **variables}
    return subprocess.run(
        [sys.executable, str(RUN_PAGE), str(page)],
        input=json.dumps(actions),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PAGE_SECONDS_MAX,
        check=False,
    )


def test_there_is_a_readme() -> None:
    assert (ROOT / "README.md").exists()


@contextmanager
def server_for(page: Path) -> Iterator[dict[str, str]]:
    """The variables that lead to a new server, for a page that speaks SQL; roles and settings are its own."""
    if not any(action.kind == "sql" for action in actions_of(page.read_text("utf-8"))):
        yield {}
        return
    with Cluster() as cluster:
        cluster.execute("CREATE DATABASE agents TEMPLATE template0 ENCODING 'UTF8'")
        where = {"PGHOST": str(cluster.folder), "PGPORT": str(cluster.port)}
        yield {**where, "PGUSER": "postgres", "PGDATABASE": "agents"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    with server_for(page) as variables:
        result = run_page(page, tmp_path, **variables)
    if result.returncode:
        pytest.fail(f"{name_of(page)}: exit code {result.returncode}\n{result.stdout}", pytrace=False)


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = list(broken_links(page, ROOT))
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_the_lines_of_a_page_are_short(page: Path) -> None:
    assert find_long_lines(page.read_text("utf-8")) == []


def test_the_architecture_names_places_that_exist() -> None:
    pages = (ROOT / "ARCHITECTURE.md", ROOT / "docs" / "about" / "invariants.md")
    named = [place for page in pages for place in PLACE.findall(page.read_text("utf-8"))]
    assert len(named) > 50
    for path, name in named:
        place = ROOT / path if path.startswith("tools/") else ROOT / "src" / "perdure" / path
        assert place.exists(), path
        assert name in (place.read_text("utf-8") if name else ""), (path, name)
