"""Bug: a step notes what it found in a list of its own, which stays empty when the step is remembered."""

from perdure import Agent

agent = Agent("finder")
found = []


@agent.step
def look(place):
    found.append(f"something in {place}")


with agent.run("search") as run:
    look("attic")
    look("cellar")
    agent.checkpoint.create("found", {"things": found})
