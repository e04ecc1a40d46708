"""Schemathesis, another maker of requests from our OpenAPI document: `make soak` installs it into a folder of its own.

`make test` has the seeded fuzzer of `test_hostile.py` instead: schemathesis takes a minute for a thousand requests and
brings thirty packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import Server

VERSION = "4.32.5"
EXAMPLES = 320
"""For each operation: more than 20,000 requests."""
REQUESTS_MIN = 20_000
CHECKS = "not_a_server_error,response_schema_conformance,status_code_conformance,content_type_conformance"
LEFT_OUT = "follow|/store/|answer/|/mcp|keys"
"""Streams without an end, bodies that are not JSON, pages for people, and the keys, whose answers are secrets."""


@pytest.fixture(scope="module")
def schemathesis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, in a virtual environment of its own."""
    folder = tmp_path_factory.mktemp("schemathesis")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    made = subprocess.run(
        [python, "-m", "pip", "install", "-q", f"schemathesis=={VERSION}"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"schemathesis cannot be installed: {made.stderr[-200:]}")
    return folder / "bin" / "schemathesis"


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[Server]:
    running = Server(str(tmp_path / "perdure.db"), tmp_path, "--no-auth").start()
    yield running
    running.kill()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_the_document_tells_every_answer(schemathesis: Path, open_server: Server) -> None:
    options = ["--workers", "1", "--max-examples", str(EXAMPLES), "--phases", "fuzzing", "--mode", "all", "--seed", "1"]
    options += ["--checks", CHECKS, "--exclude-path-regex", LEFT_OUT, "--request-timeout", "30", "--no-color"]
    command = [str(schemathesis), "run", f"{open_server.origin}/v1/openapi.json", *options]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout[-6000:]
    generated = re.search(r"(\d+) generated", done.stdout)
    assert generated is not None
    assert int(generated[1]) >= REQUESTS_MIN
    assert not open_server.died
