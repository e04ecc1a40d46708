"""Where measurements happen: a folder on the disk of the repository, and child processes in it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import apsw

from perdure.store.sqlite.file import file_system_of

from .failures import Killed, MeasurementFailed
from .server import Server
from .syncs import Probe, find_probe

ROOT = Path(__file__).parents[1]
CHILD_SECONDS_MAX = 300


PARKED = 20_000
"""Runs that are really parked, one by one: 100,000 of them take ten minutes on each store."""


class Lab:
    """One session of measuring."""

    def __init__(self, *, quick: bool, base: Path | None = None, peers: bool = True, parked: int = PARKED) -> None:
        self.quick = quick
        self.peers = peers
        self.parked = parked
        self.say: Callable[[str], None] = lambda _text: None
        # Not /tmp, which is often in memory, where a sync costs nothing and every ratio is a lie.
        base = base or ROOT / "bench" / "results"
        base.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="lab-", dir=base))
        self.probe: Probe = find_probe(self.folder)
        self._folders = 0

    @property
    def pairs(self) -> int:
        """How many paired ratios a median is taken of."""
        return 5 if self.quick else 24

    def measure(self, name: str, *, delay_us: int = 0, **arguments: Any) -> Any:
        """Run a measurement of `bench.child` in a process and a folder of its own."""
        return self.measure_in(self.new_folder(name), name, delay_us=delay_us, **arguments)

    def new_folder(self, name: str) -> Path:
        """A folder that nobody has used, on the disk that is measured."""
        self._folders += 1
        folder = self.folder / f"{self._folders}-{name}"
        folder.mkdir()
        return folder

    def measure_in(self, folder: Path, name: str, *, delay_us: int = 0, **arguments: Any) -> Any:
        """The same in a folder that an earlier one has prepared."""
        trace = folder / "trace.txt"
        trace.unlink(missing_ok=True)
        command = [sys.executable, "-m", "bench.child", name, json.dumps({"folder": str(folder), **arguments})]
        command = self.probe.command(command, trace, delay_us)
        environment = clean_environment() | self.probe.environment(trace, delay_us)
        return json.loads(run(command, environment).splitlines()[-1])

    @cached_property
    def server(self) -> Server:
        """A PostgreSQL on the same disk, started when it is first asked for; raises `NoServer`."""
        return Server(self.folder, self.probe)

    def server_facts(self) -> str:
        """Version and settings of the server, if one was started."""
        if "server" not in vars(self):
            return ""
        try:
            return f"PostgreSQL {self.server.version()} ({self.server.settings()})"
        except MeasurementFailed:
            # It has died meanwhile, and what failed because of that has been told.
            return ""

    def close(self) -> None:
        """Remove everything."""
        if "server" in vars(self):
            self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def run(command: list[str], environment: dict[str, str] | None = None, *, seconds: float = CHILD_SECONDS_MAX) -> str:
    """What a command prints. Killed with its children when we are interrupted."""
    environment = clean_environment() if environment is None else environment
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise MeasurementFailed(f"{' '.join(command)} did not end within {seconds} seconds") from error
        raise
    if process.returncode != 0:
        failure = Killed if process.returncode == -signal.SIGKILL else MeasurementFailed
        raise failure(f"{' '.join(command)} ended with {process.returncode}:\n{err.strip()}")
    return out


def clean_environment() -> dict[str, str]:
    """Ours, without settings of whoever measures; the code is that of this repository, installed or not."""
    # An installed package has its bytecode: who forbids Python to keep it would measure the compiler.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTHONDONT"))}
    return kept | {"PYTHONPATH": str(ROOT / "src")}


def machine(lab: Lab) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": file_system_of(str(lab.folder)),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "postgres": lab.server_facts(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
