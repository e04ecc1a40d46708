"""All code on all pages runs, and all links lead somewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.docs.pages import actions_of, broken_links

ROOT = Path(__file__).parents[2]
RUN_PAGE = Path(__file__).with_name("run_page.py")
PAGE_SECONDS_MAX = 50

PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()]
LINKING = sorted({*PAGES, *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")})


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Follow a page in an empty folder, knowing nothing of whoever runs the tests."""
    actions = [asdict(action) for action in actions_of(page.read_text("utf-8"))]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {"PATH": tools, "HOME": str(folder), "LANG": "C.UTF-8", "TERM": "dumb"}
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    result = run_page(page, tmp_path)
    if result.returncode:
        pytest.fail(f"{name_of(page)}: exit code {result.returncode}\n{result.stdout}", pytrace=False)


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = list(broken_links(page, ROOT))
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)
