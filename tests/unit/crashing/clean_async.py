"""Clean: the same under asyncio, several at a time."""

import asyncio
from pathlib import Path

from perdure import AsyncAgent, Done, NotDone

agent = AsyncAgent("outbox")
WORLD = Path("world.txt")


async def is_sent(to, *, key):
    return Done(to) if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_sent)
async def send(to, *, key):
    await asyncio.sleep(0.001)
    with WORLD.open("a") as world:
        world.write(f"{key} sent {to}\n")
    await asyncio.sleep(0.001)
    return to


@agent.step
async def think(topic):
    return topic.upper()


async def main():
    async with agent.run("letters") as run:
        thoughts = await asyncio.gather(*(think(topic) for topic in "abcd"))
        async for to in run.each(["ann", "bob"]):
            await run.messages.append({"role": "user", "content": await send(to)})
        run.result = thoughts


asyncio.run(main())
