"""A real PostgreSQL server that a test may start, kill, restart, fail over, and is always rid of afterwards.

with Cluster() as cluster:
    agent = Agent("traveller", store=cluster.url("my_schema"))
    cluster.kill()          # SIGKILL of every process at one instant: no checkpoint, no goodbye
    cluster.restart()
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg

from tests.postgres import install

VERSION = 18
PR_SET_CHILD_SUBREAPER = 36
IPC_RMID = 0
READY_SECONDS_MAX = 200.0
STOP_SECONDS_MAX = 100.0

# Durable as in production; small, and quick to start.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "32MB",
    "max_wal_size": "128MB",
    "min_wal_size": "32MB",
    "max_connections": "200",
    "max_worker_processes": "4",
    "huge_pages": "off",
    "log_line_prefix": "%m [%p] ",
    "restart_after_crash": "on",
    "wal_retrieve_retry_interval": "100ms",
    # In the data folder, so that it is cleared away with it even if the last thing that happens is a SIGKILL.
    "dynamic_shared_memory_type": "mmap",
}


class Cluster:
    """One server with a data folder of its own."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        version: int = VERSION,
        addresses: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        self._addresses = ("127.0.0.1", *addresses)
        self.folder = install.new_folder()
        self.data = self.folder / "data"
        self.port = find_free_port()
        self._environment = dict(environment or {})
        self._settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        install.give_to_servant(self.folder)
        self._watchdog = install.Watchdog(self.folder)

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Cluster:
        """Start it, with a new data folder the first time, and wait until it takes connections."""
        if self.running:
            return self
        if not self.data.exists():
            install.copy_of_template(self.version, self.data)
        until = time.monotonic() + READY_SECONDS_MAX
        while True:
            self._launch()
            if self._is_ready(until):
                return self
            # The last backend of a killed server may take a moment to let go of the shared memory.
            held = "shared memory block" in self.log()[-1000:] and time.monotonic() < until
            assert held, f"PostgreSQL does not start:\n{self.log()[-3000:]}"
            time.sleep(0.05)

    def stop(self, how: int = signal.SIGINT) -> None:
        """End it in order (SIGINT: fast, SIGQUIT: at once, which the next start recovers from)."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process = process
            self.kill()

    def kill(self) -> None:
        """SIGKILL every process of it at one instant."""
        process, self._process = self._process, None
        if process is None:
            return
        # Stopped first, so that it neither makes new children nor tells the others that one has died.
        process.send_signal(signal.SIGSTOP)
        children = _children(process.pid)
        with _inherit_orphans():
            for pid in children:
                _signal(pid, signal.SIGKILL)
            process.kill()
            process.wait()
            _bury(children)

    def restart(self, how: int = signal.SIGINT) -> Cluster:
        """Stop what runs, and start."""
        self.stop(how)
        return self.start()

    def close(self) -> None:
        """End it and clear everything away."""
        self.stop(signal.SIGQUIT)
        self._remove_lock()
        self._watchdog.release()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What the server has said."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- use ----------------------------------------------------------------------------------------------------

    def url(self, schema: str = "", *, tcp: bool = False, user: str = "postgres", **parameters: str) -> str:
        """The URL of a store in it; by its unix socket, or by TCP."""
        host = {} if tcp else {"host": str(self.folder), "port": str(self.port)}
        authority = f"{user}@127.0.0.1:{self.port}" if tcp else f"{user}@"
        query = urlencode({**host, **({"schema": schema} if schema else {}), **parameters}, safe="/")
        return f"postgresql://{authority}/postgres" + (f"?{query}" if query else "")

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection for the test itself, by the side of everybody else's."""
        return psycopg.connect(self.url(), autocommit=True, **options)

    def execute(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement of the test itself; its rows."""
        with self.connect() as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def configure(self, **settings: str) -> None:
        """Change settings: now where that is possible, else with the next start."""
        self._settings.update(settings)
        self._write_settings()
        if self.running:
            self.execute("SELECT pg_reload_conf()")

    def backends(self) -> list[int]:
        """The processes that serve clients. Read from the process table: asking the server takes a connection."""
        return self._find_processes(b"postgres: postgres postgres ")

    def find_waiting_for_standby(self) -> list[int]:
        """Those whose commit is on this server, and which wait for the standby before they say so."""
        return self._find_processes(b" waiting for ")

    def kill_backend(self, pid: int) -> None:
        """SIGKILL one of them: the server takes it for a crash, ends all others too, and recovers by itself."""
        _signal(pid, signal.SIGKILL)

    def terminate_backend(self, pid: int) -> None:
        """End one in order, as an administrator does: the client is told."""
        _signal(pid, signal.SIGTERM)

    # -- replication --------------------------------------------------------------------------------------------

    def standby(self) -> Cluster:
        """A running hot standby of this server; from then on no commit is acknowledged before it is there too."""
        other = Cluster(self._settings, version=self.version, environment=self._environment)
        source = f"host={self.folder} port={self.port} user=postgres application_name=standby"
        install.call(
            self.version, "pg_basebackup", "-D", str(other.data), "-d", source, "-R", "-X", "stream",
            "-c", "fast", "--no-sync",
        )  # fmt: skip
        other.start()
        self.configure(synchronous_standby_names="FIRST 1 (standby)")
        until = time.monotonic() + READY_SECONDS_MAX
        while not self.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            assert time.monotonic() < until, f"the standby does not follow:\n{other.log()[-3000:]}"
            time.sleep(0.02)
        return other

    def stall_replication(self) -> None:
        """Whoever sends to the standby stops, for good: what is committed from now on is on this server only."""
        for pid in self._find_processes(b"postgres: walsender"):
            _signal(pid, signal.SIGSTOP)

    def promote(self) -> None:
        """A standby becomes the server; it follows nobody, and nobody has to follow it."""
        self.configure(synchronous_standby_names="")
        self.execute("SELECT pg_promote()")

    # -- inside -------------------------------------------------------------------------------------------------

    def _write_settings(self) -> None:
        mine = {
            "listen_addresses": ",".join(self._addresses),
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        lines = [f"{name} = '{value}'" for name, value in {**self._settings, **mine}.items()]
        path = self.data / "postgresql.conf"
        path.write_text("\n".join(lines) + "\n")

    def _launch(self) -> None:
        self._write_settings()
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(install.programs(self.version) / "postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
                env={**os.environ, **self._environment}, **install.as_servant(),
            )  # fmt: skip

    def _find_processes(self, words: bytes) -> list[int]:
        """The processes of the server that say so of themselves."""
        if self._process is None:
            return []
        return [pid for pid in _children(self._process.pid) if words in _title(pid)]

    def _remove_lock(self) -> None:
        """A killed server leaves a piece of System V shared memory behind, which the next start would remove."""
        said = self.data / "postmaster.pid"
        if said.exists() and len(lines := said.read_text().splitlines()) >= 7:
            ctypes.CDLL(None).shmctl(int(lines[6].split()[1]), IPC_RMID, None)

    def _is_ready(self, until: float) -> bool:
        """Wait until the server says so in its pid file; False when it has ended."""
        assert self._process is not None
        said = self.data / "postmaster.pid"
        while time.monotonic() < until:
            if self._process.poll() is not None:
                return False
            lines = said.read_text().splitlines() if said.exists() else []
            if len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() in ("ready", "standby"):
                return True
            time.sleep(0.01)
        return False


def find_free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _title(pid: int) -> bytes:
    """What a process of the server says that it does."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def _inherit_orphans() -> Iterator[None]:
    """Children of our children become ours when these die. In a container the first process may collect no corpses."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _bury(pids: list[int]) -> None:
    """Wait for the end of each; some have been collected already."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
