"""docs/llms.txt is current, and every page is in it and in the full text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools import llms_txt

ROOT = Path(__file__).resolve().parents[2]


def test_the_index_for_models_is_current() -> None:
    command = [sys.executable, "tools/llms_txt.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_index_and_in_the_full_text() -> None:
    index, full = llms_txt.make_index(), llms_txt.make_full()
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    for page in pages:
        if page != "README.md":
            assert f"({page})" in index and f'<page path="{page}">' in full, page
