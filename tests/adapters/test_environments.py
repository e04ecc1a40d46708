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

from tests.conformance.kit import World

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


PLAY = """
import sys
from pathlib import Path
from tests.adapters.frameworks import play

play(sys.argv[1], Path("stream"), "sqlite:///stream/shop.db", sys.argv[2])
"""
EXTRAS = ("a2a", "adk", "anthropic", "openai", "openai-agents", "pydantic-ai", "strands")
NAMES = {
    "a2a": "a2a.PerdureTaskStore",
    "adk": "adk.PerdureSessionService adk.PerdureMemoryService adk.PerdureArtifactService adk.DurabilityPlugin",
    "anthropic": "anthropic.durable claude.MemoryTool claude.AsyncMemoryTool",
    "openai": "openai.durable",
    "openai-agents": "openai_agents.PerdureSession openai_agents.durable openai_agents.durable_model",
    "pydantic-ai": "pydantic_ai.Durability pydantic_ai.to_model_messages",
    "strands": "strands.PerdureSessionManager strands.durable",
}
"""What each extra must be able to import."""


def lowest_of(extra: str) -> list[str]:
    """The packages of an extra, each at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [bound.replace(">=", "==") for bound in project["optional-dependencies"][extra]]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_lowest_versions_of_a_framework_survive_a_kill(extra: str, tmp_path: Path) -> None:
    programs = make_environment(
        tmp_path, *lowest_of(extra), "psycopg[binary]", "pytest", "pytest-asyncio", "hypothesis"
    )
    python = programs / "python"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    for name in NAMES[extra].split():
        module, _, attribute = name.partition(".")
        subprocess.run(
            [python, "-c", f"from perdure.adapters.{module} import {attribute}"], env=environment, check=True
        )
    (tmp_path / "stream").mkdir()
    play = [python, "-c", PLAY, extra]
    killed = subprocess.run([*play, "inside"], env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    subprocess.run([*play, ""], env=environment, cwd=tmp_path, check=True)
    seen = [what.split()[0] for what in World(tmp_path / "stream").read_all()]
    assert sorted(seen) == ["answer", *["model"] * 4, "tool1", "tool2", "tool3"]


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
