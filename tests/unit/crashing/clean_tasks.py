"""Clean: a task that a worker does, in a thread of the same process."""

import threading
from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("editor")
WORLD = Path("world.txt")


def is_sent(to, *, key):
    return Done(to) if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_sent)
def send(to, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} sent {to}\n")
    return to


@agent.task
def report(topic):
    return send(f"report on {topic}")


report.start("q3", "rain")
worker = agent.worker()
thread = threading.Thread(target=worker.run)
thread.start()
try:
    report.result("q3", timeout=30)
finally:
    worker.drain()
    thread.join()
