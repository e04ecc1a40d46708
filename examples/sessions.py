"""One task, five sessions: an initialiser writes down what is to be done, then each session is a new process.

A session knows nothing but what it reads when it wakes up. Kill one anywhere: the next goes on, and repeats no step.
To see it again: rm -r sessions.db* sessions
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from perdure import Agent

agent = Agent("writer", store=os.environ.get("PERDURE_URL", "sessions.db"))


@agent.step
def write(part: str) -> str:
    with open("work.txt", "a") as log:  # what really happens: hours of a model's work
        log.write(f"{part}\n")
    return f"{part} is written"


def initialise() -> None:
    workspace = agent.workspace("sessions")
    workspace.write("SOUL.md", "I write reports, one part in each session.\n")
    workspace.task("report", "".join(f"- [ ] {part}\n" for part in ("outline", "draft", "figures", "review", "mail")))


def session() -> None:
    workspace = agent.workspace("sessions")
    left = re.findall(r"^- \[ \] (.+)$", str(workspace.bootstrap()), re.MULTILINE)  # a model would read it and choose
    if not left:
        print("nothing is left")
        return
    with agent.run(f"report: {left[0]}", input=f"Write the {left[0]}") as run:
        print(write(left[0]), flush=True)
        run.progress(done=left[0], next_action=f"the {left[1]}" if left[1:] else "nothing: the report is done")
    task = workspace.read("tasks/report.md") or ""
    workspace.write("tasks/report.md", task.replace(f"- [ ] {left[0]}", f"- [x] {left[0]}"))
    agent.log(f"wrote the {left[0]}")


if __name__ == "__main__":
    for part in sys.argv[1:] or ["initialise", *["session"] * 6]:
        if sys.argv[1:]:
            {"initialise": initialise, "session": session}[part]()
        else:  # each of them knows nothing of the others
            subprocess.run([sys.executable, __file__, part], check=True)
