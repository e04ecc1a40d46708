"""Bug: whatever the bank raises is taken for "not paid", and the wallet pays as well."""

from perdure import Agent

agent = Agent("payer")


@agent.effect(in_doubt="fail")
def by_bank(amount):
    with open("world.txt", "a") as world:
        world.write(f"bank {amount}\n")


@agent.effect
def by_wallet(amount):
    with open("world.txt", "a") as world:
        world.write(f"wallet {amount}\n")


with agent.run("prize") as run:
    try:
        by_bank(50)
    except Exception:
        by_wallet(50)
