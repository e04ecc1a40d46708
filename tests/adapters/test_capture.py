"""Capture without code: unchanged programs are killed, and every completed model call is paid once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

import perdure
from perdure import Agent
from perdure.errors import Diverged, ReplayDiffers
from tests.adapters.captured.provider import Provider, serve

PROGRAMS = Path(__file__).parent / "captured"
TURNS = range(6)
KILLS = ["stream 1", "seen 1", "ask 2", "stream 3", "seen 5"]


def run_program(name: str, folder: Path, provider: Provider, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program as `perdure run --capture` does, in a store of its own."""
    command = [sys.executable, "-m", "perdure.cli", "run", "--store", str(folder / "a.db"), "--capture"]
    command += ["--host", provider.host, "--backoff", "1ms", *options, "--", sys.executable, str(PROGRAMS / name)]
    return subprocess.run(
        [*command, f"http://{provider.host}"], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["openai_agent.py", "anthropic_agent.py"])
def test_every_completed_call_of_a_killed_agent_is_paid_once(name: str, tmp_path: Path) -> None:
    with serve(list(KILLS), ["ask 4"]) as provider:
        done = run_program(name, tmp_path, provider, "--id", "job")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"answer {turn}" for turn in TURNS]
    assert provider.kills == provider.fails == []
    assert provider.paid == dict.fromkeys(TURNS, 1)
    with Agent("capture", store=tmp_path / "a.db") as agent:
        assert agent.runs.get("job").status == "finished"
        assert (agent.usage().calls, agent.usage().input_tokens) == (6, 60)
        assert agent.savings().calls > 6
    assert all(b"sk-secret" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_httpx_requests_and_urllib3_get_the_same_bytes_again(tmp_path: Path) -> None:
    """Without an id, the unfinished run of a program is continued; once it is finished, a new one begins."""
    with serve(["seen 5"]) as provider:
        killed = run_program("libraries_agent.py", tmp_path, provider, "--same-place", "1")
        assert (killed.returncode, provider.paid) == (137, dict.fromkeys(TURNS, 1))
        replayed = run_program("libraries_agent.py", tmp_path, provider)
        assert (replayed.returncode, provider.paid) == (0, dict.fromkeys(TURNS, 1)), replayed.stderr
        live = run_program("libraries_agent.py", tmp_path, provider)
    assert (live.stdout, live.stdout.count("answer")) == (replayed.stdout, 3)
    assert provider.paid == dict.fromkeys(TURNS, 2)


def test_the_sitecustomize_of_the_machine_is_executed_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.chained = 'yes'")
    command = [sys.executable, "-m", "perdure.cli", "run", "--store", str(tmp_path / "a.db"), "--capture", "--"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*command, sys.executable, "-c", "print(chained)"], env=environment, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"yes\n"), done.stderr


def ask(provider: Provider, turn: int, library: Any = httpx2, *, stream: bool = False, **more: Any) -> str:
    """Ask one question, with the libraries that both SDK generations use."""
    asked = {"messages": [{"role": "user", "content": f"question {turn}"}], "stream": stream, **more}
    answer = library.post(f"http://{provider.host}/v1/chat/completions", json=asked, headers={"x-pid": "0"})
    answer.raise_for_status()
    return str(answer.text)


def interrupt(provider: Provider, store: Path, turns: list[int]) -> None:
    """Ask some questions in a run, and leave it as a crash would."""
    with pytest.raises(KeyboardInterrupt), perdure.capture("job", store=store, hosts=[provider.host]):
        for turn in turns:
            ask(provider, turn)
        raise KeyboardInterrupt


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_equal_requests_are_different_calls(library: Any, tmp_path: Path) -> None:
    with serve() as provider:
        for _ in range(2):
            with perdure.capture("job", store=tmp_path / "a.db", hosts=[provider.host]):
                ask(provider, 0, library, user="ann")
                ask(provider, 0, library, user="bob")
    assert provider.paid == {0: 2}


async def test_calls_at_the_same_time_are_found_again_in_any_order(tmp_path: Path) -> None:
    async def ask_later(client: httpx2.AsyncClient, provider: Provider, turn: int) -> str:
        asked = {"messages": [{"role": "user", "content": f"question {turn}"}], "stream": turn % 2 == 1}
        answer = await client.post(f"http://{provider.host}/v1/chat/completions", json=asked, headers={"x-pid": "0"})
        return answer.text

    with serve() as provider:
        for turns in ([0, 1, 2, 3, 0], [3, 0, 2, 0, 1]):
            with perdure.capture("job", store=tmp_path / "a.db", hosts=[provider.host]):
                async with httpx2.AsyncClient() as client:
                    told = await asyncio.gather(*(ask_later(client, provider, turn) for turn in turns))
            assert all(f"answer {turn}" in text for turn, text in zip(turns, told, strict=True) if turn % 2 == 0)
    assert provider.paid == {0: 2, 1: 1, 2: 1, 3: 1}


async def test_aiohttp_gets_the_same_bytes_again(tmp_path: Path) -> None:
    async def ask_all(provider: Provider) -> list[Any]:
        told: list[Any] = []
        async with aiohttp.ClientSession(f"http://{provider.host}", headers={"x-pid": "0"}) as session:
            for turn in range(4):
                asked = {"messages": [{"role": "user", "content": f"question {turn}"}], "stream": turn % 2 == 1}
                async with session.post("/v1/chat/completions", json=asked, raise_for_status=turn > 0) as answer:
                    told.append([line async for line in answer.content] if turn < 2 else await answer.text())
        return told

    with serve(fails=["stream 1"]) as provider:
        options: dict[str, Any] = {"store": tmp_path / "a.db", "hosts": [provider.host]}
        with pytest.raises(aiohttp.ClientPayloadError), perdure.capture("job", **options):
            await ask_all(provider)
        assert provider.paid == {0: 1}
        with perdure.capture("job", **options):
            first = await ask_all(provider)
        with perdure.capture("job", **options):
            assert await ask_all(provider) == first
    assert provider.paid == {0: 1, 1: 1, 2: 1, 3: 1}


def test_calls_of_threads_are_found_again(tmp_path: Path) -> None:
    with serve() as provider:
        for turns in ([0, 1, 2, 0], [0, 2, 0, 1]):
            with (
                perdure.capture("job", store=tmp_path / "a.db", hosts=[provider.host]),
                ThreadPoolExecutor(4) as threads,
            ):
                assert list(threads.map(lambda turn: f"answer {turn}" in ask(provider, turn), turns)) == [True] * 4
    assert provider.paid == {0: 2, 1: 1, 2: 1}


def test_other_hosts_are_left_alone(tmp_path: Path) -> None:
    with serve() as provider, perdure.capture("job", store=tmp_path / "a.db"):
        ask(provider, 0)
    assert not (tmp_path / "a.db").exists()


def test_errors_and_cut_streams_are_not_recorded(tmp_path: Path) -> None:
    with serve(fails=["ask 0", "stream 1"]) as provider:
        with perdure.capture("job", store=tmp_path / "a.db", hosts=[provider.host]):
            with pytest.raises(httpx2.HTTPStatusError):
                ask(provider, 0)
            with pytest.raises(httpx2.RemoteProtocolError):
                ask(provider, 1, stream=True)
            assert "answer 0" in ask(provider, 0)
            assert "[DONE]" in ask(provider, 1, stream=True)
        with perdure.capture("job", store=tmp_path / "a.db", hosts=[provider.host]):
            assert "answer 0" in ask(provider, 0)
            assert "[DONE]" in ask(provider, 1, stream=True)
    assert provider.paid == {0: 1, 1: 1}


def test_calls_of_an_open_run_are_its_steps(tmp_path: Path) -> None:
    with serve() as provider, perdure.capture(store=tmp_path / "a.db", hosts=[provider.host]):
        agent = Agent("own", store=tmp_path / "a.db")
        for _ in range(2):
            with agent.run("trip"):
                ask(provider, 0)
        assert (provider.paid, [run.id for run in agent.runs.list()]) == ({0: 1}, ["trip"])
        agent.close()


def test_a_mismatch_is_warned_about_and_paid(tmp_path: Path) -> None:
    with serve() as provider:
        interrupt(provider, tmp_path / "a.db", [0, 1])
        with perdure.capture("job", store=tmp_path / "a.db", hosts=[provider.host]):
            ask(provider, 0)
            with pytest.warns(ReplayDiffers, match="call 2 of run 'job'"):
                assert "answer 5" in ask(provider, 5)
    assert provider.paid == {0: 1, 1: 1, 5: 1}


def test_strict_raises_at_a_mismatch_and_force_uses_the_recorded_answer(tmp_path: Path) -> None:
    with serve() as provider:
        interrupt(provider, tmp_path / "a.db", [0, 1])
        options: dict[str, Any] = {"store": tmp_path / "a.db", "hosts": [provider.host]}
        with pytest.raises(Diverged), perdure.capture("job", on_mismatch="strict", **options):
            ask(provider, 5)
        with perdure.capture("job", on_mismatch="force", **options):
            assert "answer 0" in ask(provider, 5)
            assert "answer 1" in ask(provider, 1)
            assert "answer 2" in ask(provider, 2)
    assert provider.paid == {0: 1, 1: 1, 2: 1}
