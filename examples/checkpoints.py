"""An analysis with a state object of its own, which it saves now and then under a name: `analysis-30pct` and so on.

Kill it and start it again: it restores the last checkpoint, and does what `next_action` says.
"""

from __future__ import annotations

import os

from perdure import Agent

agent = Agent("analyst", store=os.environ.get("PERDURE_URL", "analyst.db"))


def analyse(page: int) -> str:
    with open("analysed.txt", "a") as seen:  # what really happens: a model call
        seen.write(f"{page}\n")
    return f"page {page} is about {'leases' if page % 2 else 'fences'}"


if __name__ == "__main__":
    work = {"page": 0, "findings": [], "next_action": "read page 1"}
    if saved := agent.checkpoint.list():
        work = agent.checkpoint.restore(saved[-1].name)  # the newest is the last
        print(f"{saved[-1].name}: {work.next_action}", flush=True)  # keys are attributes too
    while work["page"] < 100:
        work["page"] += 1
        work["findings"].append(analyse(work["page"]))
        work["next_action"] = f"read page {work['page'] + 1}"
        if work["page"] % 10 == 0:
            agent.checkpoint.create(f"analysis-{work['page']}pct", work)
    print(f"{len(work['findings'])} findings")
