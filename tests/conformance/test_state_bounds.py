"""Numbers and times of `agent.state` that cannot be: refused in words, alike in every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from perdure.data import namespaces

from .kit import agent_at


def test_what_has_not_been_is_refused(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(ValueError, match=r"at\(1\): namespace 'a' is at revision 0"):
        agent.state.at(1).items("a")
    agent.state.set("a", "x", 1)
    agent.state.set("b", "x", 1)
    for number in (2, 10**30):
        for use in (
            lambda number: agent.state.at(number).get("a", "x"),
            lambda number: agent.state.at(number).items("a"),
            lambda number: agent.state.revert(number, ns="a"),
        ):
            with pytest.raises(ValueError, match=rf"(at|revert)\({number}\): .*is at revision 1"):
                use(number)
    for when in (datetime(1, 1, 1), datetime.max):
        if not _known_here(when):
            with pytest.raises(ValueError, match=r"at\(datetime"):
                agent.state.at(when).items("a")
            with pytest.raises(ValueError, match=r"revert\(datetime"):
                agent.state.revert(when)
    assert agent.state.at(datetime.min.replace(tzinfo=UTC)).items("a") == []
    assert agent.state.at(datetime.max.replace(tzinfo=UTC)).items("a") == [("x", 1)]
    assert agent.state.revert(datetime.max.replace(tzinfo=UTC)) == 0
    assert agent.state.items("a") == [("x", 1)]


def _known_here(when: datetime) -> bool:
    try:
        when.timestamp()
    except (OverflowError, OSError, ValueError):
        return False
    return True


def test_more_than_a_store_can_count_is_all(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "x", 1)
    found = namespaces.keys_below(agent._engine, namespaces.NamespaceTree("a"), None, 0, 10**30)
    assert [item.key for item in found] == ["x"]
    assert namespaces.keys_below(agent._engine, namespaces.NamespaceTree("a"), None, 10**30, 10**30) == []
    assert [
        item.key
        for item in namespaces.keys_below(agent._engine, namespaces.NamespaceTree("a"), lambda item: True, 0, 10**30)
    ] == ["x"]


def test_a_time_to_live_ends(store_url: str) -> None:
    agent = agent_at(store_url)
    for ttl in (1e300, 1e15, "99999999999999d", timedelta.max):
        for use in (
            lambda ttl: agent.state.set("a", "x", 1, ttl=ttl),
            lambda ttl: agent.state.incr("a", "x", ttl=ttl),
            lambda ttl: agent.state.update("a", "x", lambda value: 1, ttl=ttl),
        ):
            with pytest.raises(ValueError, match="ttl="):
                use(ttl)
    assert agent.state.items("a") == []
