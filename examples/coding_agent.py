"""A coding agent that reviews a pull request and ships it: 50 tool calls, offline, in three seconds.

Kill it at any moment with Ctrl-C or kill -9 and start it again: it continues where it was.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("coder", store=os.environ.get("PERDURE_URL", "coder.db"))
OUTSIDE = Path("outside.txt")  # stands for the world that the agent changes: comments, registry, servers


def use(tool: str, task: str) -> None:  # a recorded call does not come here again
    with open("calls.txt", "a") as calls:
        calls.write(f"{os.uname().nodename} {os.getpid()} {tool} {task}\n")
    print(f"{tool:7} {task}", flush=True)
    time.sleep(0.06)


@agent.step  # safe to repeat; executed once, then its result is recorded
def model(task: str) -> str:
    use("model", task)
    return "a name is unclear" if task.endswith(("2.py", "4.py", "7.py", "9.py", "30.py")) else "fine"


@agent.step
def shell(command: str) -> list[str]:
    use("shell", command)
    return [f"part_{n:02}.py" for n in range(1, 31)] if command.startswith("git diff") else ["ok"]


def is_published(what: str, *, key: str) -> Done | type[NotDone]:  # called when a crash leaves it in doubt
    return Done() if OUTSIDE.exists() and key in OUTSIDE.read_text() else NotDone


@agent.effect(check=is_published, timeout=3)  # changes the world; never silently repeated
def publish(what: str, *, key: str) -> None:
    use("publish", what)
    with OUTSIDE.open("a") as world:
        world.write(f"{key} {what}\n")


if __name__ == "__main__":
    with agent.run("pull-request-482") as run:
        for file in run.each(shell("git diff --name-only")):
            if (opinion := model(f"review {file}")) != "fine":
                publish(f"comment on {file}: {opinion}")
                run.state["comments"] = run.state.get("comments", 0) + 1  # lands with its file, or not at all
        shell("run the tests")
        shell("build the image")
        publish("push the image")
        publish("deploy")
        publish(f"announce: {model('summarise')}")
        run.result = f"shipped with {run.state['comments']} comments"
    print(run.result)
