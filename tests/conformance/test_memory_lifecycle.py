"""What becomes of memories: undone with their source, consolidated, let go by rules; trust never rises on the way."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure import AsyncAgent
from perdure.values.clock import SystemClock

from .kit import agent_at, check_views

DAY = timedelta(days=1)


class Later(SystemClock):
    """A clock that is ahead."""

    days = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.days * 86_400_000


def test_what_came_from_a_bad_source_is_undone(store_url: str) -> None:
    memory = agent_at(store_url).memory
    true = memory.remember("The bank is at Main Street 1", about="bank", source="handbook")
    false = memory.remember("The bank is at Evil Street 2", about="bank", source="web", supersedes=true)
    both = memory.remember("The bank opens at nine", about="bank", source="web")
    memory.remember("The bank opens at nine!", about="bank", source="handbook")
    memory.remember("The bank opens at nine", about="bank")  # nobody's word
    repeated = memory.remember("The bank has a blue door", about="bank", source="handbook")
    memory.remember("The bank has a blue door", about="bank", source="web")
    made = memory.remember("Go to Evil Street", derived_from=false)
    deeper = memory.remember("Routes: Evil Street", derived_from=made)
    report = memory.rollback(source="web", by="ann")
    assert set(report.withdrawn) == {false.id, both.id, made.id, deeper.id}
    assert (set(report.derived), report.restored) == ({made.id, deeper.id}, (true.id,))
    now = {item.text: item for item in memory.list()}
    assert set(now) == {true.text, both.text, repeated.text}
    assert (now[both.text].source, now[both.text].id in report.kept) == ("handbook", True)
    assert (now[repeated.text].count, now[true.text].current) == (1, True)
    assert memory.recall("evil") == memory.list(about="bank", as_of=datetime.now(UTC), source="web") == []
    assert [item.withdrawn for item in memory.history("bank") if item.source == "web"] == [True, True]
    assert not memory.rollback(source="web")
    with pytest.raises(TypeError, match="rollback needs"):
        memory.rollback()
    check_views(store_url)


def test_since_when_a_source_is_bad(store_url: str) -> None:
    memory = agent_at(store_url).memory
    memory.remember("Good old word", source="web")
    since = datetime.now(UTC) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= since:
        pass
    bad = memory.remember("Bad new word", source="web")
    assert memory.rollback(source="web", since=since).withdrawn == (bad.id,)
    assert [item.text for item in memory.list()] == ["Good old word"]


def test_episodes_become_facts_with_links_and_no_more_trust(store_url: str) -> None:
    memory = agent_at(store_url).memory
    old = datetime(2026, 5, 4, tzinfo=UTC)  # a Monday
    said = ["Alice asked for the train to Oslo", "Alice asked for a window seat", "It rained", "Alice thanked us"]
    episodes = memory.remember_all(
        [{"text": text, "valid_from": old + n * DAY, "trust": 1 - n / 10} for n, text in enumerate(said)],
        kind="episodic",
        user="alice",
    )
    memory.remember("Next week", kind="episodic", user="alice", valid_from=old + 7 * DAY)
    fresh = memory.remember("Just now", kind="episodic", user="alice", valid_from=datetime.now(UTC) - DAY)
    first, second = memory.consolidate()
    assert (first.kind, first.user, first.source) == ("semantic", "alice", "consolidation")
    assert set(first.derived_from) == {item.id for item in episodes}
    assert (first.trust, first.valid_from) == (0.7, old)
    assert set(first.text.splitlines()) < set(said)
    assert second.text == "Next week"
    assert memory.consolidate() == []
    assert memory.get(fresh.id).current
    assert memory.rollback(source="consolidation").count == 2
    asked: list[list[str]] = []
    more = memory.consolidate(lambda texts: asked.append(texts) or ["one", "two"], older_than="1h", user="alice")
    assert (asked, [item.text for item in more]) == ([["Just now"]], ["one", "two"])
    with pytest.raises(TypeError, match="summarise="):
        memory.remember("And one more", kind="episodic", valid_from="2026-01-01")
        memory.consolidate(lambda texts: 7, older_than="1h")
    check_views(store_url)


def test_the_other_face_awaits(store_url: str) -> None:
    async def main() -> None:
        agent = AsyncAgent("tester", store=store_url)
        await agent.memory.remember("It rained", kind="episodic", valid_from="2026-01-01")

        async def summarise(texts: list[str]) -> str:
            await asyncio.sleep(0)
            return f"weather: {texts}"

        [made] = await agent.memory.consolidate(summarise)
        assert made.text == "weather: ['It rained']"
        assert (await agent.memory.rollback(source="consolidation")).count == 1
        assert (await agent.memory.forget(made)).count == 1
        await agent.close()

    asyncio.run(main())


def test_rules_let_the_least_worthy_go_archived_first(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_at(store_url)
    clock = Later()
    monkeypatch.setattr(agent._engine.store, "clock", clock)
    memory = agent.memory
    for n, importance in enumerate((0.2, 0.4, 0.6, 0.8, 1.0)):
        memory.remember(f"Fact number {n}", importance=importance, about=f"f{n}")
    memory.remember("Soon gone", ttl="1d")
    memory.remember("It happened", kind="episodic")
    for _ in range(8):
        assert memory.recall("fact number 0", k=1)[0].text == "Fact number 0"
    memory.retain("semantic", max_items=3)
    memory.retain("episodic", keep_days=30)
    assert [(item.kind, item.keep_days, item.max_items) for item in memory.retention()] == [
        ("episodic", 30, None),
        ("semantic", None, 3),
    ]
    clock.days = 2
    assert agent.gc(dry_run=True).memories.count == 2
    report = agent.gc()
    assert (report.memories.count, len(report.archives)) == (2, 1)
    # Of importance 1 is beside the number; what was asked for again and again is worth more than what is important.
    assert sorted(item.text[-1] for item in memory.list(kind="semantic")) == ["0", "2", "3", "4"]
    assert memory.get(memory.list(about="f0")[0].id).uses == 8
    with open(report.archives[0], encoding="utf-8") as file:
        assert ["Fact number 1" in line for line in file] == [True]
    clock.days = 40
    assert agent.gc().memories.count == 1
    assert memory.list(kind="episodic", all=True) == []
    memory.retain("semantic")
    assert [item.kind for item in memory.retention()] == ["episodic"]
    # An archive is told of, and is no place to hide from `everywhere`.
    again = memory.remember("Fact number 1", about="f1")
    [trace] = memory.forget(again).elsewhere
    assert (trace.kind, trace.what) == ("archive", report.archives[0])
    again = memory.remember("Fact number 1", about="f1")
    assert [trace.kind for trace in memory.forget(again, everywhere=True).erased] == ["archive"]
    check_views(store_url)


def test_a_filter_means_what_is_only_in_an_archive(store_url: str) -> None:
    agent, other = agent_at(store_url), agent_at(store_url, "other")
    for to, one in (("me", agent), ("them", other)):
        for user in ("zed", "ann"):
            told = [{"text": f"{user} said {n} to {to}", "source": "mail", "tags": ["a", f"t{n}"]} for n in range(2)]
            one.memory.remember_all([*told, f"{user}!"], kind="episodic", user=user, about=f"of {user}")
        one.memory.remember("Nobody in particular", kind="episodic", importance=0.9)
        one.memory.retain("episodic", max_items=1)
    [own], [others] = agent.gc().archives, other.gc().archives
    untouched = Path(others).read_bytes()
    listed = agent.memory.forget(user="zed")
    assert (listed.count, [(memory.kind, memory.what) for memory in listed.elsewhere], listed.erased) == (
        0,
        [("archive", own)],
        (),
    )
    assert (lines_of(own), bool(listed)) == (6, False)
    for wanted, left in (
        ({"user": "zed", "about": "of ann"}, 6),
        ({"user": "zed", "source": "web"}, 6),
        ({"user": "zed", "tags": ("a", "t1")}, 5),
        ({"user": "zed"}, 3),  # also a text that is too short to be looked for
        ({"about": "of ann", "source": "mail"}, 1),
    ):
        report = agent.memory.forget(**wanted, everywhere=True)
        erased = [memory.what for memory in report.erased]
        assert (lines_of(own), erased) == (left, [own] if report else []), wanted
    assert agent.memory.forget(about="of ann", everywhere=True)
    assert not os.path.exists(own)
    assert not agent.memory.forget(user="zed", everywhere=True).elsewhere
    assert Path(others).read_bytes() == untouched  # what another agent knows of zed is its own
    check_views(store_url)


def lines_of(path: str) -> int:
    return len(Path(path).read_bytes().splitlines())
