"""The file that an agent moves in: what is in it, what is not, and that nobody has changed it."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from perdure import Agent, AsyncAgent, RunWaiting
from perdure.cli.main import main
from perdure.errors import AgentExists, AgentMoved, ExportDamaged, WrongPassphrase
from perdure.journal.verify import verify
from perdure.kernel.engine import Engine
from perdure.transfer import file_format
from perdure.transfer.check import check
from perdure.transfer.export import contents_of
from perdure.transfer.import_file import import_agent

from . import rich_store
from .test_transfer import sound


def decompress_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def contents(path: Path) -> bytes:
    """All that is in a file, with nothing packed any more."""
    found = []
    for line in file_format.lines_of(path):
        for field in msgspec.structs.astuple(line):
            found.append(field if isinstance(field, bytes) else str(field).encode())
        if isinstance(line, file_format.ExportObject):
            found.append(
                zstandard.ZstdDecompressor().decompress(line.data[1:]) if line.data[:1] == b"\x01" else line.data
            )
    return b"\n".join(found)


def rewritten(path: Path, edit: Callable[[list[Any]], list[Any]], *, honest: bool) -> Path:
    """The file with other lines; an honest last line fits them, and is not signed."""
    changed = edit(list(file_format.lines_of(path)))
    made = path.with_name("forged.perdure")
    *body, end = [msgspec.json.encode(item) + b"\n" for item in changed]
    if honest:
        last = msgspec.structs.replace(changed[-1], sha256=sha256(b"".join(body)).digest(), signature=b"")
        end = msgspec.json.encode(last) + b"\n"
    made.write_bytes(zstandard.ZstdCompressor().compress(b"".join(body) + end))
    return made


def test_a_file_that_was_changed_is_refused_wherever_that_was(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    agent.checkpoint.create("c", {"text": [rich_store.LARGE, rich_store.NOISE]})
    with agent.run("r") as run:
        run.step(lambda: rich_store.LARGE, name="large")
    path = Path(agent.export(tmp_path / "x.perdure").path)
    assert check(path).signed
    found = list(file_format.lines_of(path))

    def without(place: int) -> Callable[[list[Any]], list[Any]]:
        return lambda all_lines: all_lines[:place] + all_lines[place + 1 :]

    def later(kind: type) -> Callable[[list[Any]], list[Any]]:
        def edit(all_lines: list[Any]) -> list[Any]:
            place = max(n for n, line in enumerate(all_lines) if isinstance(line, kind))
            fields = (
                {"at": 7} if kind is not file_format.ExportObject else {"data": b"\x00" + bytes(all_lines[place].size)}
            )
            all_lines[place] = msgspec.structs.replace(all_lines[place], **fields)
            return all_lines

        return edit

    # Who has no key can leave out all signatures: then the file says that it is not signed.
    edits = [(without(n), True) for n, line in enumerate(found[:-1]) if not isinstance(line, file_format.ExportSeal)]
    edits += [(without(n), False) for n in range(len(found))]
    edits += [(later(kind), True) for kind in (file_format.ExportEntry, file_format.ExportObject)]
    for edit, honest in edits:
        forged = rewritten(path, edit, honest=honest)
        with pytest.raises(ExportDamaged):
            Agent.import_from(forged, store=tmp_path / "there.db", name="agent")
    whole = path.read_bytes()
    for end in (0, 1, len(whole) // 2, len(whole) - 1):
        forged.write_bytes(whole[:end])
        with pytest.raises(ExportDamaged):
            check(forged)
    assert (
        not (tmp_path / "there.db").exists() or Engine("x", store=tmp_path / "there.db").store.read("all_agents") == []
    )


def test_the_private_key_needs_its_passphrase(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    agent.state.set("a", "b", 1)
    for wrong in ({"private_key": True}, {"passphrase": "p"}):
        with pytest.raises(ValueError, match="passphrase"):
            agent.export(tmp_path / "x.perdure", **wrong)  # type: ignore[arg-type]
    agent.export(tmp_path / "x.perdure", move=True, private_key=True, passphrase="right")
    signer = agent._engine.signer
    assert signer is not None
    assert signer.seed not in contents(tmp_path / "x.perdure")
    for passphrase in (None, "wrong", ""):
        with pytest.raises(WrongPassphrase):
            Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db", passphrase=passphrase)
    there = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db", passphrase="right")
    assert there._engine.signer is not None
    assert there._engine.signer.seed == signer.seed
    assert verify(there._engine.store).findings == ()


async def test_under_asyncio_it_is_the_same(store_url: str, tmp_path: Path) -> None:
    agent = AsyncAgent("agent", store=store_url)
    await agent.state.set("a", "b", 1)
    told: list[tuple[int, int]] = []
    out = await agent.export(tmp_path / "x.perdure", move=True, progress=lambda *pair: told.append(pair))
    assert told[-1][0] == told[-1][1] == out.entries
    with pytest.raises(AgentMoved):
        await agent.state.set("a", "b", 2)
    there = await AsyncAgent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db")
    assert await there.state.get("a", "b") == 1
    with pytest.raises(AgentExists):
        import_agent(there._engine, out.path)


def test_the_commands_move_an_agent_and_say_so(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Agent("agent", store=store_url).state.set("a", "b", 1)
    path, there = str(tmp_path / "x.perdure"), str(tmp_path / "there.db")

    def told(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--json"]) == code
        seen = capsys.readouterr()
        return json.loads(seen.out or seen.err)

    assert "did you mean 'agent'" in told("export", "agant", path, "--store", store_url, code=2)["error"]["hint"]
    out = told("export", "agent", path, "--move", "--store", store_url)
    assert (out["agent"], out["moved"], out["signed"], out["private_key"]) == ("agent", True, True, False)
    checked = told("import", path, "--check")
    assert (checked["ok"], checked["contents"], checked["move"]) == (True, out["contents"], True)
    arrived = told("import", path, "--name", "again", "--store", there)
    assert (arrived["agent"], arrived["how"], arrived["contents"]) == ("again", "moved", out["contents"])
    Path(path).write_bytes(Path(path).read_bytes()[:-7])
    assert told("import", path, "--check", code=1)["ok"] is False
    assert told("import", path, "--store", there, code=2)["error"]["code"] == "PD805"


def test_a_store_that_an_agent_has_left_asks_nobody_to_go_on(
    file_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent("agent", store=file_url)

    @agent.task
    def work() -> None: ...

    work.start("queued")
    with contextlib.suppress(RunWaiting), agent.run("asks", wait=0) as run:
        run.ask("which one?")
    agent.export(tmp_path / "x.perdure", move=True)
    words = []
    for arguments in (["doctor"], ["runs"], ["show", "asks"]):
        main([*arguments, "--store", file_url])
        seen = capsys.readouterr()
        words.append(seen.out or seen.err)
    doctor, runs, shown = words
    assert "agent 'agent' has moved" in doctor and "which one?" not in doctor and "queue" not in doctor
    assert "its agent is no longer active here" in runs
    assert "has moved" in shown and "perdure answer" not in shown


def test_a_passphrase_is_asked_for_where_it_is_of_use_and_before_there_is_a_store(
    file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("agent", store=file_url)
    agent.state.set("a", "b", 1)
    agent.export(tmp_path / "copy", private_key=True, passphrase="right")
    agent.export(tmp_path / "move", move=True, private_key=True, passphrase="right")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    there = ["--store", str(tmp_path / "there.db")]
    for said in ("", "wrong"):
        monkeypatch.setenv("PERDURE_PASSPHRASE", said)
        assert main(["import", str(tmp_path / "move"), *there]) == 2
    assert not (tmp_path / "there.db").exists()
    monkeypatch.delenv("PERDURE_PASSPHRASE")
    assert main(["import", str(tmp_path / "copy"), *there]) == 0, "a child has a key of its own"
    assert main(["import", str(tmp_path / "move"), "--take-back", "--store", file_url]) == 0, "and who stays its own"


def test_what_was_forgotten_is_not_in_the_file(store_url: str, tmp_path: Path) -> None:
    agent, large = Agent("agent", store=store_url), "Zanzibar is where the treasure is. " * 300
    told = agent.memory.remember("Zebulon owes me seven euros", about="zebulon")
    long = agent.memory.remember(large, about="treasure")
    agent.memory.remember("The weather is fine", about="weather")
    agent.export(tmp_path / "before")
    assert b"Zebulon" in contents(tmp_path / "before") and b"Zanzibar" in contents(tmp_path / "before")
    agent.memory.forget([told, long])
    agent.export(tmp_path / "after")
    after = contents(tmp_path / "after").lower()
    assert b"zebulon" not in after and b"zanzibar" not in after and b"weather" in after
    there = Agent.import_from(tmp_path / "after", store=tmp_path / "there.db")
    assert [memory.text for memory in there.memory.list(all=True)] == ["The weather is fine"]
    sound(f"sqlite:///{tmp_path / 'there.db'}")


def test_a_file_can_be_written_where_files_have_one_name_only(
    file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")  # what vfat and exfat say to a link

    agent = Agent("agent", store=file_url)
    agent.state.set("a", "b", 1)
    monkeypatch.setattr("os.link", refused)
    agent.export(tmp_path / "x.perdure")
    with pytest.raises(FileExistsError):
        agent.export(tmp_path / "x.perdure")
    assert Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db").state.get("a", "b") == 1
    assert sorted(path.name for path in tmp_path.glob("*x.perdure*")) == ["x.perdure"]


def test_nothing_of_other_agents_goes_along_and_nothing_of_its_own_is_left(store_url: str, tmp_path: Path) -> None:
    agent, other = Agent("agent", store=store_url), Agent("agent/process other", store=store_url)
    with agent.run("mine") as run:

        def both() -> None:
            agent.state.set("own", "a", "mine: kept")
            other.state.set("secret", "b", "theirs: " + rich_store.LARGE)

        run.step(both, name="both")
    with other.run("theirs") as run:
        run.state["diary"] = "theirs: diary"
        run.step(lambda: agent.state.set("own", "c", "mine: " + rich_store.LARGE), name="for the other")
    other.events.append("theirs: event", {})
    agent.export(tmp_path / "x.perdure")
    assert b"theirs" not in decompress_file(tmp_path / "x.perdure") + contents(tmp_path / "x.perdure")
    there = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db", name="child")
    assert there.state.items("own") == agent.state.items("own")
    assert [summary.id for summary in there.runs.list()] == ["mine"]
    assert contents_of(there._engine) == contents_of(agent._engine)
    sound(f"sqlite:///{tmp_path / 'there.db'}")
