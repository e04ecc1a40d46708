"""Bug: the plain code of a run looks at a file that the run itself writes."""

from pathlib import Path

from perdure import Agent

agent = Agent("builder")
REPORT = Path("report.txt")


@agent.step
def build():
    REPORT.write_text("built")


@agent.step
def check():
    return "checked"


with agent.run("build") as run:
    if not REPORT.exists():
        build()
        run.result = check()
    else:
        run.result = "nothing to do"
