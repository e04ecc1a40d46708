"""Every command prints the JSON that docs/reference/json.md describes: programs read it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import main
from tests.conformance.rich_store import copy_to

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
ROWS = re.findall(r"^\| `perdure (.+?)` \| (list|object) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
KINDS = {str: "text", bool: "bool", int: "number", float: "number", list: "list", dict: "object", type(None): "null"}


def documented(fields: str) -> dict[str, set[str]]:
    return {name: set(kinds.split("/")) for name, kinds in re.findall(r"`(\w+)` ([a-z/]+)", fields)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("command", "shape", "fields"), ROWS, ids=[row[0] for row in ROWS])
def test_a_command_prints_the_documented_fields(
    command: str, shape: str, fields: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy_to(tmp_path / "perdure.db")
    capsys.readouterr()
    assert main([*command.split(), "--json", "--store", str(path)]) in (0, 1)
    told: Any = json.loads(capsys.readouterr().out)
    rows = told if shape == "list" else [told]
    assert rows and all(isinstance(row, dict) for row in rows)
    expected = documented(fields)
    for row in rows:
        assert set(row) == set(expected)
        assert {name for name, value in row.items() if KINDS[type(value)] not in expected[name]} == set()
