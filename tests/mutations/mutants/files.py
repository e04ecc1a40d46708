"""Files of others: what is planted in a store, what a string names, what read-only media hold."""

from __future__ import annotations

from tests.mutations.mutant import mutant

PLANTED = "unit/test_hostile_file.py::"
SCHEMA = "store/sqlite_schema.py"

OF_FILES = (
    mutant(
        "trigger-accepted",
        "a trigger in a store file is not noticed",
        PLANTED + "test_what_is_planted_in_a_store_file_is_refused_by_name",
        SCHEMA,
        'elif kind not in ("table", "index"):',
        'elif kind == "view":',
    ),
    mutant(
        "view-accepted",
        "a view in a store file is not noticed",
        PLANTED + "test_what_is_planted_in_a_store_file_is_refused_by_name",
        SCHEMA,
        'elif kind not in ("table", "index"):',
        'elif kind == "trigger":',
    ),
    mutant(
        "changed-table-accepted",
        "a table with another definition passes for ours",
        PLANTED + "test_what_is_planted_in_a_store_file_is_refused_by_name",
        SCHEMA,
        "if left.get(name.lower()) == row:",
        "if name.lower() in left:",
    ),
    mutant(
        "planted-trigger-runs",
        "a trigger that is planted while a store is open changes what is stored",
        PLANTED + "test_a_trigger_that_is_planted_in_an_open_store_does_not_run",
        SCHEMA,
        "(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),",
        "",
    ),
    mutant(
        "not-defensive",
        "SQL of a connection can damage the schema of a store",
        PLANTED + "test_every_connection_is_defensive",
        SCHEMA,
        "(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),",
        "",
    ),
    mutant(
        "refusal-changes-the-file",
        "refusing a file folds its log into it",
        PLANTED + "test_a_log_with_something_planted_is_left_as_it_is",
        SCHEMA,
        "connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)",
        "pass",
    ),
    mutant(
        "endless-file-hangs",
        "a command reads a file whose pages go round in circles for ever",
        PLANTED + "test_a_file_without_end_ends_in_an_error",
        "store/sqlite_bounds.py",
        "        return self._looks < 0\n",
        "        return False\n",
        hangs=True,
    ),
    mutant(
        "words-indexed-twice",
        "a piece of a memory that was there already is indexed once more",
        "unit/test_words.py::test_the_words_of_a_piece_come_and_go_with_it_once",
        "store/sql/sqlite/queries.sql",
        "WHERE changes() = 1 AND id = last_insert_rowid()",
        "WHERE id = last_insert_rowid()",
    ),
)
