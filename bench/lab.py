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
from pathlib import Path
from typing import Any

import apsw

from perdure.store.sqlite_file import file_system_of

from .syncs import Probe, find_probe

ROOT = Path(__file__).parents[1]
CHILD_SECONDS_MAX = 300


class MeasurementFailed(Exception):
    """A child process ended without a result."""


class Lab:
    """One session of measuring."""

    def __init__(self, *, quick: bool, base: Path | None = None) -> None:
        self.quick = quick
        # Not /tmp, which is often in memory, where a sync costs nothing and every ratio is a lie.
        base = base or ROOT / "bench" / "results"
        base.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="lab-", dir=base))
        self.probe: Probe = find_probe(self.folder)
        self._children = 0

    @property
    def pairs(self) -> int:
        """How many paired ratios a median is taken of."""
        return 5 if self.quick else 24

    def measure(self, name: str, *, delay_us: int = 0, **arguments: Any) -> Any:
        """Run a measurement of `bench.child` in a process and a folder of its own."""
        self._children += 1
        folder = self.folder / f"{self._children}-{name}"
        folder.mkdir()
        return self.measure_in(folder, name, delay_us=delay_us, **arguments)

    def measure_in(self, folder: Path, name: str, *, delay_us: int = 0, **arguments: Any) -> Any:
        """The same in a folder that an earlier one has prepared."""
        trace = folder / "trace.txt"
        trace.unlink(missing_ok=True)
        command = [sys.executable, "-m", "bench.child", name, json.dumps({"folder": str(folder), **arguments})]
        command = self.probe.command(command, trace, delay_us)
        environment = _clean_environment() | self.probe.environment(trace, delay_us)
        return json.loads(run(command, environment).splitlines()[-1])

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a command prints. Killed with its children when we are interrupted."""
    environment = _clean_environment() if environment is None else environment
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
        out, err = process.communicate(timeout=CHILD_SECONDS_MAX)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode != 0:
        raise MeasurementFailed(f"{' '.join(command)} ended with {process.returncode}:\n{err.strip()}")
    return out


def _clean_environment() -> dict[str, str]:
    """Ours, without settings of whoever measures; the code is that of this repository, installed or not."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return kept | {"PYTHONPATH": str(ROOT / "src")}


def machine(folder: Path) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": file_system_of(str(folder)),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
