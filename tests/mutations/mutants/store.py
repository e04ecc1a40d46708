"""The store: what is durable, who hears of failures, what is refused."""

from __future__ import annotations

from tests.mutations.mutant import mutant

GAPS = "conformance/test_gaps.py::"
JOURNAL_GAPS = "conformance/test_gaps_journal.py::"
STORES = "unit/test_store.py::"
COMMITS = "unit/test_store_commit.py::"

STORE = (
    mutant(
        "never-committed",
        "what was acknowledged is gone after a kill",
        "conformance/test_steps.py::test_after_a_kill_finished_steps_are_not_repeated",
        "store/sqlite.py",
        'committing = True\n                writer.execute("COMMIT")',
        "committing = True\n"
        '                writer.execute("ROLLBACK" if batch[0].unit.site == "step.done" else "COMMIT")',
    ),
    mutant(
        "failed-unit-takes-its-neighbours",
        "one refused write makes those of other runs fail",
        GAPS + "test_a_failed_commit_takes_nothing_with_it_from_its_batch",
        "store/sqlite.py",
        "        except PerdureError as error:\n            ticket.error = error\n",
        "        except PerdureError as error:\n            if not alone: raise\n            ticket.error = error\n",
    ),
    mutant(
        "failed-unit-stays",
        "half of a refused write is committed with its neighbours",
        GAPS + "test_a_failed_commit_takes_nothing_with_it_from_its_batch",
        "store/sqlite.py",
        '                self._writer.execute("ROLLBACK TO unit")\n',
        "                pass\n",
    ),
    mutant(
        "error-of-a-batch-swallowed",
        "a commit that failed counts as done",
        JOURNAL_GAPS + "test_after_an_io_error_nothing_more_is_written_until_the_store_is_opened_again",
        "store/committer.py",
        "                    ticket.error = failure\n",
        "                    ticket.result = failure\n",
    ),
    mutant(
        "not-fenced-after-an-io-error",
        "the process goes on writing to a file of which it does not know the content",
        JOURNAL_GAPS + "test_after_an_io_error_nothing_more_is_written_until_the_store_is_opened_again",
        "store/sqlite.py",
        "        self.fenced = error\n",
        "",
    ),
    mutant(
        "cancelled-commit-not-awaited",
        "a cancelled task does not know whether its step was recorded",
        "unit/test_committer.py::test_a_cancelled_caller_is_committed_all_the_same",
        "store/base.py",
        "            cancelled = error\n            on_cancel()\n",
        "            raise\n",
    ),
    mutant(
        "fork-not-noticed",
        "a forked child uses the connection of its parent",
        "conformance/test_runs.py::test_a_forked_child_says_so_and_the_parent_goes_on",
        "store/base.py",
        "            store._abandon()\n",
        "            pass\n",
    ),
    mutant(
        "not-synced",
        "a power cut takes what was acknowledged",
        COMMITS + "test_a_step_is_one_sync_and_an_effect_two",
        "store/sqlite_file.py",
        'SYNCHRONOUS = {"full": 2, "process": 1}',
        'SYNCHRONOUS = {"full": 1, "process": 1}',
    ),
    mutant(
        "settings-not-in-force",
        "a connection is less durable than it was asked to be",
        STORES + "test_settings_that_durability_depends_on_are_in_force",
        "store/sqlite_file.py",
        'SYNCHRONOUS = {"full": 2, "process": 1}',
        'SYNCHRONOUS = {"full": 1, "process": 1}',
    ),
    mutant(
        "settings-not-read-back",
        "a setting that SQLite ignores is believed",
        STORES + "test_a_setting_that_sqlite_ignores_is_noticed",
        "store/sqlite_file.py",
        "    if found != value:\n",
        "    if False:\n",
    ),
    mutant(
        "any-sqlite-will-do",
        "a SQLite that may corrupt the file is used",
        STORES + "test_a_sqlite_that_may_corrupt_is_refused",
        "store/sqlite_file.py",
        'if tuple(map(int, apsw.sqlite_lib_version().split("."))) < SQLITE_VERSION_MIN:',
        "if False:",
    ),
    mutant(
        "any-file-will-do",
        "the database of another program is written to",
        STORES + "test_a_file_of_another_program_is_refused_and_left_as_it_was",
        "store/sqlite_file.py",
        "if _is_foreign(connection):",
        "if False:",
    ),
    mutant(
        "newer-schema-accepted",
        "old code writes to a store of newer code",
        STORES + "test_a_store_of_a_later_version_is_refused",
        "store/sqlite_file.py",
        "if version > len(history):",
        "if False:",
    ),
    mutant(
        "network-file-system-accepted",
        "two hosts write to one file, and both believe to have locked it",
        STORES + "test_network_file_systems_are_refused",
        "store/sqlite_file.py",
        "if kind in NETWORK_FILE_SYSTEMS:",
        "if False:",
    ),
    mutant(
        "memory-is-silent",
        "a store in memory looks durable",
        STORES + "test_memory_warns_where_no_test_runs",
        "store/__init__.py",
        'if "pytest" not in sys.modules and "unittest" not in sys.modules:',
        "if False:",
    ),
    mutant(
        "everybody-can-read",
        "other users of the machine can read the store",
        STORES + "test_only_the_owner_can_read_any_of_the_files",
        "store/sqlite_file.py",
        "os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600",
        "os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644",
    ),
    mutant(
        "copies-unnoticed",
        "a copy of the store goes on beside the original, and nobody says so",
        STORES + "test_a_copy_is_noticed_once",
        "engine.py",
        "    if rows and rows[0] == (host, file):\n",
        "    if rows:\n",
    ),
    mutant(
        "single-home-ignored",
        "a copy of the store goes on although that was forbidden",
        STORES + "test_a_single_home_refuses_a_copy_until_it_is_adopted",
        "engine.py",
        "        if single_home:\n",
        "        if False:\n",
    ),
    mutant(
        "followers-not-told",
        "a caller whose commit failed with its batch believes that it succeeded",
        "unit/test_committer.py::test_an_error_of_the_whole_batch_reaches_every_caller_and_no_later_one",
        "store/committer.py",
        "                    ticket.error = failure\n",
        "                    batch[0].error = failure\n",
    ),
    mutant(
        "acknowledged-before-it-is-settled",
        "a caller goes on before its commit is known to have happened",
        "unit/test_committer.py::test_units_are_settled_before_their_callers_go_on",
        "store/committer.py",
        "                ticket.unit.settle(ticket.error is None)\n                ticket.settled = True\n",
        "                ticket.settled = True\n",
    ),
)
