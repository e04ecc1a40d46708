"""The order of events on a server: nothing appears below what was followed, and it goes on when the store has moved."""

from __future__ import annotations

import psycopg

from perdure import Agent
from perdure.store.postgres.url import parse
from tests.postgres.cluster import Cluster


def test_followers_wait_for_older_transactions_and_readers_do_not(cluster: Cluster, schema: str) -> None:
    agent = Agent("tester", store=cluster.url(schema))
    agent.events.append("N", 1)
    with psycopg.connect(parse(cluster.url(schema)).target) as older:
        older.execute("SELECT pg_current_xact_id()")
        agent.events.append("N", 2)
        assert [event.payload for event in agent.events.read()] == [1, 2]
        assert [event.payload for event in agent.events.follow(since="", timeout=0)] == [1]
        new = agent.events.follow(timeout=0)  # what has not been given to anybody yet is new
        assert agent.events.replay(lambda count, _: count + 1, 0, snapshot="count", version=1, every=1) == 2
        assert len(agent._engine.store.read("all_replay_snapshots")) == 1, "only where nothing can appear any more"
        older.rollback()
    assert [event.payload for event in new] == [2]
    agent.close()


def test_an_older_transaction_that_comes_late_is_not_missed(cluster: Cluster, schema: str) -> None:
    url = cluster.url(schema)
    agent = Agent("tester", store=url)
    agent.events.append("N", "first")
    with psycopg.connect(parse(cluster.url(schema)).target) as late:
        late.execute("SELECT set_config('search_path', %s, false)", (schema,))
        late.execute("SELECT pg_current_xact_id()")
        agent.events.append("N", "second")
        [first] = agent.events.follow(since="", timeout=0)
        # As a commit would that has begun before the second one and ends after it.
        late.execute(
            "INSERT INTO events SELECT owner, base + pg_current_xact_id()::text::bigint, stream, seq, place, run, "
            "'LATE', at FROM events CROSS JOIN arrivals WHERE arrival = (SELECT min(arrival) FROM events)"
        )
        late.commit()
    assert [event.kind for event in agent.events.follow(since=first, timeout=0)] == ["LATE", "N"]
    agent.close()


def test_a_store_that_was_moved_to_a_younger_server_goes_on_behind_its_events(cluster: Cluster, schema: str) -> None:
    url = cluster.url(schema)
    agent = Agent("tester", store=url)
    agent.events.append("N", 1)
    agent.close()
    with psycopg.connect(parse(cluster.url(schema)).target, autocommit=True) as behind:
        behind.execute("SELECT set_config('search_path', %s, false)", (schema,))
        behind.execute("UPDATE events SET arrival = arrival + 1000000")  # as on a server that has counted further
    agent = Agent("tester", store=url)
    [first] = agent.events.follow(since="", timeout=0)
    agent.events.append("N", 2)
    assert [event.payload for event in agent.events.read()] == [1, 2]
    assert [event.payload for event in agent.events.follow(since=first, timeout=0)] == [2]
    agent.close()
