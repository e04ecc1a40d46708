"""Bug: the letter is sent in plain code."""

from perdure import Agent

agent = Agent("writer")


@agent.step
def write(name):
    return f"Dear {name}"


with agent.run("letter") as run:
    text = write("Ann")
    with open("world.txt", "a") as world:
        world.write(f"{text}\n")
    write("Bob")
    run.result = text
