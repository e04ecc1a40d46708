"""docs/operations/postgres.md matches the code: every URL parameter, every limit, every table that roles need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.store import sql
from perdure.store.postgres import pool
from perdure.store.postgres.url import _OURS, ServerAddress, parse
from perdure.values import limits

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operations/postgres.md").read_text("utf-8")
GRANTS = re.findall(r"^GRANT ([A-Z, ]+) ON ([^;]+) TO perdure_worker;$", PAGE, re.M)
"""Rights and tables of every grant to the worker."""


def table_under(heading: str) -> list[list[str]]:
    """The rows of the first table after a heading, without its head."""
    rows = re.search(rf"^## {re.escape(heading)}$.*?^(\|.*?)^$", PAGE, re.M | re.S)
    assert rows is not None, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows[1].strip().splitlines()[2:]]


def test_every_parameter_is_explained_with_its_default() -> None:
    told = {row[0].strip("`"): row[1].strip("`") for row in table_under("The URL")}
    assert told.keys() == set(_OURS)
    place = parse("postgresql:///x")
    for name, default in told.items():
        value = getattr(place, name)
        shown = "1" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
        assert shown == default, name


def test_what_libpq_gets_from_us_is_told() -> None:
    told = PAGE.partition("Of libpq's own parameters")[2].partition("\n\n")[0]
    for name, value in pool.DEFAULTS.items():
        if name.startswith("keepalives"):
            assert re.search(rf"\b{value}\b", told), name
        else:
            assert f"`{name}={value}`" in told, name
    assert f"`connect_timeout={ServerAddress('', '').connect_seconds:g}`" in told


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("connecting", limits.CONNECT_SECONDS_MAX),
        ("a statement", limits.STATEMENT_SECONDS_MAX),
        ("a row that", limits.SERVER_LOCK_SECONDS_MAX),
        ("left open", limits.IDLE_SECONDS_MAX),
        ("from PostgreSQL 17", limits.TRANSACTION_SECONDS_MAX),
        ("the server is away", limits.RECONNECT_SECONDS_MAX),
        ("the first connection", limits.OPEN_SECONDS_MAX),
        ("saying goodbye", limits.LEAVE_SECONDS_MAX),
    ],
)
def test_the_deadlines_are_those_of_the_code(words: str, seconds: float) -> None:
    [row] = [row for row in table_under("Deadlines") if words in row[0]]
    assert row[1].split()[0] == f"{seconds:g}"


def test_leases_last_as_long_as_it_says() -> None:
    assert f"{limits.LEASE_SECONDS:g} seconds after its last heartbeat" in PAGE
    assert f"in use for {limits.LOCK_SECONDS_MAX:g} seconds" in PAGE
    assert limits.WAIT_POLL_SECONDS_MAX == 1, "at least once a second"


def test_every_table_is_granted_or_left_out_on_purpose() -> None:
    made = set(re.findall(r"^CREATE TABLE (\w+)", "\n".join(sql.migrations("postgres")), re.M))
    granted = {name for _, tables in GRANTS for name in re.findall(r"fleet\.(\w+)", tables)}
    # Facts are set by the owner when the store is made; locations are for files; only the owner compacts.
    assert made - granted == {"meta", "store_locations", "state_horizons"}
    assert granted <= made


def test_the_journal_can_only_be_added_to() -> None:
    rights = [rights for rights, tables in GRANTS if re.search(r"fleet\.(journal|seals|streams)\b", tables)]
    assert set(rights) == {"INSERT"}


def test_the_oldest_server_is_the_one_it_names() -> None:
    assert f"PostgreSQL {pool.SERVER_VERSION_MIN // 10000} or later" in PAGE


def test_files_that_it_names_exist() -> None:
    named = set(re.findall(r"\b(?:tests|src|docs)/[\w/]+\.(?:py|sql|md)", PAGE))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
