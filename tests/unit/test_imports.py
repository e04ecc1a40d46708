"""What `import perdure` loads. Hooks and shell prompts start it often, so the rest is loaded when it is used."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {
    "asyncio",
    "apsw",
    "click",
    "cryptography",
    "difflib",
    "logging",
    "perdure.presence.workspace.workspace",
    "perdure.store.sqlite.store",
    "psycopg",
    "rich",
    "subprocess",
}


def test_an_import_loads_nothing_that_most_programs_do_not_use() -> None:
    code = "import sys, perdure; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()
