"""A pipeline: test, build, push, deploy. The server reboots during the push; the tests are not run again."""

from __future__ import annotations

import os
from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("deployer", store=os.environ.get("PERDURE_URL", "deployer.db"))
REGISTRY = Path("registry.txt")  # stands for the image registry and the servers


@agent.step(retries=2)  # safe to repeat, and not repeated once it is done
def shell(command: str) -> str:
    with open("commands.txt", "a") as log:
        log.write(f"{command}\n")
    return f"sha-{len(command)}" if command.startswith("build") else "ok"


def is_there(what: str, image: str, *, key: str) -> Done | type[NotDone]:
    return Done() if REGISTRY.exists() and key in REGISTRY.read_text() else NotDone


@agent.effect(check=is_there, timeout=5)
def publish(what: str, image: str, *, key: str) -> None:
    with REGISTRY.open("a") as registry:
        registry.write(f"{key} {what} {image}\n")


if __name__ == "__main__":
    with agent.run("release-1.4") as run:
        shell("run the tests")
        image = shell("build the image")
        publish("push", image)
        publish("deploy", image)
        run.result = f"{image} is live"
    print(run.result)
