"""The process that a page runs in: `python run_page.py PAGE < actions.json`, started in an empty folder.

Code is compiled under the name of the page and at its lines, so that a traceback points into the page.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from pathlib import Path


def main() -> None:
    page, actions = sys.argv[1], json.load(sys.stdin)
    # As if the page were the script: type hints, dataclasses and `if __name__ == "__main__"` look there.
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.path[0] = ""
    sys.argv = [page]
    for action in actions:
        perform(page, module, **action)


def perform(page: str, module: types.ModuleType, kind: str, text: str, line: int, title: str) -> None:
    if kind == "python":
        exec(compile("\n" * (line - 1) + text + "\n", page, "exec"), module.__dict__)
    elif kind == "file":
        Path(title).parent.mkdir(parents=True, exist_ok=True)
        Path(title).write_text(text + "\n", encoding="utf-8")
    elif kind == "sql":
        perform_sql(page, text, line)
    else:
        command = [sys.executable, text] if kind == "script" else ["bash", "-euo", "pipefail", "-c", text]
        sys.stdout.flush()
        result = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        if result.returncode:
            sys.exit(f"{page}:{line}: exit code {result.returncode}: {text}")


def perform_sql(page: str, text: str, line: int) -> None:
    """One statement after the other, each in a transaction of its own, as `psql` does it."""
    import psycopg

    with psycopg.connect(autocommit=True) as connection:
        for statement in re.split(r";[^\n]*\n", text + "\n"):
            if not statement.strip():
                continue
            try:
                connection.execute(statement)
            except psycopg.Error as error:
                sys.exit(f"{page}:{line}: {error}\n{statement}")


if __name__ == "__main__":
    main()
