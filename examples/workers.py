"""Reports by workers: queued durably, done by whoever is there. Kill it, and start it again.

With workers of their own: `python workers.py` in one terminal, `perdure worker workers.py` in others.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from perdure import Agent

agent = Agent("reporter", store=os.environ.get("PERDURE_URL", "reporter.db"))


@agent.step  # done once, then remembered, whichever worker goes on
def read(topic: str, page: int) -> int:
    print(f"reading {topic}, page {page}", flush=True)
    time.sleep(0.02)
    return page * 100


@agent.effect
def publish(topic: str, words: int) -> str:
    with Path("published.txt").open("a") as file:
        file.write(f"{topic}: {words} words\n")
    return f"{topic} ({words} words)"


@agent.task(retries=2)
def report(topic: str) -> str:
    return publish(topic, sum(read(topic, page) for page in range(1, 4)))


@agent.task
def yearbook(topics: list[str]) -> str:
    for topic in topics:
        report.start(f"report on {topic}", topic)  # a child: queued once, however often this runs
    return ", ".join(report.result(f"report on {topic}") for topic in topics)  # waits, and holds no memory


if __name__ == "__main__":
    yearbook.start("2026", ["rain", "snow", "fog"])  # the same id is the same run
    worker = agent.worker(concurrency=2)
    threading.Thread(target=worker.run).start()
    try:
        print(yearbook.result("2026", timeout="1m"))
    finally:
        worker.drain()
