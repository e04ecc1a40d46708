"""Bug: the time that has passed decides; remembered steps take none."""

import time

from perdure import Agent

agent = Agent("buyer")


@agent.step
def quote(part):
    time.sleep(0.25)
    return 12


with agent.run("part") as run:
    began = time.monotonic()
    price = quote("bearing")
    late = time.monotonic() - began > 0.2
    if late:
        run.state["excuse"] = "they were slow"
    run.result = price
