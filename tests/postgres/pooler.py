"""pgbouncer in transaction mode: each transaction may run on another connection to the server."""

from __future__ import annotations

import shutil
import subprocess
import time
from urllib.parse import urlencode

import psycopg
import pytest

from tests.postgres import install
from tests.postgres.cluster import READY_SECONDS_MAX, STOP_SECONDS_MAX, Cluster, find_free_port

# As it comes, but for two things: after a failed login it would let nobody in for 15 s, and it has fewer connections
# than it has clients, so that they really are shared.
SETTINGS = """
[databases]
postgres = host={server} port={server_port} dbname=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
server_login_retry = 0.1
pidfile = {folder}/pgbouncer.pid
logfile = {folder}/pgbouncer.log
"""


def program() -> str:
    """pgbouncer, or the test is skipped and says why."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("pgbouncer is not installed (.ci/run installs it)")
    return found


class Pooler:
    """One in front of one server."""

    def __init__(self, cluster: Cluster) -> None:
        self.port = find_free_port()
        self._program = program()
        self._folder = install.new_folder()
        install.give_to_servant(self._folder)
        self._watchdog = install.Watchdog(self._folder, "pgbouncer.pid")
        names = {"server": cluster.folder, "server_port": cluster.port, "port": self.port, "folder": self._folder}
        (self._folder / "settings.ini").write_text(SETTINGS.format(**names))
        (self._folder / "users").write_text('"postgres" ""\n')

    def __enter__(self) -> Pooler:
        self._process = subprocess.Popen(
            [self._program, str(self._folder / "settings.ini")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            start_new_session=True, **install.as_servant(),
        )  # fmt: skip
        until = time.monotonic() + READY_SECONDS_MAX
        while not self._answers():
            assert time.monotonic() < until, f"pgbouncer does not start:\n{self.log()}"
            time.sleep(0.02)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()  # it has nothing to lose, and nobody can have made it deaf to this
        self._process.wait(STOP_SECONDS_MAX)
        self._watchdog.release()

    def url(self, schema: str = "", **parameters: str) -> str:
        """The URL of a store behind it."""
        query = urlencode({**({"schema": schema} if schema else {}), **parameters}, safe="/")
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres" + (f"?{query}" if query else "")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def log(self) -> str:
        path = self._folder / "pgbouncer.log"
        return path.read_text() if path.exists() else ""
