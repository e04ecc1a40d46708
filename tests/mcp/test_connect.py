"""`perdure connect` and `disconnect`: files of other programs are edited without losing anything."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.cli.main import main
from perdure.connect.json_text import read_json, remove_entry, set_entry
from perdure.connect.toml_text import remove_table, set_table
from perdure.connect.tools import TOOLS
from perdure.errors import ConfigurationBroken

PATH = ("mcpServers", "perdure")
ENTRY = {"command": "perdure", "args": ["mcp"]}
FILES = {
    "empty object": "{}",
    "one line": '{"mcpServers": {"other": {"command": "x"}}, "theme": "dark"}\n',
    "comments": """\
// my settings
{
\t"theme": "dark", // why not
\t/* servers */
\t"mcpServers": {
\t\t"other": { "command": "x" } // keep
\t}
}
""",
    "commas at the end": '{\n    "a": [1, 2,],\n    "mcpServers": {\n        "o": {},\n    },\n}\n',
    "no servers": '{\n  "theme": "dark"\n}',
    "empty servers": '{\n  "mcpServers": {},\n  "z": 1\n}\n',
    "a comma in a comment": '{\n  "mcpServers": {\n    "o": {} /* a, b */\n  }\n}\n',
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_an_entry_is_added_and_every_line_stays(text: str) -> None:
    made = set_entry(text, PATH, ENTRY)
    data = read_json(made).data
    assert data["mcpServers"].pop("perdure") == ENTRY
    before = read_json(text).data
    assert data == {**before, "mcpServers": before.get("mcpServers", {})}
    for comment in ("// my settings", "// why not", "/* servers */", "// keep", "/* a, b */"):
        assert (comment in made) == (comment in text)
    assert set_entry(made, PATH, ENTRY) == made
    assert read_json(remove_entry(made, PATH)).data == {**before, "mcpServers": before.get("mcpServers", {})}
    if before.get("mcpServers"):
        assert remove_entry(made, PATH) == text or "\n" not in text.strip()
        changed = set_entry(made, PATH, {"command": "y"})
        assert read_json(changed).data["mcpServers"]["perdure"] == {"command": "y"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), VALUES), st.sampled_from([None, 2, "\t"]))
def test_any_json_survives_an_entry_and_its_removal(data: dict[str, Any], indent: Any) -> None:
    data["mcpServers"] = {"other": 1}
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    made = set_entry(text, PATH, ENTRY)
    assert json.loads(made) == {**data, "mcpServers": {"other": 1, "perdure": ENTRY}}
    assert json.loads(remove_entry(made, PATH)) == data


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{\n  'a': 1\n}", 2),
        ('{\n "a": 1\n "b": 2}', 3),
        ('{"a": [1,\n2', 2),
        ("{} x", 1),
        ('{"a":\n}', 2),
        ("[" * 200, 1),
    ],
)
def test_a_broken_file_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigurationBroken, match=f"line {line}:"):
        set_entry(text, PATH, ENTRY)


def test_a_table_of_toml_is_added_replaced_and_removed() -> None:
    text = '# mine\nmodel = "x"  # best\n\n[mcp_servers.other]\ncommand = "o"\n'
    path = ("mcp_servers", "perdure")
    made = set_table(text, path, ENTRY)
    assert made.startswith(text)
    assert tomllib.loads(made)["mcp_servers"] == {"other": {"command": "o"}, "perdure": ENTRY}
    assert set_table(made, path, ENTRY) == made
    assert remove_table(made, path) == text
    more = made + "\n# after\n[profiles.a]\nx = 1\n"
    changed = set_table(more, path, {"command": "new"})
    assert tomllib.loads(changed) == {
        **tomllib.loads(more),
        "mcp_servers": {"other": {"command": "o"}, "perdure": {"command": "new"}},
    }
    assert "# after\n[profiles.a]" in changed
    assert remove_table(changed, path) == text + "\n# after\n[profiles.a]\nx = 1\n"
    with pytest.raises(ConfigurationBroken, match="by hand"):
        set_table("[mcp_servers]\nperdure = {command = 'x'}\n", path, ENTRY)
    with pytest.raises(ConfigurationBroken, match="line 2"):
        set_table("a = 1\nb = \n", path, ENTRY)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_connect_twice_is_once_and_disconnect_takes_it_back(
    tool: str, scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    path = TOOLS[tool].file(scope, Path.cwd())
    options = ["--scope", scope, "--yes"]
    if path is None:
        assert main(["connect", tool, *options]) == 2
        return
    assert main(["connect", tool, *options, "--dry-run"]) == 0
    assert not path.exists()
    for text in (None, "# mine\n" if path.suffix == ".toml" else '{\n  // mine\n  "x": 1\n}\n'):
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert main(["connect", tool, *options, "--agent", "coder"]) == 0
        made = path.read_text()
        assert "perdure" in made and "coder" in made
        assert main(["connect", tool, *options, "--agent", "coder"]) == 0
        assert path.read_text() == made
        assert main(["disconnect", tool, *options]) == 0
        assert (path.read_text() if path.exists() else None) == text


def test_an_edit_of_the_user_after_connecting_survives_disconnect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".cursor" / "mcp.json"
    assert main(["connect", "cursor", "--yes"]) == 0
    path.write_text(set_entry(path.read_text(), ("mcpServers", "mine"), {"command": "m"}))
    assert main(["disconnect", "cursor", "--yes"]) == 0
    assert json.loads(path.read_text()) == {"mcpServers": {"mine": {"command": "m"}}}


def test_a_broken_file_and_a_missing_answer_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".gemini" / "settings.json"
    path.parent.mkdir()
    path.write_text('{\n  "a": 1,\n  oops\n}\n')
    assert main(["connect", "gemini-cli", "--yes"]) == 2
    told = capsys.readouterr().err
    assert "line 3" in told and "left as it is" in told
    assert path.read_text() == '{\n  "a": 1,\n  oops\n}\n'
    assert main(["doctor", "--store", str(tmp_path / "none.db")]) == 1
    assert "line 3" in capsys.readouterr().out
    path.write_text("{}")
    assert main(["connect", "gemini-cli"]) == 2
    assert path.read_text() == "{}"


def test_the_list_shows_what_is_installed_and_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["connect", "cursor", "--yes"]) == 0
    capsys.readouterr()
    assert main(["connect", "--list", "--json"]) == 0
    listed = {one["tool"]: one for one in json.loads(capsys.readouterr().out)}
    assert set(listed) == set(TOOLS)
    assert listed["cursor"]["installed"] and "mcp.json" in listed["cursor"]["connected"]
    assert not listed["windsurf"]["installed"] and not listed["windsurf"]["connected"]


HOOKED = [name for name, tool in TOOLS.items() if tool.hook_file.endswith(".json")]
MINE = """\
{
  // mine
  "hooks": {
    "SessionStart": [
      { "hooks": [{ "type": "command", "command": "say hello" }] }
    ]
  },
  "theme": "dark"
}
"""


@pytest.mark.parametrize("tool", HOOKED)
@pytest.mark.parametrize("edited", [False, True])
def test_hooks_are_added_beside_those_of_the_user_and_taken_back(
    tool: str, edited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = TOOLS[tool].hooks("user", tmp_path)
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MINE)
    assert main(["connect", tool, "--yes"]) == 0
    made = path.read_text()
    hooks = read_json(made).data["hooks"]
    assert set(hooks) == set(TOOLS[tool].hook_events)
    assert hooks["SessionStart"][0] == read_json(MINE).data["hooks"]["SessionStart"][0]
    assert all("client.py" in items[-1]["hooks"][0]["command"] for items in hooks.values())
    at_end = hooks["SessionEnd"][-1]["hooks"][0]["timeout"]
    assert at_end == {"codex": 3, "gemini-cli": 10_000}.get(tool, 10)  # Codex warns of a longer one at every start
    assert main(["connect", tool, "--yes"]) == 0
    assert path.read_text() == made
    assert main(["connect", tool, "--yes", "--agent", "other"]) == 0
    assert [len(items) for items in read_json(path.read_text()).data["hooks"].values()].count(2) == 1
    if edited:
        path.write_text(path.read_text().replace("dark", "light"))
    assert main(["disconnect", tool, "--yes"]) == 0
    if not edited:
        assert path.read_text() == MINE
        return
    left = read_json(path.read_text()).data
    assert left.pop("mcpServers", {}) == {}  # of a file that the user edited, the empty object of servers stays
    assert left == read_json(MINE.replace("dark", "light")).data
    assert "// mine" in path.read_text()


@pytest.mark.parametrize("tool", [*HOOKED, "opencode"])
def test_no_hooks_adds_none_and_removes_earlier_ones(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = TOOLS[tool].hooks("user", tmp_path)
    assert path is not None
    for options in (["--no-hooks"], [], ["--no-hooks"]):
        assert main(["connect", tool, "--yes", *options]) == 0
        assert ("client.py" in path.read_text() if path.exists() else False) == (not options)
    assert main(["connect", tool, "--yes"]) == 0
    assert ("/hooks" in capsys.readouterr().out.splitlines()[-1]) == (tool == "codex")
    assert main(["doctor", "--store", str(tmp_path / "none.db")]) in (0, 1)
    assert f"hooks in {path}" in capsys.readouterr().out.replace("\n", " ")


def test_a_plugin_of_somebody_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    path = tmp_path / ".config" / "opencode" / "plugins" / "perdure.js"
    path.parent.mkdir(parents=True)
    path.write_text("// mine\n")
    assert main(["connect", "opencode", "--yes"]) == 2
    assert path.read_text() == "// mine\n" and not path.parent.with_name("opencode.json").exists()
    path.unlink()
    assert main(["connect", "opencode", "--yes", "--agent", "x y"]) == 0
    assert 'const OPTIONS = ["--agent", "x y"];' in path.read_text()
    assert main(["disconnect", "opencode", "--yes"]) == 0
    assert not path.exists()


def test_a_broken_file_of_hooks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".claude" / "settings.json"
    path.parent.mkdir()
    for text in ("{ oops", '{"hooks": []}', '{"hooks": {"SessionStart": {"a": 1}}}'):
        path.write_text(text)
        assert main(["connect", "claude-code", "--yes"]) == 2
        assert path.read_text() == text and not (tmp_path / ".claude.json").exists()
