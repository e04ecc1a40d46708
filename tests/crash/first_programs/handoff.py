"""A researcher hands over to a writer. Promise: the successor knows the goal, the reasons, and what is left."""

import sys

from perdure import Agent


def work(what):
    with open("work.txt", "a") as log:
        log.write(f"{what}\n")
    return f"{what} is done"


def researcher():
    agent = Agent("report-team")
    with agent.run("report", input={"goal": "Write a report about tides"}) as run:
        run.step(work, "collect sources")
        run.event("DECISION_MADE", {"what": "use the data of 2025", "why": "2026 is incomplete"})
        run.progress(done="collected sources", next_action="write the draft", context="Use the harbour table.")
        run.step(work, "check sources")
        raise SystemExit("my context window is full")


def writer():
    agent = Agent("report-team")
    brief = str(agent.handoff())
    print("goal" if "report about tides" in brief else "no goal")
    print("reason" if "2026 is incomplete" in brief else "no reason")
    print("next" if "write the draft" in brief else "no next step")
    with agent.run("report", input={"goal": "Write a report about tides"}) as run:
        run.step(work, "collect sources")
        run.event("DECISION_MADE", {"what": "use the data of 2025", "why": "2026 is incomplete"})
        run.progress(done="collected sources", next_action="write the draft", context="Use the harbour table.")
        run.step(work, "check sources")
        run.step(work, "write the draft")
        run.result = "the report"
    print(run.result)


{"researcher": researcher, "writer": writer}[sys.argv[1]]()
