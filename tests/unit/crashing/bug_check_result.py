"""Bug: the check knows that it was booked, and not under which number."""

from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("airline")
WORLD = Path("world.txt")


def is_booked(seat, *, key):
    return Done() if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_booked)
def book(seat, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} {seat}\n")
    return f"booking of {seat}"


with agent.run("trip") as run:
    run.result = book("12A")
