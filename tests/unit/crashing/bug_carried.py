"""Bug: who could not be paid is kept in a list, from item to item: those of before a crash are forgotten."""

from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("payroll")
WORLD = Path("world.txt")


def is_sent(name, *, key):
    return Done() if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_sent)
def send(name, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} sent to {name}\n")


def main():
    failed = []
    with agent.run("wages") as run:
        for name in run.each(["ann", "bob", "eve", "joe"]):
            mail = f"{name}@example.com"
            if name in ("bob", "joe"):
                failed.append(name)
            else:
                send(mail)
        for name in failed:
            send(name)


main()
