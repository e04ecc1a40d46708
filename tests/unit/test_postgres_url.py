"""What a URL of a server says, and what of it is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Agent
from perdure.errors import StoreUnavailable
from perdure.store.postgres.url import hide_password, is_postgres, parse
from tests.unit import child


def test_our_parameters_are_taken_out_and_the_others_go_to_libpq() -> None:
    place = parse(
        "postgres://me:se%40cret@db:5433/work?schema=agents&pool_size=3&sslmode=require&connect_timeout=4"
        "&statement_seconds=2.5&reconnect_seconds=0&prepare=0&listen_url=postgresql://me:other@db:5432/work"
    )
    assert place.target == "postgresql://me:se%40cret@db:5433/work?sslmode=require&connect_timeout=4"
    assert (place.schema, place.pool_size, place.prepare) == ("agents", 3, False)
    assert (place.statement_seconds, place.reconnect_seconds, place.connect_seconds) == (2.5, 0.0, 4.0)
    assert place.listen_url == "postgresql://me:other@db:5432/work"
    assert "cret" not in place.shown
    assert "other" not in place.shown


def test_a_local_socket_keeps_its_slashes() -> None:
    assert parse("postgresql:///work").target == "postgresql:///work"
    assert parse("postgresql://me@/work?host=/run/pg&schema=s").target == "postgresql://me@/work?host=/run/pg"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@db/work",
        "postgresql://me@db/work?password=hush",
        "postgresql://me@db/work?sslpassword=hush",
        "postgresql://db/work?listen_url=postgresql://me:hush@other/work",
        "postgresql://db:5433/work?listen_url=postgresql%3A//me%3Ahush%40other/work",
        "postgresql://me@db/work?password=a&hush",
        "postgresql://me:a/hush@db/work",
        "postgresql://me:hush/a@db/work",
        "postgresql://me:hush?a=hush@db/work",
        "postgresql://me:hush#hush@db/work",
        "postgresql://me:hush@hush@db/work",
        "postgresql://me@corp:hush@db/work",
        "postgresql://me:hush/work",
        "postgresql://me:[hush@db/work",
    ],
)
def test_a_password_is_not_shown(url: str) -> None:
    assert "hush" not in hide_password(url)
    assert "hush" not in repr(Agent("a", store=url))
    assert is_postgres(url)


@pytest.mark.parametrize(
    "url", ["postgresql://me:hush@127.0.0.1:1/work", "postgresql://me@127.0.0.1:1/x?password=hush"]
)
def test_nor_is_it_in_an_error(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached|been unreachable") as caught:
        Agent("a", store=url + ("&" if "?" in url else "?") + "reconnect_seconds=0").runs.list()
    seen: BaseException | None = caught.value
    while seen is not None:
        assert "hush" not in str(seen)
        seen = seen.__cause__


def describe_failure(url: str) -> str:
    """What somebody hears who uses a store there: the error, and all that is behind it."""
    with pytest.raises(StoreUnavailable) as caught:
        Agent("a", store=url).runs.list()
    seen: BaseException | None = caught.value
    told = [caught.value.hint or ""]
    while seen is not None:
        told.append(f"{seen}")
        seen = seen.__cause__ or seen.__context__
    return "\n".join(told)


PASSWORDS = st.text("/?#@:[]%&= \0\t\u2100ZQXJK7", min_size=4, max_size=14)
"""Of letters that are in no word of ours, so that a piece that is found was repeated."""


@given(PASSWORDS)
def test_no_piece_of_a_password_that_is_not_encoded_is_in_an_error(password: str) -> None:
    told = describe_failure(f"postgresql://me:{password}@127.0.0.1:1/work?reconnect_seconds=0")
    pieces = [password[at : at + 4] for at in range(len(password) - 3)]
    assert [piece for piece in pieces if piece in told] == []


@pytest.mark.parametrize("mark", list("/?#@"))
def test_a_password_that_is_not_encoded_is_told_with_what_to_write(mark: str) -> None:
    told = describe_failure(f"postgresql://me:TOP{mark}SECRET@127.0.0.1:1/work")
    assert "postgresql://me@127.0.0.1:1/work is not a valid store URL" in told
    assert "%2F %3F %23 %40" in told


def test_several_hosts_and_their_ports_are_shown() -> None:
    assert hide_password("postgresql://a:1,b:2/work") == "postgresql://a:1,b:2/work"
    assert hide_password("postgresql://me:x@[::1]:2,b/work?schema=s") == "postgresql://me@[::1]:2,b/work?schema=s"
    assert hide_password("postgresql://[::1]:2/work") == "postgresql://[::1]:2/work"


@pytest.mark.parametrize(
    "bad",
    ["schema=", "schema=pg_mine", "schema=" + "x" * 64, "schema=a%00b", "pool_size=0", "pool_size=many",
     "statement_seconds=-1", "reconnect_seconds=nan", "connect_timeout=soon"],
)  # fmt: skip
def test_a_parameter_that_makes_no_sense_is_refused(bad: str) -> None:
    with pytest.raises(StoreUnavailable, match=bad.partition("=")[0]):
        parse(f"postgresql://db/work?{bad}")


@pytest.mark.parametrize("bad", ["db/work?scema=x", "db/wo%zzrk", "[db/work", "db:1,2/work?host=a"])
def test_what_libpq_cannot_read_is_told_without_the_password(bad: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        Agent("a", store=f"postgresql://me:hush@{bad}").runs.list()
    assert "hush" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


def test_perdure_and_its_sqlite_store_do_without_psycopg(tmp_path: Path) -> None:
    code = """
        import sys
        from perdure import Agent
        with Agent("a", store=sys.argv[1]).run("r"):
            pass
        print([name for name in sys.modules if name.startswith("psycopg")])
    """
    assert child.output(code, tmp_path / "p.db") == "[]"


def test_a_missing_package_is_named() -> None:
    code = """
        import sys
        sys.modules["psycopg"] = None
        from perdure import Agent
        from perdure.errors import StoreUnavailable
        try:
            Agent("a", store="postgresql://db/work").runs.list()
        except StoreUnavailable as error:
            print(error.hint)
    """
    assert child.output(code) == 'pip install "perdure[postgres]"'
