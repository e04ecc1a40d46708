"""Maintenance over HTTP: for admin keys that are not bound to an agent, and for nobody else."""

from __future__ import annotations

import pytest

from perdure import Agent
from tests.server.harness import Server

ACTIONS = ("/v1/maintenance:gc", "/v1/maintenance:verify", "/v1/maintenance:rebuild")


def test_an_admin_frees_verifies_rebuilds_exports_and_imports(server: Server) -> None:
    admin = server.writer("--role", "admin")
    with Agent("travel", store=server.store) as agent:  # its key is then on the server's machine, and signs the export
        for number in range(3):
            agent.checkpoint.create("plan", {"n": number})
        agent.checkpoint.retain("plan", keep_last=1)
        agent.state.set("trip", "city", "Oslo")
        planned = admin.post("/v1/maintenance:gc", {"dry_run": True}).json()
        assert (planned["dry_run"], planned["checkpoints"]["count"]) == (True, 2)
        freed = admin.post("/v1/maintenance:gc", {"agent": "travel"}).json()
        assert (freed["dry_run"], freed["checkpoints"]["count"]) == (False, 2)
        assert agent.checkpoint.restore("plan") == {"n": 2}
    assert admin.post("/v1/maintenance:rebuild").json()["entries"] > 0
    verified = admin.post("/v1/maintenance:verify").json()
    assert (verified["ok"], verified["entries"] > 0) == (True, True), verified
    file = admin.get("/v1/agents/travel:export")
    assert (file.status, file.headers["content-length"]) == (200, str(len(file.body)))
    body = {"content-type": "application/octet-stream"}
    other = server.writer("--role", "admin", "--tenant", "other")
    damaged = other.request("POST", "/v1/agents:import?name=bad", file.body[:-50] + bytes(50), body)
    assert damaged.status // 100 == 4, damaged.body
    arrived = other.request("POST", "/v1/agents:import", file.body, body)
    assert (arrived.status, arrived.json()) == (200, {"agent": "travel", "how": "copied"})
    assert other.get("/v1/agents/travel/state/trip/city").json()["value"] == "Oslo"
    assert [one["name"] for one in other.get("/v1/agents").json()["agents"]] == ["travel"]


@pytest.mark.parametrize("options", [("--role", "writer"), ("--role", "admin", "--agent", "travel")])
def test_nobody_else_maintains_a_store(shared_server: Server, options: tuple[str, ...]) -> None:
    client = shared_server.writer(*options)
    for action in ACTIONS:
        assert client.post(action).status == 403, action
    assert client.post("/v1/agents:import", b"x", {"content-type": "application/octet-stream"}).status == 403
    assert client.get("/v1/agents/other:export").status == 403
    assert shared_server.writer("--role", "admin").post(ACTIONS[0], {"compact_before": "soon"}).status == 422
