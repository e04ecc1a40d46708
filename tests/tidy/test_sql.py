"""SQL is static and named, and both dialects have the same statements."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy import sql_rules
from tests.tidy.source import PRODUCT_FOLDERS, ROOT, Source, expect_none, sources

SQL = ROOT / "src" / "perdure" / "store" / "sql"
DIALECTS = ("sqlite", "postgres")


def statements_of(dialect: str) -> list[sql_rules.Statement]:
    """The statements of a dialect: its own, and those that both word alike."""
    return [*sql_rules.statements_of(SQL / dialect), *sql_rules.statements_of(SQL / "portable")]


def test_sql_is_never_built() -> None:
    folders = [folder for folder in PRODUCT_FOLDERS if folder != "examples"]
    expect_none(c for source in sources(*folders) for c in sql_rules.find_built_sql(source))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_statements_are_named_and_explained(dialect: str) -> None:
    assert sql_rules.statements_of(SQL / dialect), f"{SQL / dialect} defines no statement"
    expect_none(sql_rules.badly_named(statements_of(dialect)))


def test_both_dialects_define_the_same_statements() -> None:
    expect_none(sql_rules.unlike({d: sql_rules.statements_of(SQL / d) for d in DIALECTS}))


def test_statements_that_both_dialects_word_alike_are_written_once() -> None:
    sqlite, postgres = ({s.body.strip() for s in sql_rules.statements_of(SQL / d)} for d in DIALECTS)
    expect_none(f"{body.splitlines()[0]}: move it to store/sql/portable" for body in sorted(sqlite & postgres))


def test_statements_for_many_rows_are_those_for_one() -> None:
    many = sql_rules.statements_of(SQL / "postgres_many")
    expect_none(sql_rules.badly_named(many))
    one = {statement.name: statement.parameters for statement in statements_of("postgres")}
    assert many
    assert {statement.name: statement.parameters for statement in many} == {
        statement.name: one.get(statement.name) for statement in many
    }


def test_statements_of_a_backup_are_named_and_explained() -> None:
    copies = sql_rules.statements_of(SQL / "sqlite_copy")
    assert copies
    expect_none(sql_rules.badly_named(copies))


FILTER = re.compile(r"\(:kind = '' OR .*? :since > :moment\)\)\)\)\)")
"""Which memories pass: SQL is never built, so that every statement that asks for it has a copy."""


def filters_of(text: str) -> list[str]:
    plain = " ".join(re.sub(r"::[a-z]+(?: precision)?", "", text).split())
    return [found.replace("(:about = '' OR m.about = :about) AND ", "") for found in FILTER.findall(plain)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_all_copies_of_the_filter_of_memories_are_the_same(dialect: str) -> None:
    found = filters_of("\n".join((SQL / folder / "queries.sql").read_text() for folder in (dialect, "portable")))
    assert len(set(found)) == 1
    named = [statement for statement in statements_of(dialect) if "min_trust" in statement.parameters]
    assert len(found) == len(named) > 5, "a statement filters memories in words of its own"


BUILT = [
    'db.execute(f"SELECT {x}")',
    'db.execute(f"anything at all {x}", (1,))',
    'db.execute("SELECT %s" % x)',
    'db.execute("SELECT " + x)',
    'db.execute(("SELECT " + "a, ") + x)',
    'db.executemany("SELECT {}".format(x), rows)',
    'db.execute(" ".join(parts))',
    'def f(x):\n    sql = f"SELECT {x}"\n    db.execute(sql)',
    'def f(x):\n    sql = "SELECT 1"\n    sql += x\n    db.execute(sql)',
    'TEXT = f"INSERT INTO a VALUES ({x})"',
    'def f(x):\n    return "DELETE FROM %s" % x',
    'run_it(f"PRAGMA synchronous = {x}")',
]
STATIC = [
    'db.execute("SELECT ?", (x,))',
    'db.execute("SELECT " "?", (x,))',
    "db.execute(numbered(statement), args)",
    'db.execute("SELECT 1 WHERE a = ?", (a + b,))',
    'raise Error(f"Selected {x}")',
    'raise Error(f"UPDATE of {x} failed")',
    'pool.submit(f"name {x}")',
    'db.pragma("synchronous", value)',
]


@pytest.mark.parametrize("text", BUILT)
def test_built_sql_is_noticed(text: str) -> None:
    assert list(sql_rules.find_built_sql(Source("src/perdure/store/x.py", text))) != []


@pytest.mark.parametrize("text", STATIC)
def test_static_sql_is_fine(text: str) -> None:
    assert list(sql_rules.find_built_sql(Source("src/perdure/store/x.py", text))) == []


GOOD = """\
-- name: put(key, value)
-- Why it is there, with 'a quote and :no_parameter.
INSERT INTO t (k, v) VALUES (:key, :value);

-- name: all()
-- To list them.
SELECT k, v::text, ':not_one' FROM t;
"""


def parse_statements(text: str) -> list[sql_rules.Statement]:
    return list(sql_rules.statements("queries.sql", text))


def test_named_statements_are_read() -> None:
    assert [(s.name, s.parameters, s.place) for s in parse_statements(GOOD)] == [
        ("put", ("key", "value"), "queries.sql:1"),
        ("all", (), "queries.sql:5"),
    ]
    assert list(sql_rules.badly_named(parse_statements(GOOD))) == []


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (GOOD.replace("put(key, value)", "put"), "a header is"),
        (GOOD.replace("put(key, value)", "put(key)"), "`value` is only"),
        (GOOD.replace(":value", ":valeu"), "`valeu` is only"),
        (GOOD.replace("-- To list them.\n", ""), "says why"),
        (GOOD + GOOD[: GOOD.index("\n\n")], "defined twice"),
    ],
)
def test_bad_names_are_noticed(bad: str, complaint: str) -> None:
    assert complaint in "\n".join(sql_rules.badly_named(parse_statements(bad)))


def test_dialects_that_differ_are_noticed(tmp_path: Path) -> None:
    for dialect in DIALECTS:
        (tmp_path / dialect).mkdir()
        (tmp_path / dialect / "queries.sql").write_text(GOOD)

    def complaints() -> list[str]:
        return list(sql_rules.unlike({d: sql_rules.statements_of(tmp_path / d) for d in DIALECTS}))

    assert complaints() == []
    (tmp_path / "postgres" / "queries.sql").write_text(GOOD.replace("put(key, value)", "put(value, key)"))
    assert len(complaints()) == 1
    (tmp_path / "postgres" / "queries.sql").write_text(GOOD[: GOOD.index("-- name: all")])
    assert complaints() == ["postgres: all is not defined"]
