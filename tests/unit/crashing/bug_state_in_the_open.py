"""Bug: visits are counted in the plain code of a run."""

from perdure import Agent

agent = Agent("counter")


@agent.step
def greet(name):
    return f"hello {name}"


with agent.run("visit") as run:
    agent.state.incr("site", "visits")
    run.result = [greet("Ann"), greet("Bob")]
