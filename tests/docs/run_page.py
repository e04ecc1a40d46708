"""The process that a page runs in: `python run_page.py PAGE < actions.json`, started in an empty folder.

Code is compiled under the name of the page and at its lines, so that a traceback points into the page.
"""

from __future__ import annotations

import json
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
    else:
        command = [sys.executable, text] if kind == "script" else ["bash", "-euo", "pipefail", "-c", text]
        sys.stdout.flush()
        result = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        if result.returncode:
            sys.exit(f"{page}:{line}: exit code {result.returncode}: {text}")


if __name__ == "__main__":
    main()
