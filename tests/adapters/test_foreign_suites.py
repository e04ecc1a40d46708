"""The frameworks' own tests of their bundled stores, with our class in their place.

The tests come from the source distributions, which are fetched. Google ADK's and A2A's contain none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.adapters.test_environments import CREWAI, make_environment

HERE = Path(__file__).parent


def fetch_source(folder: Path, package: str) -> Path:
    """The unpacked source distribution of a package with its version, or a skipped test."""
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package.partition("==")[0]]
    if subprocess.run([*download, "-d", folder, package], check=False).returncode:
        pytest.skip(f"cannot download the source of {package}")
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def count_passed(python: Path, source: Path, plugin: str, tests: list[str]) -> int:
    """Run foreign tests with our classes. Returns how many have passed; none may fail."""
    path = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src"), str(source)])
    off = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
    command = [python, "-m", "pytest", "-q", "--tb=short", "-p", f"foreign.{plugin}", "-p", "no:langsmith_plugin"]
    environment = {**os.environ, **off, "PYTHONPATH": path, "TMPDIR": str(source.parent)}
    done = subprocess.run([*command, *tests], cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    return int(found[1])


@pytest.mark.soak
def test_the_sdk_of_openai_accepts_our_session(tmp_path: Path) -> None:
    source = fetch_source(tmp_path, f"openai-agents=={version('openai-agents')}")
    tests = [f"tests/memory/test_{name}.py" for name in ("session", "session_limit", "session_context_wrapper")]
    tests += [f"tests/memory/test_compaction_{name}.py" for name in ("suffix", "model_visibility")]
    tests += [f"tests/extensions/memory/test_{name}_session.py" for name in ("async_sqlite", "encrypt")]
    assert count_passed(Path(sys.executable), source, "openai_agents", tests) >= 150


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_strands_accepts_our_session_manager(tmp_path: Path) -> None:
    package = f"strands-agents=={version('strands-agents')}"
    source = fetch_source(tmp_path, package)
    programs = make_environment(tmp_path, package, "moto", "pytest", "pytest-asyncio")
    tests = [f"tests/strands/session/test_{name}_session_manager.py" for name in ("file", "repository")]
    assert count_passed(programs / "python", source, "strands", tests) >= 65


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_crewai_accepts_our_flow_persistence(tmp_path: Path) -> None:
    source = fetch_source(tmp_path, f"crewai=={CREWAI}")
    programs = make_environment(tmp_path, f"crewai=={CREWAI}", "pytest", "pytest-asyncio", "pytest-recording", "vcrpy")
    tests = ["execution_uuid", "async_human_feedback", "flow", "flow_conversation", "flow_turns", "flow_usage_metrics"]
    tests += [f"flow_{name}" for name in ("persistence", "persistence_factory", "resumability_regression")]
    paths = [f"tests/test_{name}.py" for name in tests]
    assert count_passed(programs / "python", source, "crewai", paths) >= 300
