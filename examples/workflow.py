"""Two plans of four steps, kept in the store. Kill it in a third step and start it again: it goes on with that one.

The first is done by the program, step by step; the second by Perdure, which calls the functions that its steps name.
To see it again: rm -r report.db*
"""

from __future__ import annotations

import os

from perdure import Agent

agent = Agent("reporter", store=os.environ.get("PERDURE_URL", "report.db"))


def work(what: str) -> str:
    with open("work.txt", "a") as log:  # what really happens: a request, a model call
        log.write(f"{what}\n")
    return f"{what} is done"


@agent.step
def publish(where: str) -> str:
    return work(where)


if __name__ == "__main__":
    report = agent.workflows.create(name="report", steps=["scrape", "analyse", "write", "check"])
    while (step := report.next_incomplete_step()) is not None:
        print(f"{step.step} {step.action}", flush=True)
        report.start(step)
        report.complete(step, result=work(step.action))

    places = ["site", "mail", "chat", "feed"]
    sending = agent.workflows.create("sending", [{"action": "publish", "args": [place]} for place in places])
    print(f"sending: {sending.progress}% done", flush=True)
    sending.resume()
    print(sending.results[4], f"{sending.progress}%")
