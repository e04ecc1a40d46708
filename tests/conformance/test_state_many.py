"""Many keys of `agent.state` in one commit: they come out as if each had been set by itself, on either store."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import VersionConflict
from perdure.platform.failpoints import CommitMoment, Site

from .kit import agent_at, check_views, kill_at
from .test_state import LARGE

KEYS = [f"key {number:04} 'ü\\\",{{}}" for number in range(1203)]
"""More than a server is told of by one statement."""


def value_of(number: int) -> Any:
    return LARGE if number == 7 else None if number == 8 else "" if number == 9 else {"number": number}


def test_each_has_its_value_version_and_history(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("many", KEYS[0], "before")
    agent.state.set("many", KEYS[0], "before too")
    agent.state.set("many", KEYS[1], "before")
    agent.state.delete("many", KEYS[1])
    with agent.state.transaction() as t:
        for number, key in enumerate(KEYS):
            t.set("many", key, value_of(number))
    assert agent.state.items("many") == [(key, value_of(number)) for number, key in enumerate(KEYS)]
    assert [agent.state.version("many", key) for key in KEYS[:3]] == [3, 3, 1]
    assert [one.value for one in agent.state.history("many", KEYS[0])] == ["before", "before too", value_of(0)]
    assert [one.version for one in agent.state.history("many", KEYS[-1])] == [1]
    # Each is a change of its namespace, in the order in which the keys were named.
    assert agent.state.at(4 + 40).items("many") == [(key, value_of(number)) for number, key in enumerate(KEYS[:40])]
    check_views(store_url)


def test_what_else_a_transaction_does_is_done_among_them(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.state.transaction() as t:
        for key in KEYS[:100]:
            t.set("a", key, 1)
    with agent.state.transaction() as t:
        for number, key in enumerate(KEYS[:100]):
            if number % 4 == 0:
                t.delete("a", key)
            elif number % 4 == 1:
                t.incr("a", key, number)
            else:
                t.set("a", key, "old")
                t.set("a", key, number, ttl="1h" if number % 4 == 2 else None)
            t.set("b", key, number)
    expected = [(key, number + (number % 4 == 1)) for number, key in enumerate(KEYS[:100]) if number % 4]
    assert agent.state.items("a") == expected
    assert agent.state.items("b") == [(key, number) for number, key in enumerate(KEYS[:100])]
    assert {agent.state.version("a", key) for key, _ in expected} == {2}
    check_views(store_url)


def test_one_that_has_changed_meanwhile_refuses_them_all(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", KEYS[50], "ours")
    with pytest.raises(VersionConflict) as caught, agent.state.transaction() as t:
        t.get("a", KEYS[50])
        for key in KEYS[:100]:
            t.set("a", key, "mine")
        agent.state.set("a", KEYS[50], "theirs")
    assert (caught.value.expected, caught.value.found, caught.value.theirs) == (1, 2, "theirs")
    assert agent.state.items("a") == [(KEYS[50], "theirs")]
    check_views(store_url)


def test_killed_around_the_commit_all_are_there_or_none(store_url: str) -> None:
    def program() -> None:
        with agent_at(store_url).state.transaction() as t:
            for key in KEYS[:100]:
                t.set("a", key, True)

    for moment in CommitMoment:
        kill_at(program, Site.STATE, moment)
        assert len(agent_at(store_url).state.items("a")) == (100 if moment is CommitMoment.AFTER else 0)
    check_views(store_url)
