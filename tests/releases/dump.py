"""A store on a server as text: the migrations that made it, and its rows as COPY has them."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from perdure.store.postgres.url import parse
from perdure.store.sql import migrations

ROWS = "-- rows of "
END = "\\."


def dump_store(url: str) -> str:
    """The text of a store."""
    pieces = list(migrations("postgres"))
    with _connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
        for (table,) in tables.fetchall():
            with connection.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(table))) as copy:
                rows = b"".join(bytes(part) for part in copy).decode("utf-8")
            pieces.append(f"{ROWS}{table}\n{rows}{END}\n")
    return "\n".join(pieces)


def load(text: str, url: str) -> None:
    """Put it into a schema that is not there yet."""
    made, *parts = text.split(f"\n{ROWS}")
    schema = sql.Identifier(parse(url).schema)
    with _connect(url) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        connection.execute(made.encode())
        for part in parts:
            table, _, rows = part.partition("\n")
            connection.execute(
                sql.SQL("DELETE FROM {}").format(sql.Identifier(table))
            )  # a migration may have made rows
            with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))) as copy:
                copy.write(rows.partition(END)[0] if rows.startswith(END) else rows.partition(f"\n{END}")[0] + "\n")


def _connect(url: str) -> psycopg.Connection[Any]:
    place = parse(url)
    connection = psycopg.connect(place.target, autocommit=True)
    connection.execute("SELECT set_config('search_path', %s, false)", (place.schema,))
    return connection
