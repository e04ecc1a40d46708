"""The store: what is durable, who hears of failures, what is refused."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

STORES = "unit/test_store.py::"
COMMITS = "unit/test_store_commit.py::"

FORKS = "crash/test_fork.py::"

MUTANTS = (
    mutant(
        "fork-does-not-wait",
        "a process forked while another thread writes hangs for ever when it opens a store",
        FORKS + "test_children_are_born_whole_whatever_other_threads_do",
        "perdure.store.sqlite.fork_safety:_before_fork",
        ("(others := (_inside - {me})) and time.monotonic() < deadline", "(others := set[int]())"),
        hangs=True,
    ),
    mutant(
        "child-keeps-the-parents-connections",
        "what a forked process has committed is lost when its parent closes the store",
        FORKS + "test_what_a_child_commits_outlives_its_parent",
        "perdure.store.sqlite.fork_safety:_after_fork_in_child",
        ("not quiet or not _close_quietly(connection)", "not quiet"),
        Edit(
            "perdure.store.sqlite.watch:StoreWatch.renew",
            "self._guard = guard(self._path)",
            "self._guard = None",
        ),
    ),
    mutant(
        "child-keeps-locks-taken",
        "a process forked while another thread holds a lock hangs before os.fork() has returned there",
        FORKS + "test_a_child_is_born_whole_while_another_thread_holds_every_lock",
        "perdure.values.locks:_free_locks",
        ("made._at_fork_reinit()", "pass"),
        hangs=True,
    ),
    mutant(
        "fork-does-not-wait-for-guards",
        "a forked process closes files of its own that got the number of a file just closed by another thread",
        "unit/test_fork_safety.py::test_a_fork_waits_for_a_thread_that_guards_files",
        "perdure.store.sqlite.file_guard:guard",
        ("with stay_inside(), _registry:\n    ...", "with _registry:\n    ..."),
    ),
    mutant(
        "torn-child-goes-on",
        "a process forked in the middle of a commit waits for a transaction that nobody will end",
        FORKS + "test_a_child_forked_in_the_middle_of_a_commit_may_not_touch_the_file",
        "perdure.store.sqlite.fork_safety:_after_fork_in_child",
        ("_torn = True", ""),
        hangs=True,
    ),
    mutant(
        "never-committed",
        "what was acknowledged is gone after a kill",
        "conformance/test_steps.py::test_after_a_kill_finished_steps_are_not_repeated",
        "perdure.store.sqlite.store:SqliteStore._transact",
        ('execute("COMMIT")', 'execute("ROLLBACK" if batch[0].unit.site == "step.done" else "COMMIT")'),
    ),
    mutant(
        "failed-unit-takes-its-neighbours",
        "one refused write makes those of other runs fail",
        "conformance/test_commits.py::test_a_failed_commit_takes_nothing_with_it_from_its_batch",
        "perdure.store.sqlite.store:SqliteStore._run_ticket",
        ("ticket.error = error", "if not alone: raise\nticket.error = error"),
    ),
    mutant(
        "failed-unit-stays",
        "half of a refused write is committed with its neighbours",
        "conformance/test_commits.py::test_a_failed_commit_takes_nothing_with_it_from_its_batch",
        "perdure.store.sqlite.store:SqliteStore._run_ticket",
        ('self._cursor.execute("ROLLBACK TO unit")', "pass"),
    ),
    mutant(
        "error-of-a-batch-swallowed",
        "a commit that failed counts as done",
        ("conformance/test_tampered_journal.py::test_after_an_io_error_nothing_is_written_before_a_reopen"),
        "perdure.store.group_commit:Committer._settle",
        ("ticket.error = failure", "ticket.result = failure"),
    ),
    mutant(
        "not-fenced-after-an-io-error",
        "the process goes on writing to a file of which it does not know the content",
        ("conformance/test_tampered_journal.py::test_after_an_io_error_nothing_is_written_before_a_reopen"),
        "perdure.store.sqlite.store:SqliteStore._fence",
        ("self.fenced = error", ""),
    ),
    mutant(
        "cancelled-commit-not-awaited",
        "a cancelled task does not know whether its step was recorded",
        "unit/test_committer.py::test_a_cancelled_caller_is_committed_all_the_same",
        "perdure.store.base:wait_shielded",
        ("cancelled = error\non_cancel()", "raise"),
    ),
    mutant(
        "fork-not-noticed",
        "a forked child uses the connection of its parent",
        "conformance/test_runs.py::test_a_forked_child_says_so_and_the_parent_goes_on",
        "perdure.store.base:_after_fork_in_child",
        ("store._abandon()", "pass"),
    ),
    mutant(
        "looking-waits-for-a-turn",
        "nobody can look at a store while a stopped process has its write lock",
        (
            ""
            "unit/test_cli_store_admin.py::test_a_stopped_process_with_the_write_lock_is_named_and_keeps_nobody_from_looking"
        ),
        "perdure.store.sqlite.store:SqliteStore.__init__",
        ("not call_outside_fork(lambda: retry_busy(lambda: is_current(self._writer)))", "True"),
    ),
    mutant(
        "stopped-in-a-commit",
        "a process that crashtest stops keeps the write lock, and whoever takes over waits in vain",
        "unit/test_committer.py::test_at_rest_waits_for_a_commit_that_is_under_way_and_keeps_new_ones_out",
        "perdure.store.group_commit:Committer.quiesce",
        ("still = self._lead.acquire(timeout=seconds)", "still = False"),
    ),
    mutant(
        "not-synced",
        "a power cut takes what was acknowledged",
        COMMITS + "test_a_step_is_one_sync_and_an_effect_two",
        "perdure.store.sqlite.file:SYNCHRONOUS",
        ("2", "1"),
    ),
    mutant(
        "settings-not-in-force",
        "a connection is less durable than it was asked to be",
        STORES + "test_settings_that_durability_depends_on_are_in_force",
        "perdure.store.sqlite.file:SYNCHRONOUS",
        ("2", "1"),
    ),
    mutant(
        "every-search-is-planned-anew",
        "a checkpoint takes half as long again",
        STORES + "test_a_search_is_prepared_once_whatever_is_bound",
        "perdure.store.sqlite.file:_configure",
        (
            "connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)",
            "connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 0)",
        ),
    ),
    mutant(
        "settings-not-read-back",
        "a setting that SQLite ignores is believed",
        STORES + "test_a_setting_that_sqlite_ignores_is_noticed",
        "perdure.store.sqlite.file:_pragma",
        ("found != value", "False"),
    ),
    mutant(
        "any-sqlite-will-do",
        "a SQLite that may corrupt the file is used",
        STORES + "test_a_sqlite_that_may_corrupt_is_refused",
        "perdure.store.sqlite.file:is_current",
        ('tuple(map(int, apsw.sqlite_lib_version().split("."))) < SQLITE_VERSION_MIN', "False"),
    ),
    mutant(
        "any-file-will-do",
        "the database of another program is written to",
        STORES + "test_a_file_of_another_program_is_refused_and_left_as_it_was",
        "perdure.store.sqlite.file:_refuse_what_is_not_ours",
        ('connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()', "False"),
    ),
    mutant(
        "newer-schema-accepted",
        "old code writes to a store of newer code",
        STORES + "test_a_store_of_a_later_version_is_refused",
        "perdure.store.sqlite.file:is_current",
        (
            "StoreVersions(version, version, newest, ()).refuse_newer()",
            "StoreVersions(version, version, version, ()).refuse_newer()",
        ),
    ),
    mutant(
        "network-file-system-accepted",
        "two hosts write to one file, and both believe to have locked it",
        STORES + "test_network_file_systems_are_refused",
        "perdure.store.sqlite.file:refuse_unsafe_place",
        ("kind in NETWORK_FILE_SYSTEMS", "False"),
    ),
    mutant(
        "memory-is-silent",
        "a store in memory looks durable",
        STORES + "test_memory_warns_where_no_test_runs",
        "perdure.store:_warn_about_memory",
        ('"pytest" not in sys.modules and "unittest" not in sys.modules', "False"),
    ),
    mutant(
        "everybody-can-read",
        "other users of the machine can read the store",
        STORES + "test_only_the_owner_can_read_any_of_the_files",
        "perdure.store.sqlite.file:prepare_file",
        (
            "os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)",
            "os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)",
        ),
    ),
    mutant(
        "copies-unnoticed",
        "a copy of the store goes on beside the original, and nobody says so",
        STORES + "test_a_copy_is_noticed_once",
        "perdure.kernel.engine:_check_home",
        ("(last_host, last_file) == (host, file)", "True"),
    ),
    mutant(
        "single-home-ignored",
        "a copy of the store goes on although that was forbidden",
        STORES + "test_a_single_home_refuses_a_copy_until_it_is_adopted",
        "perdure.kernel.engine:_check_home",
        ("if single_home:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "followers-not-told",
        "a caller whose commit failed with its batch believes that it succeeded",
        "unit/test_committer.py::test_an_error_of_the_whole_batch_reaches_every_caller_and_no_later_one",
        "perdure.store.group_commit:Committer._settle",
        ("ticket.error = failure", "batch[0].error = failure"),
    ),
    mutant(
        "acknowledged-before-it-is-settled",
        "a caller goes on before its commit is known to have happened",
        "unit/test_committer.py::test_units_are_settled_before_their_callers_go_on",
        "perdure.store.group_commit:Committer._settle",
        ("ticket.unit.settle(ticket.error is None)\nticket.settled = True", "ticket.settled = True"),
    ),
)
