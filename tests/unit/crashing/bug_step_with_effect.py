"""Bug: a step changes the world; killed before it is recorded, it does so again."""

from perdure import Agent

agent = Agent("poster")


@agent.step
def post(text):
    with open("world.txt", "a") as world:
        world.write(f"{text}\n")


with agent.run("news") as run:
    post("one")
    post("two")
