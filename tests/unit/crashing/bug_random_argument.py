"""Bug: the number of the order is made in plain code, and is another one at every start."""

import random
from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("shop")
WORLD = Path("world.txt")


def is_ordered(number, *, key):
    return Done() if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_ordered)
def order(number, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} order {number}\n")


@agent.step
def thank():
    return "thanks"


with agent.run("order") as run:
    order(random.randint(1, 10**9))
    run.result = thank()
