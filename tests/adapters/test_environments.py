"""Environments of their own: the lowest versions of our dependencies, and CrewAI, which needs old ones of others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CREWAI = "1.15.30"
ROOT = Path(__file__).parents[2]

FLOW = """
import os, sys
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import persist
from perdure.adapters.crewai import PerdureFlowPersistence
from pydantic import BaseModel

states = PerdureFlowPersistence("flows.db")

class Trip(BaseModel):
    id: str = "trip"
    done: int = 0

@persist(states)
class Travel(Flow[Trip]):
    @start()
    def first(self):
        self.state.done += 1

    @listen(first)
    def second(self):
        if len(sys.argv) > 1:
            os.kill(os.getpid(), 9)
        self.state.done += 10

Travel().kickoff(inputs={"id": "trip"})
print(states.load_state("trip"))
"""


def make_environment(folder: Path, *packages: str) -> Path:
    """A virtual environment with these packages and Perdure; returns its programs."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    programs = folder / "venv" / "bin"
    install = [programs / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*install, "-e", ROOT, *packages], check=True)
    return programs


def lowest_versions() -> list[str]:
    """The core dependencies, each at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [re.sub(">=", "==", bound) for bound in project["dependencies"]]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_lowest_versions_of_our_dependencies_work(tmp_path: Path) -> None:
    programs = make_environment(tmp_path, *lowest_versions())
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for command in (["demo"], ["init"], ["runs"], ["doctor"]):
        subprocess.run([programs / "perdure", *command], env=environment, cwd=tmp_path, check=True)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_state_of_a_flow_of_crewai_survives(tmp_path: Path) -> None:
    programs = make_environment(tmp_path, f"crewai=={CREWAI}")
    off = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **off}
    run = [programs / "python", "-c", FLOW]
    killed = subprocess.run([*run, "kill"], env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    done = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "'done': 12" in done.stdout  # CrewAI restores the state and executes the methods again
