"""Requests of one conversation that come at once, in threads and in coroutines of one process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from perdure import AsyncAgent

from .chat import Chat
from .kit import check_views

CROWD = 8


def test_requests_in_threads_are_a_turn_each(program: Chat) -> None:
    with ThreadPoolExecutor(CROWD) as pool:
        asked = [pool.submit(program.chat, "user", f"m{n}", id=f"r{n}", wait=60) for n in range(CROWD)]
        assert [one.result() for one in asked] == [f"re: m{n}" for n in range(CROWD)]
    assert [one.number for one in program.thread.turns()] == list(range(1, CROWD + 1))
    assert sorted(program.contents()[::2]) == [f"m{n}" for n in range(CROWD)]
    check_views(program.agent)


def test_one_request_that_comes_several_times_at_once_is_one_turn(program: Chat) -> None:
    with ThreadPoolExecutor(CROWD) as pool:
        asked = [pool.submit(program.chat, "user", "m", id="same", wait=60) for _ in range(CROWD)]
        assert [one.result() for one in asked] == ["re: m"] * CROWD
    assert program.contents() == ["m", "re: m"]
    assert program.world.count("asked m") == 1


def test_requests_in_coroutines_are_a_turn_each(store_url: str) -> None:
    async def main() -> None:
        agent = AsyncAgent("tester", store=store_url)

        @agent.turn
        async def chat(turn: Any) -> None:
            await asyncio.sleep(0)
            await turn.reply(f"re: {turn.input}")

        calls = [chat("user", f"m{n}", id=f"r{n}", wait=60) for n in range(CROWD)]
        calls += [chat(f"other {n}", f"m{n}") for n in range(CROWD)]
        assert await asyncio.gather(*calls) == [f"re: m{n}" for n in range(CROWD)] * 2
        assert [one.number for one in await agent.thread("user").turns()] == list(range(1, CROWD + 1))
        check_views(agent)
        await agent.close()

    asyncio.run(main())
