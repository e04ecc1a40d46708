"""A coding agent for a container: it edits a repository, runs the tests and pushes, and survives `docker kill`.

Everything that it must remember is in two volumes: the store in /data, the repository in /work. Without Docker:

    PERDURE_URL=agent.db WORK=my-repository python agent.py "Make the tests pass"
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from perdure import Agent, Done, NotDone

agent = Agent("coder")  # PERDURE_URL says where its store is
WORK = Path(os.environ.get("WORK", "/work"))


def sh(*command: str) -> str:
    done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, check=False)
    return f"exit code {done.returncode}\n{done.stdout}{done.stderr}"[-20_000:]


@agent.step  # stands for your model: it sees the conversation and names the next tool
def model(messages: list[Any]) -> list[str]:
    with open("calls.txt", "a") as calls:  # paid for once each
        calls.write(f"{len(messages)}\n")
    plan = [["read", "shop.py"], ["write", "shop.py", "def total(prices):\n    return sum(prices)\n"]]
    plan += [["test"], ["commit", "Add up all prices"], ["done", "The tests pass."]]
    return plan[len(messages) // 2]


@agent.step  # whole files, so that writing one twice is writing it once
def write(name: str, text: str) -> str:
    (WORK / name).write_text(text)
    return f"wrote {name}"


def is_committed(message: str, *, key: str) -> Done | type[NotDone]:  # called when a crash leaves it in doubt
    return Done("committed") if key in sh("git", "log", "--format=%B") else NotDone


@agent.effect(check=is_committed, timeout=60)  # changes what others see; never silently repeated
def commit(message: str, *, key: str) -> str:
    (WORK / ".git" / "index.lock").unlink(missing_ok=True)  # left by a git that was killed
    sh("git", "add", "--all")
    return sh("git", "commit", "--message", f"{message}\n\nPerdure-Key: {key}")


TOOLS = {
    "read": agent.step(lambda name: (WORK / name).read_text(), name="read"),
    "test": agent.step(lambda: sh(sys.executable, "-m", "unittest"), name="test"),
    "write": write,
    "commit": commit,
}

if __name__ == "__main__":
    task = sys.argv[1] if sys.argv[1:] else os.environ.get("TASK", "Make the tests pass")
    with agent.run(f"task: {task}", input=task) as run:
        run.messages.append({"role": "user", "content": task})
        while (call := model(list(run.messages)))[0] != "done":
            run.messages.append({"role": "assistant", "content": f"{call[0]}: {call[1:]}"})
            run.messages.append({"role": "user", "content": TOOLS[call[0]](*call[1:])})
        run.result = call[1]
    print(run.result)
