"""Files of others: what is planted in a store, what a string names, what read-only media hold."""

from __future__ import annotations

from tests.mutations.mutant import mutant

PLANTED = "unit/test_hostile_file.py::"
NAMED = "unit/test_store_address.py::"
READING = "unit/test_read_only.py::"

MUTANTS = (
    mutant(
        "trigger-accepted",
        "a trigger in a store file is not noticed",
        PLANTED + "test_what_is_planted_in_a_store_file_is_refused_by_name",
        "perdure.store.sqlite.schema_guard:_differences",
        ('kind not in ("table", "index")', 'kind == "view"'),
    ),
    mutant(
        "view-accepted",
        "a view in a store file is not noticed",
        PLANTED + "test_what_is_planted_in_a_store_file_is_refused_by_name",
        "perdure.store.sqlite.schema_guard:_differences",
        ('kind not in ("table", "index")', 'kind == "trigger"'),
    ),
    mutant(
        "changed-table-accepted",
        "a table with another definition passes for ours",
        PLANTED + "test_what_is_planted_in_a_store_file_is_refused_by_name",
        "perdure.store.sqlite.schema_guard:_differences",
        ("left.get(name.lower()) == row", "name.lower() in left"),
    ),
    mutant(
        "planted-trigger-runs",
        "a trigger that is planted while a store is open changes what is stored",
        PLANTED + "test_a_trigger_that_is_planted_in_an_open_store_does_not_run",
        "perdure.store.sqlite.schema_guard:SETTINGS",
        ("(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)", ""),
    ),
    mutant(
        "not-defensive",
        "SQL of a connection can damage the schema of a store",
        PLANTED + "test_every_connection_is_defensive",
        "perdure.store.sqlite.schema_guard:SETTINGS",
        ("(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)", ""),
    ),
    mutant(
        "refusal-changes-the-file",
        "refusing a file checkpoints its log into it",
        PLANTED + "test_a_log_with_something_planted_is_left_as_it_is",
        "perdure.store.sqlite.schema_guard:_leave_log",
        ("connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)", "pass"),
    ),
    mutant(
        "endless-file-hangs",
        "a command reads a file whose pages go round in circles for ever",
        PLANTED + "test_a_file_without_end_ends_in_an_error",
        "perdure.store.sqlite.work_limits:StatementBounds._is_over",
        ("return self._looks < 0", "return False"),
        hangs=True,
    ),
    mutant(
        "url-like-text-is-a-file",
        "a mistyped URL makes a file of that name",
        NAMED + "test_what_looks_like_a_url_and_is_none_is_refused",
        "perdure.store.address:_address_of_plain_path",
        ("(scheme := _SCHEME.match(text))", "(scheme := _SCHEME.match(text)) and False"),
    ),
    mutant(
        "refused-url-shows-its-password",
        "the refusal of a mistyped URL shows the password in it",
        NAMED + "test_what_looks_like_a_url_and_is_none_is_refused",
        "perdure.store.address:_address_of_plain_path",
        (
            'f"{scheme[1]}: without slashes is neither a URL nor a path"',
            'f"{text}: without slashes is neither a URL nor a path"',
        ),
    ),
    mutant(
        "any-folder-is-made",
        "a mistyped path makes folders",
        NAMED + "test_a_folder_that_is_not_there_is_not_made",
        "perdure.store.sqlite.file:refuse_place",
        ("not own_folder and not os.path.isdir(folder)", "False"),
    ),
    mutant(
        "read-only-ignores-the-log",
        "on read-only media the commits in the log are not shown",
        READING + "test_commands_that_look_work_and_say_that_it_is_read_only",
        "perdure.store.sqlite.read_only:find_read_mode",
        ('_size(f"{path}-wal") > LOG_HEADER_BYTES or _size(f"{path}-journal")', '_size(f"{path}-journal")'),
    ),
    mutant(
        "read-only-copy-is-written",
        "what is written to the copy of a read-only store is acknowledged, and lost",
        READING + "test_an_agent_reads_and_is_refused_when_it_writes",
        "perdure.store.sqlite.file:connect_to_read",
        ('found.pragma("query_only", 1)', "pass"),
    ),
    mutant(
        "words-indexed-twice",
        "a piece of a memory that was there already is indexed once more",
        "unit/test_lexical_index.py::test_the_words_of_a_piece_come_and_go_with_it_once",
        "perdure.store.sql.sqlite.queries:put_chunk_words",
        ("WHERE changes() = 1 AND id = last_insert_rowid()", "WHERE id = last_insert_rowid()"),
    ),
)
