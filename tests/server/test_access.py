"""Keys, roles, tenants, quotas and the audit log."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.cli.main import main
from perdure.errors import QuotaExceeded
from perdure.server.access import Principal, Role
from perdure.server.quotas import Quotas
from perdure.server.settings import ServerSettings
from tests.server.harness import Server, run_cli

KEY = "/v1/agents/travel/state/trip/city"
BODY = {"value": "Oslo"}
HOLDING = ("holders", "leases", "seals")


def test_a_key_opens_what_its_role_its_agent_and_its_tenant_allow(server: Server) -> None:
    writer, reader, bound = server.writer(), server.writer("--role", "reader"), server.writer("--agent", "travel")
    acme = server.writer("--tenant", "acme")
    assert writer.put(KEY, BODY).status == 200
    assert reader.get(KEY).status == 200
    assert (reader.put(KEY, BODY).status, reader.delete(KEY).json()["code"]) == (403, "PD902")
    assert bound.get(KEY).status == 200
    assert bound.get("/v1/agents/other/state/trip/city").status == 403
    assert acme.get(KEY).status == 404
    assert acme.get("/v1/agents").json() == {"agents": []}
    assert acme.put(KEY, {"value": "Rome"}).status == 200
    assert writer.get(KEY).json()["value"] == "Oslo"
    assert writer.get("/v1/keys").status == 403
    assert writer.get("/v1/agents/perdure%3Aserver/events").status == 403


def test_admins_manage_the_keys_of_their_tenant(server: Server) -> None:
    admin, stranger = server.writer("--role", "admin"), server.writer("--role", "admin", "--tenant", "acme")
    made = admin.post("/v1/keys", {"name": "ci", "role": "reader"}, {"idempotency-key": "k"}).json()
    assert made["key"].startswith(f"pdk_{made['id']}_")
    assert admin.post("/v1/keys", {"name": "ci", "role": "reader"}, {"idempotency-key": "k"}).status == 409
    reader = server.client(made["key"])
    assert reader.get("/v1/agents").status == 200
    assert stranger.delete(f"/v1/keys/{made['id']}").status == 404
    assert len(stranger.get("/v1/keys").json()["keys"]) == 1
    rotated = admin.post(f"/v1/keys/{made['id']}:rotate").json()["key"]
    assert (reader.get("/v1/agents").status, server.client(rotated).get("/v1/agents").status) == (401, 200)
    assert admin.delete(f"/v1/keys/{made['id']}").json()["revoked_at"]
    assert server.client(rotated).get("/v1/agents").status == 401
    for secret in (made["key"], rotated, admin.key):
        assert secret.rpartition("_")[2] not in server.log


def test_writes_are_audited_with_their_commit_and_refused_ones_are_not(server: Server) -> None:
    admin = server.writer("--role", "admin")
    written = admin.put(KEY, BODY).headers["x-request-id"]
    admin.put(KEY, BODY, {"if-match": '"7"'})
    admin.put(KEY, {"valeu": 1})
    admin.get(KEY)
    [write] = admin.get("/v1/audit").json()["writes"]
    assert (write["request_id"], write["operation"], write["path"]) == (written, "put_state", KEY)
    assert write["key"] == admin.key.split("_")[1]


def test_keys_from_the_command_line_expire_rotate_and_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "perdure.db")
    assert main(["keys", "list", "--store", store]) == 0
    assert not list(tmp_path.iterdir())  # looking creates nothing
    assert main(["keys", "create", "ci", "--store", store, "--rate", "5/m", "--expires", "90d", "--json"]) == 0
    made = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert main(["keys", "list", "--store", store, "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["id"], listed["rate"], listed["role"]) == (made["id"], "5/m", "writer")
    assert listed["expires_at"] > listed["created_at"]
    assert made["key"].rpartition("_")[2] not in str(listed)
    secret = made["key"].rpartition("_")[2].encode()
    assert all(secret not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert main(["keys", "revoke", made["id"], "--store", store]) == 0
    assert main(["keys", "rotate", made["id"], "--store", store]) == 2
    assert main(["keys", "create", "x", "--tenant", "../up", "--store", store]) == 2
    assert main(["keys", "create", "x", "--rate", "fast", "--store", store]) == 2


def read_tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything in a store file but who holds what, and what an ending process seals."""
    with closing(sqlite3.connect(path)) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        return {name: sorted(file.execute(f"SELECT * FROM {name}"), key=repr) for name in names if name not in HOLDING}


def test_a_reader_changes_nothing_whatever_it_asks(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path).start()
    try:
        writer, base = server.writer(), "/v1/agents/travel"
        memory = writer.post(f"{base}/memories", {"text": "Alice prefers aisle seats"}).json()["id"]
        writer.put(KEY, BODY)
        writer.post(f"{base}/threads/talk/messages", {"input": "hi", "reply": "hello"})
        reader, before = server.writer("--role", "reader"), read_tables(tmp_path / "perdure.db")
        for agent in (base, "/v1/agents/unknown"):
            asked = reader.post(f"{agent}/memories:recall", {"query": "which seat?"}, {"idempotency-key": agent})
            assert (asked.status, len(asked.json()["memories"])) == (200, int(agent == base))
            for path in ("", "/state/trip", "/memories", "/context?thread=talk", "/bootstrap", "/handoff", "/events"):
                assert reader.get(agent + path).status in (200, 404), path
        assert reader.get(f"{base}/memories/{memory}").status == reader.get("/v1/runs").status == 200
        assert read_tables(tmp_path / "perdure.db") == before
        writer.post(f"{base}/memories", {"text": "Bob likes windows"})  # writes the uses that were counted so far
        assert read_tables(tmp_path / "perdure.db")["memory_uses"] == []
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--host", "0.0.0.0", "--no-auth", "--behind-proxy"]])
def test_an_address_for_strangers_needs_keys_and_encryption(options: list[str], tmp_path: Path) -> None:
    refused = run_cli("serve", "--store", str(tmp_path / "p.db"), "--port", "0", *options)
    assert (refused.returncode, "error[PD911]" in refused.stderr) == (2, True)


def test_a_server_without_keys_answers_only_this_machine(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path, "--no-auth").start()
    try:
        client = server.client()
        assert client.put(KEY, BODY).status == 200
        assert client.get(KEY, {"host": "evil.example"}).status == 403
        assert client.get(KEY, {"origin": "https://evil.example"}).status == 403
    finally:
        assert server.stop() == 0


def test_quotas_count_requests_bytes_and_streams() -> None:
    now = [0.0]
    quotas = Quotas(ServerSettings(store="x", bytes_per_second=100, streams_max=1), clock=lambda: now[0])
    principal = Principal("k", "default", None, Role.WRITER, requests_per_second=2)
    for _ in range(2):
        quotas.count_request(principal)
    with pytest.raises(QuotaExceeded) as refused:
        quotas.count_request(principal)
    assert refused.value.retry_after == 0.5
    now[0] = 0.5
    quotas.count_request(principal)
    quotas.count_bytes(principal, 1000)
    with pytest.raises(QuotaExceeded):
        quotas.count_bytes(principal, 1)
    with quotas.open_stream(principal), pytest.raises(QuotaExceeded), quotas.open_stream(principal):
        pass
    with quotas.open_stream(principal):
        pass


def test_a_key_over_its_rate_is_told_when_to_come_back(shared_server: Server) -> None:
    client = shared_server.writer("--rate", "1/h")
    assert client.get("/v1/agents").status == 200
    refused = client.get("/v1/agents")
    assert (refused.status, refused.json()["code"]) == (429, "PD903")
    assert int(refused.headers["retry-after"]) > 60
