"""A process that has imported what the tests of all mutants need, but for Perdure and the tests themselves.

Each mutant is tried in a process of its own. Started anew, it would spend most of its time on importing pytest and
libraries that are the same for all; here it is a fork. Run as a file, it reads one JSON order per line, says the pid of
the child that carries it out, and then its exit code.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

LIBRARIES = (
    "apsw",
    "asyncio",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "hypothesis.stateful",
    "hypothesis.strategies",
    "msgspec",
    "psycopg",
    "zstandard",
)

ANOTHER_PERDURE = 70
"""Exit code: who has imported another one than the broken one has proved nothing."""


def main() -> None:
    """Serve orders until nobody gives any more."""
    _warm_up()
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(_become_pytest(order["copy"], order["environment"], order["arguments"]))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _warm_up() -> None:
    """A session of pytest: it imports its plugins, and what they use, in a way of its own; its next one finds them."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        (Path(folder) / "pytest.ini").write_text("[pytest]\n")
        (Path(folder) / "test_nothing.py").write_text("".join(f"import {name}\n" for name in LIBRARIES))
        pytest.main(["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", folder])


def _become_pytest(copy: str, environment: dict[str, str], arguments: list[str]) -> int:
    """`python -m pytest` in the copy, as the leader of a session of its own."""
    os.setsid()
    os.chdir(copy)
    os.environ.clear()
    os.environ.update(environment)
    output, nothing = os.open("output.txt", os.O_CREAT | os.O_WRONLY, 0o600), os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.path[0] = copy  # instead of the folder of this file
    sys.path.insert(0, f"{copy}/src")
    code = int(pytest.main(arguments))
    sys.stdout.flush()
    perdure = sys.modules.get("perdure")
    return code if perdure is None or str(perdure.__file__).startswith(copy) else ANOTHER_PERDURE


if __name__ == "__main__":
    main()
