"""A role that may use the store but not make one: enough for every day, and a clear word where it is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure import Agent
from perdure.errors import StoreProblem
from tests.postgres.cluster import Cluster

ROLE = "worker"


@pytest.fixture
def role(cluster: Cluster) -> Iterator[str]:
    cluster.execute(f"CREATE ROLE {ROLE} LOGIN")
    cluster.execute("REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
    yield ROLE
    cluster.execute(f"DROP OWNED BY {ROLE}")
    cluster.execute(f"DROP ROLE {ROLE}")


def make_store(url: str) -> None:
    """As whoever may: an agent opens its store when it is first needed."""
    owner = Agent("owner", store=url)
    owner.runs.list()
    owner.close()


def test_a_role_without_ddl_uses_a_schema_that_is_there(cluster: Cluster, schema: str, role: str) -> None:
    make_store(cluster.url(schema))
    cluster.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    cluster.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    agent = Agent("worker", store=cluster.url(schema, user=role))
    with agent.run("errand") as run:
        run.step(lambda: None, id="look")
        run.effect(lambda: None, name="act")
        run.result = "done"
    assert agent.runs.result("errand") == "done"
    agent.close()


def test_a_role_without_ddl_is_told_that_the_schema_is_missing(cluster: Cluster, schema: str, role: str) -> None:
    with pytest.raises(StoreProblem, match=schema) as refused:
        Agent("worker", store=cluster.url(schema, user=role)).runs.list()
    assert "permission" in str(refused.value) or "may not" in str(refused.value)


def test_a_role_without_any_right_is_told_so(cluster: Cluster, schema: str, role: str) -> None:
    make_store(cluster.url(schema))
    with pytest.raises(StoreProblem, match=schema):
        Agent("worker", store=cluster.url(schema, user=role)).runs.list()
