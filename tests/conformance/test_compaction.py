"""Old entries go into archives, and everything that can still be asked has the same answer as before."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.errors import ArchiveDamaged, HistoryCompacted, RunCompacted, RunFinished
from perdure.journal import anchor as anchors
from perdure.journal import archive, keys, rebuild
from perdure.journal.verify import verify
from perdure.journal.verify_report import FindingKind
from perdure.platform.failpoints import CommitMoment, Site

from .kit import Behind, WallClock, agent_at, check_views, kill_at, run_children
from .test_checkpoints import noise

AT_ONCE = 1e-6
"""An age that everything has."""


def compact_agent(agent: Agent, folder: Path, age: Any = AT_ONCE) -> Any:
    time.sleep(0.005)
    return agent.gc(compact_before=age, archive=folder)


def finish(agent: Agent, name: str, steps: int = 8) -> None:
    with agent.run(name, input={"name": name}) as run:
        for number in range(steps):
            run.step(lambda number=number: noise(number, 300), name=f"step {number}")
            run.state[f"k{number % 3}"] = number
            run.messages.append(noise(number, 100))
        run.result = {"name": name, "large": noise(1, 6000)}


# -- a random story, and a model of it --------------------------------------------------------------------------------


class Story:
    """Does at random what agents do, and knows what must come out."""

    def __init__(self, store_url: str, folder: Path, seed: int) -> None:
        self.url, self.folder, self.chance = store_url, folder, random.Random(seed)
        self.agent = agent_at(store_url)
        self.state: dict[tuple[str, str], Any] = {}
        self.versions: dict[tuple[str, str], int] = {}
        self.checkpoints: dict[tuple[str, int], Any] = {}
        self.last: dict[str, int] = {}
        self.artifacts: dict[int, bytes] = {}
        self.saved = 0
        self.noted: list[Any] = []
        self.runs: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.spent: dict[str, Any] = {}

    def go_on(self) -> None:
        acts = [self.set, self.set, self.set, self.delete, self.snapshot, self.drop, self.work, self.fail, self.leave]
        acts += [self.save, self.unsave, self.note]
        for _ in range(14):
            self.chance.choice(acts)()

    def set(self) -> None:
        place, value = (self.chance.choice("ab"), self.chance.choice("xyz")), noise(self.chance.randrange(99), 200)
        self.versions[place] = self.versions.get(place, 0) + 1
        assert self.agent.state.set(*place, value) == self.versions[place]
        self.state[place] = value

    def delete(self) -> None:
        if self.state:
            place = self.chance.choice(sorted(self.state))
            del self.state[place]
            self.versions[place] += 1
            assert self.agent.state.delete(*place)

    def make(self, name: str, value: Any) -> int:
        version = self.last[name] = self.last.get(name, 0) + 1
        self.checkpoints[name, version] = value
        kept = sorted(which for which in self.checkpoints if which[0] == name)[-2:]
        self.checkpoints = {
            which: checkpoint for which, checkpoint in self.checkpoints.items() if which[0] != name or which in kept
        }
        return version

    def snapshot(self) -> None:
        name, value = self.chance.choice("cd"), [noise(self.chance.randrange(99), 900) for _ in range(6)]
        assert self.agent.checkpoint.create(name, value, keep_last=2) == self.make(name, value)

    def drop(self) -> None:
        if self.checkpoints:
            name, version = self.chance.choice(sorted(self.checkpoints))
            del self.checkpoints[name, version]
            assert self.agent.checkpoint.delete(name, version) == 1

    def note(self) -> None:
        self.noted.append([len(self.noted), noise(2, 300)])
        self.agent.events.append("NOTED", {"what": self.noted[-1]})

    def save(self) -> None:
        self.saved += 1
        self.artifacts[self.saved] = noise(self.saved, 30_000).encode()
        assert self.agent.artifacts.save("model", self.artifacts[self.saved]) == self.saved

    def unsave(self) -> None:
        if self.artifacts:
            version = self.chance.choice(sorted(self.artifacts))
            del self.artifacts[version]
            assert self.agent.artifacts.delete("model", version) == 1

    def work(self) -> None:
        name = f"run {len(self.runs)}"
        place, value, whole = ("a", self.chance.choice("xyz")), noise(len(self.runs), 300), [noise(7, 5000), name]

        def body() -> str:
            self.agent.state.set(*place, value)
            run.usage(model="m", input_tokens=10, cost_usd=0.5)
            return noise(3, 500)

        with self.agent.run(name) as run:
            run.usage(model="m", output_tokens=7, cost_usd=0.25)
            for number in range(self.chance.randrange(1, 6)):
                run.step(lambda: noise(5, 400), name=f"idle {number}")
                run.state["n"] = number
            run.step(body, name="write")
            self.noted.append(name)
            run.event("NOTED", {"what": name})
            run.checkpoint("c", whole, keep_last=2)
            run.result = [name, noise(9, 5000)]
            self.runs[name] = ([name, noise(9, 5000)], dict(run.state))
        self.spent[name] = self.agent.runs.get(name).usage
        self.state[place] = value
        self.versions[place] = self.versions.get(place, 0) + 1
        self.make("c", whole)

    def fail(self) -> None:
        with contextlib.suppress(ValueError), self.agent.run("open") as run:
            run.step(lambda: noise(4, 800), name="paid")
            run.state["seen"] = True
            raise ValueError

    def leave(self) -> None:
        self.agent.close()
        self.agent = agent_at(self.url)

    def compare(self) -> None:
        agent = self.agent
        for ns in "ab":
            assert dict(agent.state.items(ns)) == {k: v for (space, k), v in self.state.items() if space == ns}
            now = agent.state.at(agent.state.revision(ns))
            for key in "xyz":
                assert now.get(ns, key) == self.state.get((ns, key))
                history = agent.state.history(ns, key)
                assert not history or history[-1].version == self.versions[ns, key]
        found = {
            (checkpoint.name, checkpoint.version): agent.checkpoint.restore(checkpoint.name, checkpoint.version)
            for checkpoint in agent.checkpoint.list()
        }
        assert found == self.checkpoints
        assert sorted(map(repr, self.noted)) == sorted(
            repr(event.payload["what"]) for event in agent.events.read(kind="NOTED")
        )
        if self.saved:
            kept = [artifact.version for artifact in agent.artifacts.versions("model")] if self.artifacts else []
            assert {version: agent.artifacts.load("model", version) for version in kept} == self.artifacts
        for name, (result, values) in self.runs.items():
            assert agent.runs.result(name) == result
            info = agent.runs.get(name)
            assert (info.status, info.result, info.state) == ("finished", result, values)
            assert info.usage == self.spent[name]
        assert {run.id for run in agent.runs.list()} >= set(self.runs)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_was_done_is_the_same_after_compaction(store_url: str, tmp_path: Path, seed: int) -> None:
    story, gone = Story(store_url, tmp_path, seed), 0
    for turn in range(4):
        story.go_on()
        report = compact_agent(story.agent, tmp_path, AT_ONCE if turn % 2 else 0.05)
        gone += report.events.count
        story.compare()
        check_views(store_url)
    assert gone > 30
    assert story.agent.gc(dry_run=True).nothing
    rebuild.rebuild(story.agent._engine.store)
    story.compare()
    assert all(archive.check(path).entries for path in tmp_path.glob("*.zst"))
    with contextlib.suppress(ValueError):
        story.fail()
    assert story.agent.runs.get("open").archive == "", "an unfinished run is never compacted"


# -- runs -------------------------------------------------------------------------------------------------------------


def test_a_compacted_run_still_answers_and_says_where_its_steps_are(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    finish(agent, "old")
    time.sleep(0.005)
    told = agent.gc(dry_run=True, compact_before=AT_ONCE)
    report = compact_agent(agent, tmp_path)
    assert told.events == report.events
    assert report.events.count == 24
    assert agent.runs.result("old")["name"] == "old"
    info = agent.runs.get("old")
    assert (info.state, info.messages, info.input) == ({"k0": 6, "k1": 7, "k2": 5}, [], {"name": "old"})
    [path] = report.archives
    assert os.path.basename(path) == info.archive
    assert len(agent.runs.list(status="finished")) == 1
    with agent.run("old") as run:
        assert run.finished
    with pytest.raises(RunCompacted, match=info.archive), agent.run("old") as run:
        run.step(lambda: 1, name="step 0")
    with pytest.raises(RunFinished), agent.run("old") as run:
        run.state["k0"] = 1
    assert agent.gc(dry_run=True, compact_before=AT_ONCE).nothing, "done again, it does nothing"
    assert archive.check(path).entries == 26
    check_views(store_url)


def test_what_is_younger_stays(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    finish(agent, "young")
    agent.state.set("a", "k", 1)
    report = compact_agent(agent, tmp_path, "1h")
    assert (report.events.count, report.archives) == (0, ())
    finish(agent, "young")  # all of it is replayed


# -- state ------------------------------------------------------------------------------------------------------------


def test_the_past_before_the_horizon_is_refused_and_never_half_true(
    store_url: str, tmp_path: Path, clock: WallClock
) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "other", "once")
    for number in range(30):
        agent.state.set("a", "k", noise(number, 200))
    clock.advance(1)
    middle, revision = clock.now(), agent.state.revision("a")
    clock.advance(3600)
    for number in range(30, 40):
        agent.state.set("a", "k", noise(number, 200))
    before = [(version.version, version.value) for version in agent.state.history("a", "k")]
    report = agent.gc(compact_before=3600, archive=tmp_path)
    assert report.events.count >= 29
    assert agent.state.at(middle).get("a", "k") == agent.state.at(revision).get("a", "k") == noise(29, 200)
    assert agent.state.at(middle).get("a", "other") == "once"
    assert [(version.version, version.value) for version in agent.state.history("a", "k")] == before[29:]
    for when in (revision - 1, 1, datetime.fromtimestamp(1, UTC)):
        with pytest.raises(HistoryCompacted, match="'a'"):
            agent.state.at(when).get("a", "k")
    with pytest.raises(HistoryCompacted):
        agent.state.revert(1, ns="a")
    assert agent.state.revert(revision, ns="a") == 1
    check_views(store_url)


def test_compaction_again_forgets_nothing_of_what_it_knew(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    for number in range(20):
        agent.state.set("a", "k", noise(number, 200))
        agent.state.set("b", "k", noise(number, 200))
    assert compact_agent(agent, tmp_path).events.count == 38
    agent.state.set("a", "k", noise(1, 900))
    time.sleep(0.005)
    agent.state.set("a", "k", noise(2, 900))
    assert compact_agent(agent, tmp_path).events.count >= 2
    with pytest.raises(HistoryCompacted):
        agent.state.at(1).get("b", "k")
    check_views(store_url)


def test_a_writer_goes_on_in_another_stream_after_compaction(store_url: str, tmp_path: Path) -> None:
    """Compaction takes the stream of a process that is at work: nothing that it writes is lost or doubled."""
    agent = agent_at(store_url)
    agent.state.set("a", "n", 0)
    gone = 0
    with run_children(lambda: write_on(store_url)) as [pid]:
        while gone <= 20 or len(agent._engine.store.read("all_streams")) <= 4:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the writer lost something"
            gone += compact_agent(agent, tmp_path, 0.02).events.count
    check_views(store_url)


def write_on(store_url: str) -> None:
    """Until it is killed, or finds that a write of its own was lost or doubled."""
    other = agent_at(store_url)
    for number in itertools.count():
        if other.state.incr("a", "n") != number + 1:
            return
        other.state.set("a", "text", noise(number, 300))
        other.events.append("COUNTED", number)


# -- killed, and tampered with ----------------------------------------------------------------------------------------


def test_killed_anywhere_it_is_compacted_or_not(store_url: str, tmp_path: Path) -> None:
    for number, (site, moment) in enumerate(
        (site, moment) for site in (Site.ARCHIVE, Site.COMPACT) for moment in CommitMoment
    ):
        agent = agent_at(store_url)
        name = f"run {number}"
        finish(agent, name, steps=4)
        for turn in range(5):
            agent.state.set("a", "k", [turn, noise(turn, 200)])
        agent.close()
        kill_at(lambda: compact_agent(agent_at(store_url), tmp_path), site, moment, nth=1 + number % 2)
        agent = agent_at(store_url)
        assert agent.runs.result(name)["name"] == name
        assert agent.state.get("a", "k") == [4, noise(4, 200)]
        agent.close()
    check_views(store_url)
    compact_agent(agent_at(store_url), tmp_path)
    agent = agent_at(store_url)
    assert all(item.archive for item in (agent.runs.get(f"run {number}") for number in range(8)))
    assert all(archive.check(path).entries for path in tmp_path.glob("*.zst"))
    check_views(store_url)


def test_tampering_with_what_was_compacted_is_found(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    finish(agent, "old")
    store: Any = agent._engine.store
    stream = agent.runs.get("old").summary.stream
    heads = [anchors.AnchoredHead(number, seq, link.hex()) for number, seq, link in ends(store)]
    anchor = anchors.make_anchor(store, heads, {})
    row = store.read("journal_entry", (stream, 3))[0]
    compact_agent(agent, tmp_path)
    assert verify(store).ok
    assert [item for item in anchors.compare(store, anchor, {}) if item.severity == "damage"] == []
    last = store.read("last_compaction", (stream,))[0][0]

    def found() -> set[tuple[FindingKind, int]]:
        return {(item.what, item.seq) for item in verify(store).findings if item.severity == "damage"}

    with Behind(store_url) as behind:

        def undone(change: str, number: int, seq: int = 1) -> set[tuple[FindingKind, int]]:
            where, which = behind.entry(stream, seq)
            behind.execute(change.replace("WHERE", f"WHERE {where} AND"), (number, *which) if "?" in change else which)
            return found()

        assert undone("UPDATE journal SET at = at + 1 WHERE true", 0) == {(FindingKind.EDITED, 1)}
        assert undone("UPDATE journal SET at = at - 1 WHERE true", 0) == set()
        assert undone("UPDATE journal SET digest = chain WHERE true", 0) == {(FindingKind.EDITED, 1)}
        assert undone("UPDATE journal SET digest = NULL WHERE true", 0) == set()
        assert undone("UPDATE journal SET at = at + 1 WHERE true", 0, last) >= {(FindingKind.EDITED, last)}
        assert undone("UPDATE journal SET at = at - 1 WHERE true", 0, last) == set()
        place, numbers = behind.entry(stream, 3)
        columns, marks = ("stream, seq", "?, ?") if "stream" in place else ("id", "?")
        text = f"INSERT INTO journal ({columns}, kind, at, body, chain) VALUES ({marks}, ?, ?, ?, ?)"
        behind.execute(text, (*numbers, *row[1:5]))
        assert found() == {(FindingKind.ADDED, 3)}
        behind.execute(f"DELETE FROM journal WHERE {place}", numbers)
        behind.execute("DELETE FROM seals WHERE stream = ? AND seq = ?", (stream, last))
        assert found() == {(FindingKind.SEAL, last)}, "what was signed is compacted only by who has the key"
        first, numbers = behind.entry(stream, 1)
        behind.execute(f"DELETE FROM journal WHERE {first}", numbers)
        assert (FindingKind.REMOVED, 1) in found()


def ends(store: Any) -> list[tuple[int, int, bytes]]:
    return [(number, *store.read("head_of", (number,))[0]) for number, seq in store.read("stream_heads") if seq]


def test_without_the_key_nothing_is_compacted(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    finish(agent, "old")
    folder = keys.folder_of(agent._engine.store)
    agent.close()
    assert folder is not None
    shutil.rmtree(folder)
    report = compact_agent(agent_at(store_url), tmp_path)
    assert (report.events.count, len(report.notes)) == (0, 1)
    assert "its key is not here" in report.notes[0]


def test_a_damaged_archive_is_told(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    finish(agent, "old")
    [path] = [Path(item) for item in compact_agent(agent, tmp_path).archives]
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-9], b"", b"nothing", whole[:200] + b"\0" + whole[201:]):
        path.write_bytes(damaged)
        with pytest.raises(ArchiveDamaged):
            archive.check(path)
    import zstandard

    text = zstandard.ZstdDecompressor().decompressobj().decompress(whole)
    path.write_bytes(zstandard.ZstdCompressor().compress(text.replace(b'"kind":7', b'"kind":8', 1)))
    with pytest.raises(ArchiveDamaged):
        archive.check(path)
    path.write_bytes(whole)
    assert archive.check(path).header.name == "tester/old"
