"""Faults below Python: `strace` kills an unmodified process at its n-th system call, or makes that call fail."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.crash.harness import CHILD_SECONDS_MAX, ROOT, environment

WRITES = ("pwrite64", "write", "ftruncate", "link", "unlink", "rename", "mkdir")
SYNCS = ("fdatasync", "fsync")


class Tracer:
    """Runs `python -m tests.crash.short` under strace."""

    def __init__(self, program: str) -> None:
        self._program = program

    def run(self, folder: Path, colour: str, *, inject: str = "") -> tuple[int, str]:
        """The exit code and the trace. `inject` is what strace calls it: `fdatasync:error=EIO:when=3`."""
        trace = folder / "trace.txt"
        # Not with --seccomp-bpf, which is quicker: strace 6.1 then makes calls fail, but sends no signals.
        options = ["-f", "-qq", "-y", "-o", str(trace), "-e", f"trace={','.join(WRITES + SYNCS)}"]
        if inject:
            options += ["-e", f"inject={inject}"]
        command = [self._program, *options, sys.executable, "-m", "tests.crash.short", str(folder), colour]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=CHILD_SECONDS_MAX, check=False
        )
        assert ended.returncode != 1, f"an error without a type of ours:\n{ended.stderr}"
        return ended.returncode, trace.read_text()


class Call(NamedTuple):
    """A system call of a clean run: the nth of its name in its thread, which is how strace counts."""

    name: str
    nth: int
    line: str
    late: bool
    """After the victim's last promise: it only tidies up."""


def calls_in(trace: str) -> list[Call]:
    """The calls of the thread that made most of them, in order."""
    lines = [line.split(maxsplit=1) for line in trace.splitlines()]
    [(busiest, _)] = Counter(pid for pid, _ in lines).most_common(1)
    seen: Counter[str] = Counter()
    calls, late = [], False
    for pid, rest in lines:
        name = rest.partition("(")[0]
        late = late or (name == "rename" and "outcome.json" in rest)
        if pid == busiest and name in WRITES + SYNCS:
            seen[name] += 1
            calls.append(Call(name, seen[name], rest, late))
    return calls
