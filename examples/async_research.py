"""The same under asyncio: model calls side by side, with retries; then a report is sent.

Kill it at any moment and start it again: answers that have come are not asked for again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure import AsyncAgent

agent = AsyncAgent("researcher", store="researcher.db")
TOPICS = ["leases", "fencing", "hash chains", "group commit", "idempotency", "write-ahead logs"]


@agent.step(retries=3, backoff=0.1, timeout=10)
async def ask(topic: str) -> str:
    await asyncio.sleep(len(topic) / 20)  # the model thinks
    print(f"answered: {topic}", flush=True)
    return f"{topic}: it depends"


@agent.effect(in_doubt="retry")  # this outbox knows its keys: a letter put there twice is there once
async def send(letter: str, *, key: str) -> str:
    await asyncio.to_thread(Path(f"letter-{key}.txt").write_text, letter)
    return key


async def main() -> None:
    async with agent.run("report-7", input=TOPICS) as run:
        answers = await asyncio.gather(*(ask(topic) for topic in run.input))
        await run.messages.extend({"role": "assistant", "content": answer} for answer in answers)
        key = await send("\n".join(answers))
        run.result = {"answers": len(answers), "letter": key}
    print(run.result)


if __name__ == "__main__":
    asyncio.run(main())
