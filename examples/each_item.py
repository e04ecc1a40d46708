"""A loop over items: each is done once, and what it writes lands with it or not at all.

Kill it at any moment and start it again: it continues with the customers who have no letter, even if the list has
grown meanwhile: `python each_item.py 25` starts it again with five more.

Once it has finished, it prints its result and sends nothing more: later customers need a run with a new id. To see it
all again: rm -r newsletter.db* outbox.txt
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from perdure import Agent, Done, NotDone
from perdure.errors import RunFinished

agent = Agent("newsletter", store="newsletter.db")
OUTBOX = Path("outbox.txt")


@agent.step
def write_letter(name: str) -> str:
    time.sleep(0.05)  # the model writes
    return f"Dear {name}, spring is here."


def is_sent(name: str, letter: str, *, key: str) -> Done | type[NotDone]:
    return Done() if OUTBOX.exists() and key in OUTBOX.read_text() else NotDone


@agent.effect(check=is_sent)
def send(name: str, letter: str, *, key: str) -> None:
    with OUTBOX.open("a") as outbox:
        outbox.write(f"{key} {letter}\n")
    print(f"sent to {name}", flush=True)


def main(count: int) -> None:
    customers = [{"id": f"c{n}", "name": f"customer {n}"} for n in range(1, count + 1)]
    with agent.run("spring") as run:
        for customer in run.each(customers, key="id"):  # told apart by id, wherever they stand in the list
            send(customer["name"], write_letter(customer["name"]))
            run.state["sent"] = run.state.get("sent", 0) + 1
            run.state["last"] = customer["name"]
        run.result = dict(run.state)
    print(run.result)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    except RunFinished as error:  # with more customers than it had when it finished
        print(error)
