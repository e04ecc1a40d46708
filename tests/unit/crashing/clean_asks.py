"""Clean: an effect that nobody can check, so that a person is asked."""

from perdure import Agent

agent = Agent("payer")


@agent.effect
def pay(amount, *, key):
    with open("world.txt", "a") as world:
        world.write(f"{key} paid {amount}\n")


with agent.run("invoice") as run:
    pay(120)
    run.result = "paid"
