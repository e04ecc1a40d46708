"""`perdure import SOURCE PATH`: realistic files of other tools, read twice, killed half-way, and hostile."""

from __future__ import annotations

import copy
import json
import signal
import sqlite3
import zipfile
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.adapters.conversations import read_conversation
from perdure.importers.reader import ImportReader
from perdure.importers.sources import SOURCES
from tests.server.harness import run_cli


def do_import(source: str, path: Path, store: Path, *options: str, code: int = 0) -> dict[str, Any]:
    done = run_cli("import", source, str(path), "--store", str(store), "--json", *options)
    assert done.returncode == code, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def write_session(folder: Path, name: str = "5f1c", extra: str = "") -> Path:
    path = folder / "-home-me-shop" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    common = {"sessionId": name, "cwd": "/home/me/shop", "timestamp": "2026-05-01T10:00:00.000Z", "isSidechain": False}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "pytest"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "2 passed"}]}
    lines = [
        {"type": "summary", "summary": "Mend the checkout", "leafUuid": "x"},
        {"type": "user", "message": {"role": "user", "content": "Mend the checkout tests \ud83d"}, **common},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}},
        {"type": "user", "isCompactSummary": True, "message": {"role": "user", "content": "This session is"}, **common},
        {"type": "user", "message": {"role": "user", "content": "<local-command-stdout>Compacted</local"}, **common},
        {"type": "api-request-blob", "message": {"role": "user", "content": "Mend the checkout tests"}},
        {"type": "assistant", "message": {"role": "assistant", "content": [call]}, **common},
        {"type": "user", "message": {"role": "user", "content": [result]}, **common},
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
            **common,
        },
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + extra)
    return path


def test_sessions_of_claude_code_become_threads(tmp_path: Path) -> None:
    projects, store = tmp_path / "projects", tmp_path / "a.db"
    write_session(projects, extra='{"type": "user", "mess')
    first = do_import("claude-code", projects, store)
    assert first["threads"] == {"new": 1, "updated": 0, "unchanged": 0}
    assert [place["path"].rpartition(":")[2] for place in first["unread"]] == ["10"]
    assert do_import("claude-code", projects, store)["threads"]["unchanged"] == 1
    write_session(projects, extra='{"type": "user", "message": {"role": "user", "content": "Thanks"}}\n')
    assert do_import("claude-code", projects, store)["threads"]["updated"] == 1
    with Agent("assistant", store=str(store)) as agent:
        [thread] = agent.threads.list()
        assert (thread.id, thread.framework) == ("claude-code/5f1c", "claude-code")
        state = agent.threads.state(thread.id)
        assert state["title"] == "Mend the checkout" and state["origin"]["folder"] == "/home/me/shop"
        said = read_conversation(agent, thread.id, "openai")
        assert [message["role"] for message in said] == ["user", "assistant", "tool", "assistant", "user"]
        agent.threads.delete(thread.id)
    assert do_import("claude-code", projects, store)["threads"]["unchanged"] == 1
    assert do_import("claude-code", projects, store, "--again")["threads"]["new"] == 1


def conversation(number: int) -> dict[str, Any]:
    def node(role: str, text: str, parent: str, **more: Any) -> dict[str, Any]:
        content = {"content_type": "text", "parts": [text]}
        message = {"author": {"role": role}, "content": content, "create_time": 1_700_000_000.5, **more}
        return {"message": message, "parent": parent, "children": []}

    hidden = {"metadata": {"is_visually_hidden_from_conversation": True}}
    mapping = {
        "root": {"message": None, "parent": None, "children": ["a"]},
        "a": node("system", "secret rules", "root", **hidden),
        "b": node("user", f"What grows in bed {number}?", "a"),
        "old": node("assistant", "I do not know", "b"),
        "c": node("assistant", f"Bed {number} has leeks", "b"),
    }
    return {"id": f"conv-{number}", "title": f"Bed {number}", "mapping": mapping, "current_node": "c"}


def test_an_export_of_chatgpt_becomes_threads_and_memories(tmp_path: Path) -> None:
    store, path = tmp_path / "a.db", tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([*map(conversation, range(3)), {"title": "broken"}]))
        archive.writestr("chat.html", "<html>")
    dry = do_import("chatgpt", path, store, "--memories", "--dry-run")
    assert dry["threads"]["new"] == 3 and dry["memories"]["new"] == 6
    for expected in ("new", "unchanged"):
        report = do_import("chatgpt", path, store, "--memories")
        assert report["threads"][expected] == 3 and report["memories"][expected] == 6 and report["unread_count"] == 1
    with Agent("assistant", store=str(store)) as agent:
        assert len(agent.memory.list()) == 6
        best = agent.memory.recall("leeks in bed 2")[0]
        assert best.text == "Bed 2 has leeks" and (best.source, best.trust) == ("import:chatgpt", 0.0)
        assert agent.threads.state("chatgpt/conv-1")["messages"][0]["content"] == "What grows in bed 1?"


def test_memories_of_mem0_keep_user_and_time(tmp_path: Path) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "mem0"
    folder.mkdir()
    entry = {"id": "m1", "memory": "Likes tea", "user_id": "eva", "created_at": "2026-01-02T03:04:05Z"}
    (folder / "all.json").write_text(json.dumps({"results": [entry, {"id": "m2"}]}))
    with sqlite3.connect(folder / "history.db") as database:
        database.execute(
            "CREATE TABLE history (id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted)"
        )
        rows = [
            ("m3", "Lives in Rome", "ADD"),
            ("m3", "Lives in Oslo", "UPDATE"),
            ("m4", "x", "ADD"),
            ("m4", "", "DELETE"),
        ]
        for memory, text, event in rows:
            values = (memory, text, event, "2026-01-02T03:04:05")
            database.execute("INSERT INTO history VALUES (NULL, ?, NULL, ?, ?, ?, NULL, 0)", values)
    database.close()
    assert do_import("mem0", folder, store, "--trust")["unread_count"] == 1
    assert do_import("mem0", folder, store)["memories"] == {"new": 0, "updated": 0, "unchanged": 2}
    with Agent("assistant", store=str(store)) as agent:
        found = {memory.text: memory for memory in agent.memory.list()}
        assert set(found) == {"Likes tea", "Lives in Oslo"}
        tea = found["Likes tea"]
        assert (tea.user, tea.valid_from.year, tea.trust, tea.count) == ("eva", 2026, 1.0, 1)


@pytest.mark.parametrize("new", [True, False])
def test_agents_of_letta_bring_blocks_and_messages(tmp_path: Path, new: bool) -> None:
    blocks = [{"id": "block-0", "label": "human", "value": "Name: Eva"}]
    wrapped = json.dumps({"type": "user_message", "message": "Hello", "time": "now"})
    beat = json.dumps({"type": "heartbeat", "reason": "x"})
    call = {"id": "c", "function": {"name": "send_message", "arguments": json.dumps({"message": "Hello Eva"})}}
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "rules"}]},
        {"role": "user", "content": [{"type": "text", "text": wrapped}]},
        {"role": "assistant", "content": [{"type": "text", "text": ""}], "tool_calls": [call]},
        {"role": "user", "content": [{"type": "text", "text": beat}]},
    ]
    agent_data = {"name": "sam", "messages": messages}
    data = {"agents": [agent_data], "blocks": blocks} if new else {**agent_data, "core_memory": blocks}
    path, store = tmp_path / "sam.af", tmp_path / "a.db"
    path.write_text(json.dumps(data))
    do_import("letta", path, store)
    assert do_import("letta", path, store)["memories"]["unchanged"] == 1
    with Agent("assistant", store=str(store)) as agent:
        assert [memory.text for memory in agent.memory.list()] == ["Name: Eva"]
        said = [message["content"] for message in agent.threads.state("letta/sam")["messages"]]
        assert said == ["Hello", "Hello Eva"]


def every_place(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a JSON value."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, found in inner:
        yield from every_place(found, (*path, name))


def letta_data() -> dict[str, Any]:
    call = {"id": "c", "function": {"name": "send_message", "arguments": '{"message": "Hello"}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": '{"type": "user_message", "message": "Hi"}'}]},
        {"role": "assistant", "content": "x", "tool_calls": [call], "created_at": "2026-01-02"},
    ]
    return {"agents": [{"name": "sam", "messages": messages}], "blocks": [{"label": "human", "value": "Eva"}]}


MEM0 = {"results": [{"id": "m1", "memory": "Tea", "user_id": "eva", "categories": ["a"], "metadata": {"a": [1]}}]}


@pytest.mark.parametrize("source", ["claude-code", "chatgpt", "mem0", "letta"])
def test_no_value_of_a_wrong_type_stops_a_reader(source: str, tmp_path: Path) -> None:
    path = tmp_path / f"conversations{ {'claude-code': '.jsonl', 'letta': '.af'}.get(source, '.json') }"
    lines = [json.loads(line) for line in write_session(tmp_path / "p").read_text().splitlines()]
    good = {"claude-code": lines, "chatgpt": [conversation(1)], "mem0": MEM0, "letta": letta_data()}[source]
    read = 0
    for place in every_place(good):
        for wrong in (None, True, 7, 1e400, -1e300, "x", [], [[1]], {}, {"a": {}}):
            data = copy.deepcopy(good)
            reduce(getitem, place[:-1], data)[place[-1]] = wrong
            rows = data if source == "claude-code" else [data]
            path.write_text("\n".join(map(json.dumps, rows)))
            read += len(list(SOURCES[source].read(ImportReader(path))))
    assert read > 50


def test_what_no_store_can_hold_is_listed_and_the_rest_imported(tmp_path: Path) -> None:
    path, store = tmp_path / "all.json", tmp_path / "a.db"
    bad = [
        {"memory": "long name", "user_id": "u" * 1000},
        {"memory": "long tag", "categories": ["t" * 1000]},
        {"memory": "x" * 1_100_000},
    ]
    entries = [*bad, {"memory": "Likes tea", "metadata": {"big": 10**400}}]
    path.write_text(json.dumps([{"id": str(number), **entry} for number, entry in enumerate(entries)]))
    report = do_import("mem0", path, store)
    assert report["memories"]["new"] == 1 and len(report["unread"]) == 3, report
    agents = [{"name": name, "messages": [{"role": "user", "content": name}]} for name in ("n" * 1000, "sam", "sam")]
    blocks = [{"label": "human", "value": value} for value in ("Eva", "Bob")]
    (tmp_path / "team.af").write_text(json.dumps({"agents": agents, "blocks": blocks}))
    for expected in ("new", "unchanged"):
        report = do_import("letta", tmp_path / "team.af", store)
        assert report["memories"][expected] == report["threads"][expected] == 2 and report["unread_count"] == 1


def write_vault(folder: Path) -> None:
    (folder / ".obsidian").mkdir(parents=True)
    (folder / ".obsidian" / "hidden.md").write_text("# no\nnothing")
    front = "---\ntitle: Garden\ntags: [plants, '#home']\ncreated: 2025-03-04\n---\n"
    (folder / "Garden.md").write_text(f"{front}intro\n\n# Beds\nleeks\n\n```\n# no heading\n```\n## North\nshade\n")
    (folder / "CLAUDE.md").write_text("# Rules\n- run the tests\n")
    (folder / "bad.md").write_bytes(b"\xff\xfe")


def test_sections_of_a_vault_become_memories_and_edits_supersede_them(tmp_path: Path) -> None:
    vault, store = tmp_path / "vault", tmp_path / "a.db"
    write_vault(vault)
    report = do_import("markdown", vault, store)
    assert report["memories"]["new"] == 4 and [place["why"] for place in report["unread"]] == ["not UTF-8"]
    (vault / "Garden.md").write_text((vault / "Garden.md").read_text().replace("shade", "sun"))
    assert do_import("markdown", vault, store)["memories"] == {"new": 0, "updated": 1, "unchanged": 3}
    with Agent("assistant", store=str(store)) as agent:
        found = {memory.text: memory for memory in agent.memory.list()}
        assert {"Garden\nintro", "Garden > Beds > North\nsun"} <= set(found) and len(found) == 4
        assert found["Garden\nintro"].tags == ("plants", "home") and found["Garden\nintro"].valid_from.year == 2025
        assert found["CLAUDE > Rules\n- run the tests"].kind == "procedural"


def test_an_import_that_is_killed_continues_and_doubles_nothing(tmp_path: Path) -> None:
    notes, projects, store = tmp_path / "notes", tmp_path / "projects", tmp_path / "a.db"
    notes.mkdir()
    (notes / "MEMORY.md").write_text("".join(f"## Fact {n}\nthe value of {n} is {n * n}\n" for n in range(120)))
    for number in range(4):
        write_session(projects, f"session-{number}")
    for source, path, failpoint in (
        ("markdown", notes, "memory.write:after#2"),
        ("markdown", notes, "memory.write:written#1"),
        ("claude-code", projects, "thread.write:after#2"),
    ):
        done = run_cli("import", source, str(path), "--store", str(store), env={"PERDURE_FAILPOINT": failpoint})
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert do_import("markdown", notes, store)["memories"] == {"new": 20, "updated": 0, "unchanged": 100}
    assert do_import("claude-code", projects, store)["threads"] == {"new": 2, "updated": 0, "unchanged": 2}
    with Agent("assistant", store=str(store)) as agent:
        assert [memory.count for memory in agent.memory.list()] == [1] * 120
        assert [thread.checkpoints for thread in agent.threads.list()] == [1] * 4


def test_bombs_and_rubbish_are_listed(tmp_path: Path) -> None:
    store, bomb = tmp_path / "a.db", tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 30_000_000 + b"]")
    assert "zip bomb" in do_import("chatgpt", bomb, store, code=1)["unread"][0]["why"]
    deep = tmp_path / "deep.af"
    deep.write_text("[" * 200_000)
    assert "nested too deep" in do_import("letta", deep, store, code=1)["unread"][0]["why"]
    rubbish = tmp_path / "rubbish.jsonl"
    rubbish.write_bytes(b"\x00\xff\n[1]\n{}\n")
    assert do_import("claude-code", rubbish, store, code=1)["unread_count"] == 2
    missing = run_cli("import", "mem0", str(tmp_path / "no"), "--store", str(store))
    assert missing.returncode == 2 and "does not exist" in missing.stderr
