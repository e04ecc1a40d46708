"""Bug: every start is a new run."""

import uuid
from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("booker")
WORLD = Path("world.txt")


def is_booked(seat, *, key):
    return Done() if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_booked)
def book(seat, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} booked {seat}\n")


with agent.run(f"trip-{uuid.uuid4()}") as run:
    book("12A")
    book("12B")
