"""How often a process makes the disk write: counted from outside of SQLite and of Perdure.

With a C compiler, a shared library of thirty lines is preloaded (`syncs.c`), which costs nothing and can also
add to each sync what a slower disk would take. Else strace does both, and only the sync calls are slowed down.

Peers are counted too, in an environment without our dependencies: this module needs the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("syncs.c")
TRACE_VARIABLE = "PERDURE_BENCH_STRACE"
DELAY_VARIABLE = "PERDURE_BENCH_SYNC_US"
FILE_VARIABLE = "PERDURE_BENCH_SYNC_FILE"
SHARED_BYTES = 8
CALLS = ("fsync(", "fdatasync(")


@dataclass(frozen=True)
class Probe:
    """How child processes are started so that they can count; `name` is "preload", "strace" or ""."""

    name: str = ""
    library: str = ""
    program: str = ""

    def command(self, command: list[str], trace: Path, delay_us: int) -> list[str]:
        """The command line of a child that counts."""
        if self.name != "strace":
            return command
        delay = [f"--inject=fsync,fdatasync:delay_exit={delay_us}"] if delay_us else []
        quiet = ["--seccomp-bpf", "-f", "-qq", "-o", str(trace), "--trace=fsync,fdatasync"]
        return [self.program, *quiet, *delay, *command]

    def environment(self, trace: Path, delay_us: int) -> dict[str, str]:
        """What such a child finds in its environment."""
        if self.name == "preload":
            return {"LD_PRELOAD": self.library, DELAY_VARIABLE: str(delay_us)}
        return {TRACE_VARIABLE: str(trace)} if self.name == "strace" else {}

    def shared_environment(self, file: Path) -> dict[str, str]:
        """The environment of a server whose processes add up in a file of `SHARED_BYTES`; only when preloading."""
        return {"LD_PRELOAD": self.library, FILE_VARIABLE: str(file)}


def find_probe(folder: Path) -> Probe:
    """The best way to count on this machine; the compiled library goes to `folder`."""
    library = folder / "syncs.so"
    for compiler in ("cc", "gcc", "clang"):
        program = shutil.which(compiler)
        if program is not None:
            build = [program, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
            if subprocess.run(build, capture_output=True, check=False).returncode == 0:
                return Probe("preload", library=str(library))
    program = shutil.which("strace")
    if program is not None and _can_trace(program):
        return Probe("strace", program=program)
    return Probe()


def _can_trace(program: str) -> bool:
    command = [program, "--seccomp-bpf", "-f", "-o", os.devnull, "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def read_shared_count(file: Path) -> int:
    """How many syncs there have been in all processes that share this file."""
    return int.from_bytes(file.read_bytes(), sys.byteorder)


def counter() -> Callable[[], int] | None:
    """In a child: a function that says how many syncs there have been; None when nobody counts."""
    trace = os.environ.get(TRACE_VARIABLE)
    if trace is not None:
        # strace writes a line before it lets the call return: what has returned is in the file.
        return lambda: sum(Path(trace).read_text("utf-8").count(call) for call in CALLS)
    try:
        count = ctypes.CDLL(None).perdure_bench_syncs
    except AttributeError:
        return None
    count.restype = ctypes.c_long
    return lambda: int(count())
