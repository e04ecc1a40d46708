"""An initializer and a coder with a progress file. Promise: a session that knows nothing does the next open feature."""

import sys

from perdure import Agent

FEATURES = ["login", "search", "cart", "checkout"]


def initializer():
    agent = Agent("initializer")
    agent.workflows.create(name="features", steps=FEATURES)
    workspace = agent.workspace("project")
    workspace.write("AGENTS.md", "Do one feature per session. Read PROGRESS.md first.\n")
    agent.log("The project is set up.")


def coder():
    agent = Agent("coder")
    features = agent.workflows.get("features", of="initializer")
    feature = features.next_incomplete_step()
    if feature is None:
        print("All features are done.")
        return
    print(f"Next: {feature.action}, {features.progress}% done")
    with agent.run(f"feature-{feature.action}", input=f"Implement {feature.action}") as run:

        @agent.step
        def implement(name):
            with open("code.txt", "a") as code:
                code.write(f"{name}\n")
            return f"{name}.py"

        run.result = implement(feature.action)
        run.progress(done=f"implemented {feature.action}", next_action="the next feature")
    features.complete(feature, result=run.result)


{"init": initializer, "code": coder}[sys.argv[1]]()
