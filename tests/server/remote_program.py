"""An agent on a remote store whose world is a file: `python -m tests.server.remote_program STORE KEY WORLD RUN [KILL]`.

It kills itself inside or after the body that KILL names: `in:effect 1`, `out:step 0`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from perdure import Agent, Done, NotDone

ACTS = ["step 0", "effect 1", "step 2", "effect 3"]
"""What it does to its world, in order."""


def travel(store: str, api_key: str, world: Path, run_id: str, kill: str = "") -> Any:
    """Make the journey, or go on with it."""
    agent = Agent("travel", store=store, api_key=api_key)

    def act(what: str) -> str:
        _die(kill, f"in:{what}")
        with world.open("a") as file:
            file.write(f"{what}\n")
        _die(kill, f"out:{what}")
        return what

    def has_acted(what: str, *, key: str) -> Any:
        return Done(what) if what in acts_in(world) else NotDone

    step = agent.step(name="step")(act)
    effect = agent.effect(name="effect", check=has_acted)(lambda what, *, key: act(what))
    with agent, agent.run(run_id) as run:
        done = [step(what) if what.startswith("step") else effect(what) for what in ACTS]
        run.state["done"] = len(done)
        agent.state.set("journeys", run_id, done)
        run.result = done
        return done


def acts_in(world: Path) -> list[str]:
    """What has been done to a world."""
    return world.read_text().splitlines() if world.exists() else []


def _die(kill: str, moment: str) -> None:
    if kill == moment:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    store, api_key, world, *rest = sys.argv[1:]
    travel(store, api_key, Path(world), *rest)
