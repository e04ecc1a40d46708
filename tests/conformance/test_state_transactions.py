"""What a transaction of `agent.state` can read and ask for."""

from __future__ import annotations

import pytest

from perdure import AsyncAgent
from perdure.errors import NotDurable, VersionConflict

from .kit import agent_at, check_views


def test_a_transaction_reads_all_keys_with_its_own_writes(store_url: str) -> None:
    agent = agent_at(store_url)
    for key in "abc":
        agent.state.set("n", key, key.upper())
    with agent.state.transaction() as t:
        t.set("n", "d", "D")
        t.delete("n", "a")
        t.update("n", "b", str.lower)
        assert t.items("n") == [("b", "b"), ("c", "C"), ("d", "D")]
        assert t.items("n", after="b", limit=1) == [("c", "C")]
        assert t.items("empty") == []
        assert agent.state.items("n") == [("a", "A"), ("b", "B"), ("c", "C")]
    assert agent.state.items("n") == [("b", "b"), ("c", "C"), ("d", "D")]
    with pytest.raises(NotDurable, match="not open"):
        t.items("n")
    check_views(store_url)


@pytest.mark.parametrize("theirs", ["a", "new"])
def test_a_transaction_that_read_a_namespace_is_refused_when_it_changed(store_url: str, theirs: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("n", "a", 1)
    with pytest.raises(VersionConflict, match="'n' has changed"), agent.state.transaction() as t:
        t.set("sums", "n", sum(value for _, value in t.items("n")))
        agent.state.set("n", theirs, 10)
        assert len(t.items("n")) == len({"a", theirs})
    assert agent.state.items("sums") == []
    with agent.state.transaction() as t:
        t.set("n", "sum", sum(value for _, value in t.items("n")))
        agent.state.set("elsewhere", "k", 1)
    assert agent.state.get("n", "sum") == (10 if theirs == "a" else 11)
    with agent.run("r") as run:  # in a step it lands with it, and is asked then
        run.step(lambda: _sum_up(agent), name="s")
    assert agent.state.get("n", "twice") == 2 * (20 if theirs == "a" else 22)
    check_views(store_url)


def _sum_up(agent: object) -> None:
    with agent.state.transaction() as t:  # type: ignore[attr-defined]
        t.set("n", "twice", 2 * sum(value for _, value in t.items("n")))


def test_a_transaction_knows_versions_and_requires_them(store_url: str) -> None:
    agent = agent_at(store_url)
    version = agent.state.set("n", "a", 1)
    with agent.state.transaction() as t:
        assert (t.version("n", "a"), t.version("n", "none")) == (version, 0)
        t.set("n", "a", 2, if_version=version)
        t.set("n", "b", 1, if_version=0)
        assert t.version("n", "a") == version + 1
    with pytest.raises(VersionConflict) as lost, agent.state.transaction() as t:
        t.set("n", "c", 1)
        t.set("n", "a", 3, if_version=version)
    assert (lost.value.expected, lost.value.found, lost.value.yours, lost.value.theirs) == (1, 2, 3, 2)
    with pytest.raises(VersionConflict), agent.state.transaction() as t:
        t.delete("n", "b", if_version=7)
    with pytest.raises(VersionConflict), agent.state.transaction() as t:
        t.set("n", "c", t.version("n", "a"))
        agent.state.set("n", "a", 4)
    assert agent.state.items("n") == [("a", 4), ("b", 1)]
    check_views(store_url)


async def test_the_asynchronous_side_is_the_same(store_url: str) -> None:
    agent = AsyncAgent("async", store=store_url)
    await agent.state.set("n", "a", 1)
    async with agent.state.transaction() as t:
        await t.set("n", "b", 2, if_version=0)
        assert await t.items("n") == [("a", 1), ("b", 2)]
        assert await t.version("n", "a") == 1
    with pytest.raises(VersionConflict):
        async with agent.state.transaction() as t:
            await t.set("n", "c", len(await t.items("n")))
            await agent.state.set("n", "d", 1)
    assert [key for key, _ in await agent.state.items("n")] == ["a", "b", "d"]
    await agent.close()
