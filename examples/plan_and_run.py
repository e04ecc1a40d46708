"""Plan with the strong model, run with the cheap one: the plan is paid for once and kept, each run follows it.

A weak answer goes to the strong model. Kill it at any moment and start it again. To see it again: rm -r planner.db*
"""

from __future__ import annotations

import os

from perdure import Agent

agent = Agent("planner", store=os.environ.get("PERDURE_URL", "planner.db"))


@agent.step  # an answer is paid for once, then remembered
def ask(model: str, prompt: str) -> str:
    with open("calls.txt", "a") as calls:  # what really happens: a call of your provider's SDK
        calls.write(f"{model}: {prompt}\n")
    if prompt.startswith("Plan"):
        return "read the accounts\nlist the risks\nwrite the summary"
    return "" if (model, prompt) == ("cheap", "list the risks of Initech") else f"{prompt}: done"


def plan_for(job: str) -> list[str]:
    with agent.run(f"plan: {job}") as run:  # a finished run only returns its result
        run.result = ask("strong", f"Plan {job}").splitlines()
    return run.result


if __name__ == "__main__":
    plan = plan_for("a company report")
    for company in ("Acme", "Globex", "Initech"):
        with agent.run(f"report on {company}") as run:
            for task in run.each(plan):
                answer = ask("cheap", f"{task} of {company}") or ask("strong", f"{task} of {company}")
                run.state[task] = answer  # lands with its task, or not at all
            run.result = f"{company}: {len(run.state)} parts"
        print(run.result)
