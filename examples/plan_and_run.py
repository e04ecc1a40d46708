"""Plan with the strong model, run with the cheap one: the first report is the playbook for all others.

An answer that fails its check goes to the strong model. Kill it at any moment and start it again: nothing is paid or
counted twice. To see it again: rm -r planner.db* calls.txt
"""

from __future__ import annotations

import os

from perdure import Agent, Run

agent = Agent("planner", store=os.environ.get("PERDURE_URL", "planner.db"))
PRICES = {"cheap": 0.001, "strong": 0.06}


def ask(run: Run, model: str, prompt: str) -> str:
    with open("calls.txt", "a") as calls:  # what really happens: a call of your provider's SDK
        calls.write(f"{model}: {prompt}\n")
    run.usage(model=model, cost_usd=PRICES[model])
    return "" if (model, prompt) == ("cheap", "list the risks of Initech") else f"{prompt}: done by {model}"


def report_on(company: str) -> None:
    name, inputs = f"report on {company}", {"company": company}
    with agent.playbooks.run("report", name, inputs=inputs, tiers=["cheap", "strong"]) as play:
        for step in play.steps():  # prompt your model with step.render()
            task = f"{step.name} of {company}"
            play.result = step.attempt(lambda tier, task=task: ask(play, tier, task), verify=bool)


if __name__ == "__main__":
    with agent.run("first report", input={"company": "Acme"}) as run:  # the strong model works it out, once
        for task in ("read the accounts", "list the risks", "write the summary"):
            run.step(lambda task=task: ask(run, "strong", f"{task} of Acme"), name=task)
    agent.playbooks.learn("report", run="first report")
    for customer in ("Globex", "Initech", "Umbrella", "Hooli"):
        report_on(customer)
    print(agent.playbooks.report("report"))
