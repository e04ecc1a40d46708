"""Bug: what was spent is kept in a global variable, which is 0 again after a crash."""

from perdure import Agent

agent = Agent("payroll")
LIMIT = 25
spent = 0


@agent.effect
def pay(name, amount):
    with open("world.txt", "a") as world:
        world.write(f"{name} gets {amount}\n")


def spend(name, amount):
    global spent
    if spent + amount > LIMIT:
        return
    spent += amount
    pay(name, amount)


with agent.run("wages") as run:
    for name in run.each(["ann", "bob", "eve", "joe"]):
        spend(name, 10)
