"""A job for cron: one run per day. Start it as often as you like: each day's digest is written and sent once.

    */10 * * * *  cd /srv/digest && python cron_job.py

A killed start is repaired by the next one, also the day after. A start while another one works leaves at once.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from perdure import Agent, Done, NotDone, RunBusy

agent = Agent("digest", store=os.environ.get("PERDURE_URL", "digest.db"))
OUTBOX = Path("outbox.txt")  # stands for the mail server


@agent.step
def summarise(day: str, topic: str) -> str:
    with open("calls.txt", "a") as calls:  # what really happens: a model call
        calls.write(f"{day} {topic}\n")
    return f"{topic}: nothing new"


def is_sent(day: str, text: str, *, key: str) -> Done | type[NotDone]:
    return Done() if OUTBOX.exists() and key in OUTBOX.read_text() else NotDone


@agent.effect(check=is_sent, timeout=30)
def send(day: str, text: str, *, key: str) -> None:
    with OUTBOX.open("a") as outbox:
        outbox.write(f"{key} {day} {text}\n")


def digest(day: str) -> str:
    with agent.run(day) as run:  # the id is the day: the second start of a day finds the run finished
        if run.finished:
            return f"{day} was sent before"
        send(day, ", ".join(summarise(day, topic) for topic in ("news", "papers", "issues")))
    return f"{day} is sent"


if __name__ == "__main__":
    today = sys.argv[1] if sys.argv[1:] else f"{datetime.now(UTC):%Y-%m-%d}"
    unfinished = [run.id for run in agent.runs.list() if run.status != "finished"]
    for day in sorted({today, *unfinished}):
        try:
            print(digest(day))
        except RunBusy:  # the start before this one is still at work
            print(f"{day} is being written")
