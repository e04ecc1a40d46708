"""A server that is there and does not let us in, or not do what we want: who has to do what about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure import Agent
from perdure.errors import StoreUnavailable
from perdure.store.postgres.errors import join_lines
from tests.postgres.cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.execute("CREATE ROLE worker LOGIN PASSWORD 'right'")
        cluster.execute("REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
        rules = cluster.data / "pg_hba.conf"
        rules.write_text("host all worker 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        cluster.execute("SELECT pg_reload_conf()")
        yield cluster


def refusal(url: str) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as caught:
        Agent("a", store=url).runs.list()
    assert "cannot be reached" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("user", ["worker:WRONG", "worker", "nobody"])
def test_wrong_credentials_are_told_as_such(cluster: Cluster, user: str) -> None:
    error = refusal(cluster.url(tcp=True, user=user))
    assert "refused the login" in str(error)
    assert "~/.pgpass" in str(error.hint)
    assert "WRONG" not in f"{error} {error.hint} {error.__cause__}"


def test_a_missing_database_is_told_with_the_command_that_makes_it(cluster: Cluster) -> None:
    error = refusal(cluster.url().replace("/postgres?", "/agents?"))
    assert "createdb --template=template0 --encoding=UTF8 agents" in str(error.hint)


def test_a_role_that_may_not_make_the_store_is_told_who_does(cluster: Cluster) -> None:
    error = refusal(cluster.url("fleet", user="worker"))
    assert "there is no store in schema fleet of " in str(error)
    assert "this role may not create one" in str(error)
    assert "perdure init" in str(error.hint)


def test_several_lines_become_one() -> None:
    assert join_lines("no  such\n\tfile\n\nis it there?\n") == "no such; file; is it there?"
