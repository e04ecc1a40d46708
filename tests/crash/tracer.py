"""Faults below Python: `strace` kills an unmodified process at its n-th system call, or makes that call fail."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.crash.harness import Scene
from tests.crash.waiting import wait_for

WRITES = ("pwrite64", "write", "ftruncate", "link", "unlink", "rename", "mkdir")
SYNCS = ("fdatasync", "fsync")


class Tracer:
    """Plays a scene under strace: a child of the fork_server stops before it does anything, until it is traced."""

    def __init__(self, program: str) -> None:
        self._program = program

    def run(self, scene: Scene, *, inject: str = "") -> tuple[int, str]:
        """The exit code and the trace. `inject` is what strace calls it: `fdatasync:error=EIO:when=3`."""
        trace = scene.folder / "trace.txt"
        child = scene.start({"CRASH_TRACED": "1"})
        with trace_process(self._program, child.pid, trace, WRITES + SYNCS, inject):
            code = child.wait()
        assert code != 1, f"an error without a type of ours:\n{child.output()}"
        return code, trace.read_text()


@contextmanager
def trace_process(program: str, pid: int, trace: Path, calls: Sequence[str], inject: str = "") -> Iterator[None]:
    """Let a process go on that has stopped itself, or is about to: from then on its calls are traced."""
    # Not with --seccomp-bpf, which is quicker: strace 6.1 then makes calls fail, but sends no signals.
    options = ["-f", "-qq", "-y", "-o", str(trace), "-e", f"trace={','.join(calls)}"]
    if inject:
        options += ["-e", f"inject={inject}"]
    wait_for(lambda: "\nState:\tT" in _status(pid), "the victim to stop")
    with subprocess.Popen([program, *options, "-p", str(pid)], stderr=subprocess.PIPE) as strace:
        try:
            wait_for(lambda: "\nTracerPid:\t0\n" not in _status(pid) or strace.poll() is not None, "strace")
            os.kill(pid, signal.SIGCONT)
            yield
        finally:
            strace.terminate()  # it has ended with its victim, or never got hold of it


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


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
