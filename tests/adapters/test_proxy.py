"""`perdure proxy`: programs in two languages and the proxy itself are killed, and every model call is paid once."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from perdure import Agent
from tests.adapters.captured.provider import Provider, serve

PROGRAMS = Path(__file__).parent / "captured"
TURNS = range(6)
MOMENTS = [f"{what} {turn}" for turn in TURNS for what in ("seen", "stream" if turn % 2 else "seen")]
ONCE = dict.fromkeys(TURNS, 1)
ANSWERS = [f"answer {turn}" for turn in TURNS]


def make_command(folder: Path, provider: Provider, *options: str) -> list[str]:
    command = [sys.executable, "-m", "perdure.cli", "proxy", "--store", str(folder / "a.db"), "--id", "job"]
    for name in ("openai", "anthropic"):
        command += ["--upstream", f"{name}=http://{provider.host}"]
    return [*command, *options]


def make_program(name: str, provider: Provider) -> list[str]:
    node = shutil.which("node")
    if name.endswith(".mjs") and node is None:
        pytest.skip("node is not installed")
    return [node or "", *_rest(name, provider)] if name.endswith(".mjs") else [sys.executable, *_rest(name, provider)]


def _rest(name: str, provider: Provider) -> list[str]:
    return [str(PROGRAMS / name), f"http://{provider.host}"]


@pytest.mark.parametrize("name", ["openai_agent.py", "anthropic_agent.py", "fetch_agent.mjs"])
def test_every_call_of_a_killed_program_is_paid_once(name: str, tmp_path: Path) -> None:
    kills = random.Random(21).sample(sorted(set(MOMENTS)), 4)
    with serve(kills, ["ask 4"]) as provider:
        command = make_command(tmp_path, provider, "--backoff", "1ms", "--same-place", "9", "--")
        command += make_program(name, provider)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, ANSWERS), done.stderr
    assert provider.kills == []
    assert provider.paid == ONCE
    with Agent("capture", store=tmp_path / "a.db") as agent:
        assert agent.runs.get("job").status == "finished"
        assert (agent.usage().calls, agent.usage().input_tokens) == (6, 60)
        assert agent.savings().calls > 6
    assert all(b"sk-secret" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@contextmanager
def start_proxy(folder: Path, provider: Provider, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A proxy without a command, and its address."""
    command = make_command(folder, provider, "--port", "0", *options)
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            yield proxy, proxy.stdout.readline().split()[-1]
        finally:
            proxy.terminate()


def ask(origin: str, turn: int, *, stream: bool = False) -> httpx2.Response:
    asked = {"messages": [{"role": "user", "content": f"question {turn}"}], "stream": stream}
    headers = {"x-pid": "0", "authorization": "Bearer sk-secret"}
    return httpx2.post(f"{origin}/v1/chat/completions", json=asked, headers=headers, trust_env=False)


def test_a_new_start_of_the_program_is_answered_from_the_journal(tmp_path: Path) -> None:
    with serve(["seen 2", "stream 3"]) as provider, start_proxy(tmp_path, provider) as (_, origin):
        environment = {"OPENAI_BASE_URL": f"{origin}/v1"}
        for expected in (-signal.SIGKILL, -signal.SIGKILL, 0):
            done = subprocess.run(
                make_program("openai_agent.py", provider), env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == expected, done.stderr
    assert (done.stdout.splitlines(), provider.paid) == (ANSWERS, ONCE)


def test_a_killed_proxy_answers_with_the_same_bytes(tmp_path: Path) -> None:
    told = []
    with serve(fails=["stream 1"]) as provider:
        for _ in range(2):
            with start_proxy(tmp_path, provider) as (proxy, origin):
                if not told:
                    with pytest.raises(httpx2.RemoteProtocolError):
                        ask(origin, 1, stream=True)
                told.append([ask(origin, turn, stream=turn == 1).content for turn in (0, 1, 0)])
                proxy.kill()
    assert told[0] == told[1]
    assert provider.paid == {0: 2, 1: 1}


def test_strict_sends_nothing_that_differs_from_the_recorded_program(tmp_path: Path) -> None:
    with serve() as provider:
        for options, turn, status in ((), 0, 200), (("--on-mismatch", "strict"), 5, 400):
            with start_proxy(tmp_path, provider, *options) as (proxy, origin):
                answer = ask(origin, turn)
                assert answer.status_code == status
                proxy.kill()
    error: dict[str, Any] = answer.json()["error"]
    assert (error["code"], answer.headers["x-should-retry"], provider.paid) == ("PD307", "false", {0: 1})


def test_force_answers_with_what_the_recorded_program_got(tmp_path: Path) -> None:
    with serve() as provider:
        for turn in (0, 5):
            with start_proxy(tmp_path, provider, "--on-mismatch", "force") as (proxy, origin):
                assert "answer 0" in ask(origin, turn).text
                proxy.kill()
    assert provider.paid == {0: 1}


def test_other_hosts_reach_no_recorded_answer(tmp_path: Path) -> None:
    """A page in a browser cannot make a name of its own point here."""
    with serve() as provider, start_proxy(tmp_path, provider) as (_, origin):
        answer = httpx2.get(f"{origin}/v1/models", headers={"host": "evil.example:80"}, trust_env=False)
    assert answer.status_code == 421
