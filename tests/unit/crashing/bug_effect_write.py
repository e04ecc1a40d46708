"""Bug: what is spent is counted in the body of an effect, which is not run when its check says Done."""

from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("tour")
WORLD = Path("world.txt")


def is_booked(leg, *, key):
    return Done() if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_booked)
def book(leg, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} {leg}\n")
    run.state["spent"] = run.state.get("spent", 0) + 10


with agent.run("tour") as run:
    book("Oslo")
    book("Bergen")
