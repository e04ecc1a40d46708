"""The command line on a remote store: `--store http://...` with a key from the environment."""

from __future__ import annotations

import json

import pytest

from perdure import Agent, RunWaiting
from tests.server.harness import Server, run_cli


def test_the_command_line_works_on_a_remote_store(shared_server: Server) -> None:
    key = shared_server.make_key()
    agent = Agent("clerk", store=shared_server.origin, api_key=key)
    agent.state.set("prices", "seat", 3)
    with pytest.raises(RunWaiting), agent.run("order-7", wait=0) as run:
        run.ask("Which seat?")
    agent.close()

    def cli(*arguments: str) -> str:
        done = run_cli(*arguments, "--store", shared_server.origin, env={"PERDURE_API_KEY": key})
        assert done.returncode == 0, done.stderr
        assert key not in done.stdout + done.stderr
        return done.stdout

    assert "order-7" in cli("runs")
    assert json.loads(cli("show", "order-7", "--json"))
    assert "3" in cli("state", "prices", "seat", "--agent", "clerk")
    cli("answer", "order-7", "12A")
    again = Agent("clerk", store=shared_server.origin, api_key=key)
    with again.run("order-7") as run:
        run.result = run.ask("Which seat?")
    assert again.runs.get("order-7").result == "12A"
    again.close()
