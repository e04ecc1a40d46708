"""Bug: the check looks for the amount, and takes the first payment for the second."""

from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("bank")
WORLD = Path("world.txt")


def is_paid(amount, *, key):
    return Done() if WORLD.exists() and f"paid {amount}\n" in WORLD.read_text() else NotDone


@agent.effect(check=is_paid)
def pay(amount, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} paid {amount}\n")


with agent.run("rent") as run:
    pay(100)
    pay(100)
