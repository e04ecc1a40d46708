"""Clean: an effect with a check, a step, items, state that lands with them."""

import uuid
from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("shop")
WORLD = Path("world.txt")


def is_charged(item, *, key):
    return Done() if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_charged)
def charge(item, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} charged {item}\n")


@agent.step
def number():
    agent.state.incr("shop", "orders")
    return uuid.uuid4().hex


with agent.run("order-1") as run:
    order = number()
    for item in run.each(["tea", "milk"]):
        charge(f"{item} of {order}")
        run.state["charged"] = run.state.get("charged", 0) + 1
    run.result = run.state["charged"]
