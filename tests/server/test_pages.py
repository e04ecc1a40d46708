"""The examples of the REST page in other languages, and the files for operators."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.server.harness import Server
from tests.tidy.source import ROOT

PAGE = (ROOT / "docs" / "reference" / "rest.md").read_text("utf-8")


def run_example(server: Server, language: str, command: list[str]) -> str:
    """Run the example of a language against the server."""
    [example] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    env = {**os.environ, "SERVER": server.origin, "PERDURE_API_KEY": server.make_key()}
    done = subprocess.run([*command, example], env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_curl_example_works(shared_server: Server) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    assert run_example(shared_server, "bash", ["sh", "-ec"]).count('"value":"Oslo","version":1') == 2


def test_the_javascript_example_works(shared_server: Server) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    told = run_example(shared_server, "js", ["node", "--input-type=module", "-e"])
    assert told.strip() == "Alice prefers aisle seats"


def test_every_operation_is_on_the_page(shared_server: Server) -> None:
    document = shared_server.client().get("/v1/openapi.json").json()
    nouns = {match[1] for path in document["paths"] if (match := re.match(r"/v1/agents/\{agent\}/(\w+)", path))}
    assert all(noun in PAGE for noun in nouns - {"questions"})


def test_the_commands_of_the_deployment_files_are_ours(tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    assert set(compose["services"]) == {"postgres", "perdure"}
    docker = (ROOT / "deploy" / "Dockerfile").read_text()
    options = re.findall(r'"(--[\w-]+)"', docker) + re.findall(r"--[\w-]+", "--behind-proxy")
    shown = subprocess.run(
        [sys.executable, "-m", "perdure.cli", "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(option in shown for option in options)
    assert "ExecStart=/opt/perdure/bin/perdure serve\n" in (ROOT / "deploy" / "perdure.service").read_text()
