"""Bug: a lost connection is taken for proof that nothing was sent."""

from perdure import Agent

agent = Agent("mailer")


@agent.effect(not_done=(OSError,), retries=2, backoff=0.001)
def send(letter, *, key):
    with open("world.txt", "a") as world:
        world.write(f"{key} {letter}\n")


with agent.run("letter") as run:
    send("Dear Ann")
