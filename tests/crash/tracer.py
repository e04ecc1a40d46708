"""Faults below Python: `strace` kills an unmodified process at its n-th system call, or makes that call fail."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

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
        options = ["-f", "--seccomp-bpf", "-qq", "-y", "-o", str(trace), "-e", f"trace={','.join(WRITES + SYNCS)}"]
        if inject:
            options += ["-e", f"inject={inject}"]
        command = [self._program, *options, sys.executable, "-m", "tests.crash.short", str(folder), colour]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=CHILD_SECONDS_MAX, check=False
        )
        assert ended.returncode != 1, f"an error without a type of ours:\n{ended.stderr}"
        return ended.returncode, trace.read_text()


def calls_in(trace: str) -> Counter[str]:
    """How often each system call was made by the thread that made most of them: strace counts per thread."""
    counts: Counter[tuple[str, str]] = Counter(re.findall(r"^(\d+) +(\w+)\(", trace, re.MULTILINE))
    most: Counter[str] = Counter()
    for (_, name), count in counts.items():
        most[name] = max(most[name], count)
    return most


def injected(trace: str) -> str:
    """The line of the call that strace tampered with."""
    return next((line for line in trace.splitlines() if "INJECTED" in line), "")
