"""A review of 50 files with a comment on each. Killed after file 30 it continues at 31, and posts no comment twice."""

from __future__ import annotations

import os
from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("reviewer", store=os.environ.get("PERDURE_URL", "reviewer.db"))
COMMENTS = Path("comments.txt")  # stands for the pull request


@agent.step  # paid for once, then remembered
def review(file: str) -> str:
    with open("reviewed.txt", "a") as calls:
        calls.write(f"{file}\n")
    return f"{file}: a name is unclear"


def is_posted(comment: str, *, key: str) -> Done | type[NotDone]:  # asked when a crash leaves it in doubt
    return Done() if COMMENTS.exists() and key in COMMENTS.read_text() else NotDone


@agent.effect(check=is_posted, timeout=5)  # never silently repeated
def post(comment: str, *, key: str) -> None:
    with COMMENTS.open("a") as page:
        page.write(f"{key} {comment}\n")


if __name__ == "__main__":
    with agent.run("pull-request-7") as run:
        for file in run.each([f"file_{n:02}.py" for n in range(1, 51)]):
            print(file, flush=True)
            post(review(file))
            run.state["comments"] = run.state.get("comments", 0) + 1  # lands with its file, or not at all
        run.result = f"{run.state['comments']} comments"
    print(run.result)
