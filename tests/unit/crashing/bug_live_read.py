"""Bug: the run looks at what it will write itself, and goes another way when it is started again."""

from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("host")
WORLD = Path("world.txt")


def is_sent(to, *, key):
    return Done() if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_sent)
def welcome(to, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} welcome {to}\n")


@agent.step
def register(name):
    agent.state.set("guests", name, True)


with agent.run("guest-ann") as run:
    if not agent.state.get("guests", "ann"):
        register("ann")
        welcome("ann")
        run.result = "new"
    else:
        run.result = "known"
