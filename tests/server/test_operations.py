"""How a server starts and is reached: TLS, addresses, several processes, what it prints and measures."""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from perdure import Agent
from perdure.cli.main import main
from tests.conformance.kit import wait_until
from tests.server.harness import PATIENCE_SECONDS, Client, Server

KEY = "/v1/agents/travel/state/trip/city"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a certificate for 127.0.0.1 and of its key."""
    folder, key = tmp_path_factory.mktemp("tls"), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "perdure test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(secret)
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_other_machines_are_served_over_tls(
    certificate: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    options = ("--host", "0.0.0.0", "--tls-cert", cert, "--tls-key", key)
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path, *options, authority=cert).start()
    try:
        assert server.origin.startswith("https://")
        writer = server.writer()
        assert writer.put(KEY, {"value": "Oslo"}).status == 200
        assert server.client().get(KEY).status == 401
        with pytest.raises(ssl.SSLError):  # a client that does not know the certificate sends nothing
            Client(server.origin, writer.key).get(KEY)
        with pytest.raises(ConnectionError):
            Client(server.origin.replace("https", "http"), writer.key).get(KEY)
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        with Agent("travel", store=server.origin, api_key=writer.key) as agent:
            assert agent.state.get("trip", "city") == "Oslo"
    finally:
        assert server.stop() == 0


def test_half_a_pair_of_tls_files_starts_nothing(certificate: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="PD911"):
        Server(str(tmp_path / "perdure.db"), tmp_path, "--tls-cert", certificate[0]).start()


def test_a_proxy_may_end_tls(tmp_path: Path) -> None:
    server = Server(str(tmp_path / "perdure.db"), tmp_path, "--host", "0.0.0.0", "--behind-proxy").start()
    assert server.client().get(KEY).status == 401
    server.kill()


def test_expired_and_revoked_keys_open_nothing(shared_server: Server) -> None:
    passing = shared_server.writer("--expires", "1ms")
    wait_until(lambda: passing.get(KEY).status == 401)
    assert passing.get(KEY).json()["code"] == "PD901"
    lasting = shared_server.writer("--expires", "1h")
    assert lasting.put(KEY, {"value": 1}).status == 200
    assert main(["keys", "revoke", lasting.key.split("_")[1], "--store", shared_server.store]) == 0
    assert lasting.get(KEY).status == 401, "another process has revoked it"


@pytest.fixture
def second(server: Server, tmp_path: Path) -> Iterator[Server]:
    """Another server process on the same store."""
    (tmp_path / "second").mkdir()
    running = Server(server.store, tmp_path / "second").start()
    yield running
    running.kill()


def test_two_servers_share_state_keys_and_answers(server: Server, second: Server, writer: Client) -> None:
    other = second.client(writer.key)
    assert writer.put(KEY, {"value": "Oslo"}).status == 200
    assert other.put(KEY, {"value": "Rome"}, {"if-match": '"1"'}).json()["version"] == 2
    assert writer.put(KEY, {"value": "Bonn"}, {"if-match": '"1"'}).status == 412
    once, count = {"idempotency-key": "k"}, "/v1/agents/travel/state/trip/count:incr"
    first = writer.post(count, {"by": 1}, once)
    again = other.post(count, {"by": 1}, once)
    assert (again.body, again.headers["idempotency-replayed"]) == (first.body, "true")
    turns = [(writer, other)[number % 2].post(count, {"by": 1}).json()["value"] for number in range(6)]
    assert turns == [2, 3, 4, 5, 6, 7]
    limited = server.make_key("limited", "--rate", "1/h")
    statuses = [one.client(limited).get(KEY).status for one in (server, second, server, second)]
    assert statuses == [200, 200, 429, 429], "each process counts the quota of a key by itself"


def test_metrics_tell_commits_leases_queues_and_runs(server: Server, writer: Client) -> None:
    def read_metrics() -> dict[str, float]:
        lines = server.client().get("/metrics").body.decode().splitlines()
        return {name: float(number) for name, _, number in (one.rpartition(" ") for one in lines if one[0] != "#")}

    before = read_metrics()
    assert (before["perdure_leases"], before["perdure_queue_depth"]) == (0, 0)
    with Agent("travel", store=server.store) as agent:

        @agent.task
        def book(city: str) -> None: ...

        book.start("queued", "Oslo")
        writer.put(KEY, {"value": "Oslo"})
        with agent.run("open"):
            found = read_metrics()
    assert (found["perdure_leases"], found["perdure_queue_depth"]) == (1, 1)
    assert (found['perdure_runs{status="running"}'], found['perdure_runs{status="queued"}']) == (1, 1)
    assert found["perdure_commits_total"] > before["perdure_commits_total"]
    assert "travel" not in str(found)


def test_a_bare_start_tells_how_to_make_a_key_and_a_request_that_works(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "empty"
    home.mkdir()
    folder.mkdir()
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    unset = ("PERDURE_", "XDG_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    env |= {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    command = ["perdure", "serve", "--port", "0"]  # the default port may be taken
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        where, stored, make, ask = (process.stdout.readline().decode() for _ in range(4))
        assert stored == f"the store:   {home / '.perdure' / 'perdure.db'}\n"
        assert re.fullmatch(r"Perdure serves at http://127\.0\.0\.1:\d+\n", where)
        script = "\n".join(line.partition(":")[2].strip() for line in (make, ask))
        assert script.startswith("export PERDURE_API_KEY=$(perdure keys create me") and "\ncurl " in script
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert (done.returncode, done.stdout) == (0, '{"agents":[]}'), done.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        process.stdout.close()
    assert not list(folder.iterdir()), "the store is in the home folder"
