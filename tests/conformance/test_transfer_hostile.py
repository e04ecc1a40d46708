"""Agent files are hostile until proven: what is not signed, or not the agent's own, is refused and leaves nothing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Agent, AsyncAgent
from perdure import records as r
from perdure.cli.main import main
from perdure.errors import ExportDamaged, ExportUnsigned, StoreMovedWarning, StoreUnavailable, WrongPassphrase
from perdure.journal.keys import SigningKey
from perdure.transfer import file_format
from perdure.transfer.locked_key import unlock

from . import rich_store
from .forged_files import Forger, dump, replace
from .test_transfer import sound

STRANGER = SigningKey(bytes(range(32)))
OPEN: dict[str, Any] = {"passphrase": "right"}


def export_agent(url: str, path: Path, **more: Any) -> Path:
    """An agent that has paid once, in a file."""
    agent = Agent("agent", store=url)
    agent.state.set("bank", "balance", 10)
    with agent.run("pay") as run:
        run.step(lambda: "paid 10", name="pay")
    agent.export(path, **more)
    return path


def richer(forger: Forger) -> Forger:
    """A changed value of state, as somebody without a key would change it."""

    def edit(record: r.Landed) -> r.Landed:
        [change] = record.landed
        return r.Landed((replace(change, value=change.value[:1] + b"\x7f"),))

    return forger.change(r.Landed, edit)


# -- who wrote the file -----------------------------------------------------------------------------------------------


async def test_a_forged_move_is_never_signed_by_the_key_inside_it(store_url: str, tmp_path: Path) -> None:
    path = export_agent(
        f"sqlite:///{tmp_path / 'home.db'}", tmp_path / "x.perdure", move=True, private_key=True, **OPEN
    )
    forged = richer(Forger(path)).write_file()
    Agent("other", store=store_url).state.set("a", "b", 1)
    before = dump(store_url, tmp_path)
    for accept in (False, True):
        with pytest.raises(ExportUnsigned, match="private key"):
            Agent.import_from(forged, store=store_url, accept_unsigned=accept, **OPEN)
        with pytest.raises(ExportUnsigned, match="private key"):
            await AsyncAgent.import_from(forged, store=store_url, accept_unsigned=accept, **OPEN)
    (tmp_path / "secret").write_text("right")
    before = {**before, "files": dump(store_url, tmp_path)["files"]}
    asked = ["--accept-unsigned", "--passphrase-file", str(tmp_path / "secret")]
    assert main(["import", str(forged), *asked, "--store", store_url]) == 2
    assert dump(store_url, tmp_path) == before
    assert Agent.import_from(path, store=store_url, **OPEN).state.get("bank", "balance") == 10
    sound(store_url)


async def test_an_unsigned_file_is_imported_only_if_it_is_asked_for_by_name(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = export_agent(f"sqlite:///{tmp_path / 'home.db'}", tmp_path / "x.perdure", move=True)
    forged = richer(Forger(path)).write_file()
    before = dump(store_url, tmp_path)
    with pytest.raises(ExportUnsigned, match="--accept-unsigned"):
        Agent.import_from(forged, store=store_url)
    with pytest.raises(ExportUnsigned, match="accept_unsigned=True"):
        await AsyncAgent.import_from(forged, store=store_url)
    assert main(["import", str(forged), "--store", store_url]) == 2
    capsys.readouterr()
    assert main(["import", str(forged), "--check"]) == 1
    assert "refused: `perdure import` does not accept" in (said := capsys.readouterr().out) and "--accept-uns" in said
    assert main(["import", str(forged), "--check", "--accept-unsigned"]) == 0
    assert {**before, **dump(store_url, tmp_path)} == dump(store_url, tmp_path)
    assert dump(store_url, tmp_path).get("agents", []) == []
    agent = await AsyncAgent.import_from(forged, store=store_url, accept_unsigned=True)
    assert await agent.state.get("bank", "balance") == 127
    assert agent._engine.signer is None, "nobody signs for an agent that nobody has vouched for"


@pytest.mark.parametrize("where", ["file", "environment", "source", "another name"])
def test_where_the_key_is_no_unsigned_file_is_accepted(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    home = store_url if where in ("file", "another name") else f"sqlite:///{tmp_path / 'home.db'}"
    path = export_agent(home, tmp_path / "x.perdure", move=True)
    signer = Agent("agent", store=home)._engine.signer
    assert signer is not None
    seed = signer.seed
    more: dict[str, Any] = {"name": "renamed"} if where == "another name" else {}
    if where == "environment":
        monkeypatch.setenv("PERDURE_KEY", seed.hex())
    if where == "source":
        more["key"] = lambda name: seed
    forged = richer(Forger(path)).write_file()
    Agent("other", store=store_url, key=lambda name: bytes(32)).state.set("a", "b", 1)
    before = dump(store_url, tmp_path)
    with pytest.raises(ExportUnsigned, match="is here"):
        Agent.import_from(forged, store=store_url, accept_unsigned=True, **more)
    assert dump(store_url, tmp_path) == before
    if where in ("environment", "source"):
        with pytest.raises(ExportUnsigned, match="is here"):
            Agent.import_from(forged, store=tmp_path / "new.db", accept_unsigned=True, **more)
        assert not (tmp_path / "new.db").exists()


def test_a_key_opens_in_the_file_that_it_was_locked_for_and_in_no_other(file_url: str, tmp_path: Path) -> None:
    path = export_agent(file_url, tmp_path / "x.perdure", private_key=True, **OPEN)
    agent = Agent("agent", store=file_url)
    signer = agent._engine.signer
    assert signer is not None
    agent.state.set("bank", "balance", 20)
    agent.export(tmp_path / "y.perdure", move=True, private_key=True, **OPEN)
    older, newer = Forger(path), Forger(tmp_path / "y.perdure")
    assert older.key is not None and newer.key is not None
    assert unlock(newer.key, "right", signer.public_key).seed == signer.seed
    newer.lines[newer.lines.index(newer.key)] = older.key
    transplanted = newer.write_file(signer=signer, rechain=False)
    with pytest.raises(WrongPassphrase):
        Agent.import_from(transplanted, store=tmp_path / "there.db", **OPEN)
    stolen = Forger(path).write_file(signer=STRANGER)
    with pytest.raises(WrongPassphrase):
        Agent.import_from(stolen, store=tmp_path / "there.db", **OPEN)
    assert not (tmp_path / "there.db").exists()


def test_the_cost_of_a_locked_key_is_not_the_files_to_choose(file_url: str, tmp_path: Path) -> None:
    key = Forger(export_agent(file_url, tmp_path / "x.perdure", private_key=True, **OPEN)).key
    assert key is not None
    for cost in (0, 2, 1 << 16, 1 << 62):
        with pytest.raises(WrongPassphrase, match="never writes"):
            unlock(replace(key, cost=cost), "right", bytes(32))


def test_an_agent_signed_by_another_key_takes_no_known_name(file_url: str, tmp_path: Path) -> None:
    path = export_agent(file_url, tmp_path / "x.perdure", move=True)
    Agent("agent", store=tmp_path / "there.db").close()
    keys = tmp_path / "there.db.keys"
    keys.mkdir(exist_ok=True)
    (keys / "agent.key").write_text(bytes(range(1, 33)).hex())
    with pytest.raises(StoreUnavailable, match="another key"):
        Agent.import_from(Forger(path).write_file(signer=STRANGER), store=tmp_path / "there.db")


def edits(forger: Forger) -> Iterator[tuple[str, bytes]]:
    """What can be done to a signed file by who has no key and does not care for the digests either."""

    def plain(found: list[Any]) -> bytes:
        return b"".join(msgspec.json.encode(line) + b"\n" for line in found)

    header, end = forger.header, forger.end
    found = [header, *forger.lines, end]
    yield "nothing left but the ends", plain([header, end])
    yield "two headers", plain([header, *found])
    yield "two ends", plain([*found, end])
    yield "two files", plain(found) + plain(found)
    yield "another name", plain([replace(header, agent="other"), *found[1:]])
    yield "another key", plain([replace(header, public_key=STRANGER.public_key), *found[1:]])
    for name in ("", "a\0b", "x" * 1000):
        yield f"the name {name[:5]!r}", plain([replace(header, agent=name), *found[1:]])
    yield "an older format", plain([replace(header, format="perdure agent 1"), *found[1:]])
    yield "a copy of a move", plain([replace(header, move=False), *found[1:]])
    yield "no signature", plain([*found[:-1], replace(end, signature=b"")])
    yield "another signature", plain([*found[:-1], replace(end, signature=bytes(64))])
    yield "a field more", plain(found).replace(b'"line":"end"', b'"line":"end","more":1')
    yield "a number too large", plain(found).replace(b'"seq":1,', b'"seq":99999999999999999999,')
    key = forger.key
    yield "no key", plain([line for line in found if line is not key])
    yield "the key first", plain([header, key, *(line for line in found[1:] if line is not key)])
    yield "the key twice", plain([*found[:-1], key, end])
    for place in range(1, len(found) - 1):
        yield f"line {place} twice", plain([*found[:place], found[place], *found[place:]])
        yield f"line {place} left out", plain([*found[:place], *found[place + 1 :]])
        yield f"line {place} later", plain([*found[:place], found[place + 1], found[place], *found[place + 2 :]])


def test_whatever_is_done_to_the_lines_of_a_signed_file_it_is_refused(file_url: str, tmp_path: Path) -> None:
    path = export_agent(file_url, tmp_path / "x.perdure", move=True, private_key=True, **OPEN)
    forger = Forger(path)
    for what, data in edits(forger):
        forged = forger.as_file("forged.perdure", data)
        for more in ({"name": "agent"}, {}):
            with pytest.raises((ExportDamaged, ExportUnsigned)):
                Agent.import_from(forged, store=tmp_path / "there.db", accept_unsigned=True, **OPEN, **more)
                pytest.fail(what)
    whole = path.read_bytes()
    for junk in (b"junk", whole, bytes(8)):
        forged.write_bytes(whole + junk)
        with pytest.raises(ExportDamaged):
            Agent.import_from(forged, store=tmp_path / "there.db", **OPEN)
    os.unlink(forged)
    os.mkfifo(forged)
    with pytest.raises(ExportDamaged, match="regular file"):
        Agent.import_from(forged, store=tmp_path / "there.db", **OPEN)
    assert not (tmp_path / "there.db").exists()


# -- whose is what ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of an agent in which everything has happened, and nothing was compacted."""
    folder = tmp_path_factory.mktemp("rich")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreMovedWarning)
        agent = Agent("travel", store=rich_store.copy_to(folder / "rich.db"))
        return Path(agent.export(folder / "travel.perdure").path)


def victim(url: str) -> Agent:
    """Somebody who lives in the store already."""
    agent = Agent("victim", store=url)
    agent.state.set("bank", "balance", 10)
    with agent.run("pay") as run:
        run.step(lambda: "paid", name="pay")
    return agent


Edit = Callable[[Any], Any]
"""What becomes of a record; the same one, if there is nothing to be done to it."""


def each(record: Any, edit: Edit) -> Any:
    """A record with one of the records in it edited, or itself."""
    changed = edit(record)
    if changed is not record:
        return changed
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, tuple):
            for place, part in enumerate(value):
                if isinstance(part, r.Record) and (new := each(part, edit)) is not part:
                    return replace(record, **{name: (*value[:place], new, *value[place + 1 :])})
    return record


def foreign(field: str, value: Any) -> Edit:
    """Another agent's, where a record says whose it is; what names a run that is waited for may be anybody's."""

    def edit(record: Any) -> Any:
        free = isinstance(record, r.WakeCondition | r.CompactionFloor) or field not in record.__struct_fields__
        return record if free or type(getattr(record, field)) is not type(value) else replace(record, **{field: value})

    return edit


def plant_edits(path: Path, edit: Edit) -> Iterator[tuple[str, Path]]:
    """The file once for each kind of record that an edit does something to, signed by a key of its own."""
    done: set[str] = set()
    for place, _, record in Forger(path).records():
        if isinstance(record, r.AgentCreated) or (changed := each(record, edit)) is record:
            continue
        kind = f"{type(record).__name__} {[type(item).__name__ for item in getattr(record, 'landed', ())]}"
        if kind not in done:
            done.add(kind)
            yield kind, Forger(path).put(place, changed).write_file(signer=STRANGER)


@pytest.mark.parametrize(
    ("field", "value", "kinds"),
    [
        ("agent", "victim", {"RunStarted", "Forked"}),
        ("owner", 1, {"Landed", "MemoryKept"}),
        ("stream", 2, {"Answered"}),
    ],
)
def test_nothing_in_a_file_names_another_agent(
    everything: Path, store_url: str, tmp_path: Path, field: str, value: Any, kinds: set[str]
) -> None:
    victim(store_url).close()
    before = dump(store_url, tmp_path)
    own = {line.number for line in Forger(everything).lines if isinstance(line, file_format.ExportStream)}
    wrong = value if isinstance(value, str) else max(own) + 1000
    tried = set()
    for kind, forged in plant_edits(everything, foreign(field, wrong)):
        tried.add(kind.split()[0])
        with pytest.raises(ExportDamaged, match=r"about (another )?agent|does not belong"):
            Agent.import_from(forged, store=store_url)
            pytest.fail(kind)
    assert tried >= kinds
    assert dump(store_url, tmp_path) == before
    sound(store_url)


def test_a_stream_or_an_entry_that_would_be_anothers_is_refused(
    everything: Path, store_url: str, tmp_path: Path
) -> None:
    victim(store_url).close()
    before = dump(store_url, tmp_path)
    for what, edit in STREAMS.items():
        forger = Forger(everything)
        edit(forger)
        with pytest.raises(ExportDamaged):
            Agent.import_from(forger.write_file(signer=STRANGER), store=store_url)
            pytest.fail(what)
    assert dump(store_url, tmp_path) == before


def rename_record(kind: str, name: str) -> Callable[[Forger], None]:
    def edit(forger: Forger) -> None:
        place = next(
            n for n, line in enumerate(forger.lines) if isinstance(line, file_format.ExportStream) and line.kind == kind
        )
        forger.lines[place] = replace(forger.lines[place], name=name)

    return edit


def second_agent(forger: Forger) -> None:
    place, _, _ = next(record for record in forger.records() if isinstance(record[2], r.Landed))
    forger.put(place, r.AgentCreated("travel", STRANGER.public_key))


def far_entry(forger: Forger) -> None:
    """In SQLite the number of an entry is a part of a key: a large one would be in another stream."""
    place = max(n for n, line in enumerate(forger.lines) if isinstance(line, file_format.ExportEntry))
    forger.lines[place] = replace(forger.lines[place], seq=(1 << 32) | 1)


def far_fork(forger: Forger) -> None:
    place, _, record = next(item for item in forger.records() if isinstance(item[2], r.Forked))
    forger.put(place, replace(record, cut=(1 << 32)))


def duplicate_run(forger: Forger) -> None:
    """Two runs of one id, of which the second has the name that goes with it."""
    found = [record for record in forger.records() if isinstance(record[2], r.RunStarted)]
    (_, first, one), (place, second, other) = found[:2]
    forger.put(place, replace(other, run=one.run))  # type: ignore[attr-defined]
    forger.lines[forger.lines.index(second)] = replace(second, name=first.name)


def duplicate_memory(forger: Forger) -> None:
    found = [record for record in forger.records() if isinstance(record[2], r.MemoryKept)]
    forger.put(found[1][0], replace(found[1][2], id=found[0][2].id))  # type: ignore[attr-defined]


def huge_number(forger: Forger) -> None:
    forger.change(r.MemoryKept, lambda record: replace(record, valid_to=(1 << 64) - 1))


def duplicate_stream(forger: Forger) -> None:
    place = max(n for n, line in enumerate(forger.lines) if isinstance(line, file_format.ExportStream))
    forger.lines.insert(place, forger.lines[place])


STREAMS: dict[str, Callable[[Forger], None]] = {
    "a process of another agent": rename_record("process", "victim/process x"),
    "a run of another agent": rename_record("run", "victim/pay"),
    "another run than its first entry says": rename_record("run", "travel/another"),
    "a kind that is none": lambda forger: rename_record("process", "travel/process x")(forger) or _kind(forger),
    "a second agent": second_agent,
    "an entry with the number of another stream's": far_entry,
    "a fork that begins there": far_fork,
    "a run twice": duplicate_run,
    "a memory twice": duplicate_memory,
    "a number beyond 64 bits": huge_number,
    "a stream twice": duplicate_stream,
}


def _kind(forger: Forger) -> None:
    place = next(
        n
        for n, line in enumerate(forger.lines)
        if isinstance(line, file_format.ExportStream) and line.kind == "process"
    )
    forger.lines[place] = replace(forger.lines[place], kind="thread")


def test_a_file_refers_to_nothing_that_others_have_in_the_store(store_url: str, tmp_path: Path) -> None:
    """Ids of objects are in every agent file: whoever has one must not read the value by its id."""
    agent = Agent("victim", store=store_url)
    agent.state.set("secret", "page", rich_store.LARGE)
    theirs = Forger(Path(agent.export(tmp_path / "theirs").path))
    [secret] = [line.id for line in theirs.lines if isinstance(line, file_format.ExportObject)]
    mine = Forger(export_agent(f"sqlite:///{tmp_path / 'home.db'}", tmp_path / "mine"))

    def edit(record: r.Landed) -> r.Landed:
        return r.Landed((replace(record.landed[0], value=b"\x01" + secret),))

    before = dump(store_url, tmp_path)
    forged = mine.change(r.Landed, edit).write_file(signer=STRANGER)
    with pytest.raises(ExportDamaged, match="refers to a large value that is missing"):
        Agent.import_from(forged, store=store_url, name="thief")
    os.unlink(forged)
    assert dump(store_url, tmp_path) == before
