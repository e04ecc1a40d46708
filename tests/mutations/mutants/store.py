"""The store: what is durable, who hears of failures, what is refused."""

from __future__ import annotations

from tests.mutations.mutant import mutant

GAPS = "conformance/test_gaps.py::"
JOURNAL_GAPS = "conformance/test_gaps_journal.py::"

STORE = (
    mutant(
        "never-committed",
        "what was acknowledged is gone after a kill",
        "conformance/test_steps.py::test_after_a_kill_finished_steps_are_not_repeated",
        "store/sqlite.py",
        'committing = True\n            writer.execute("COMMIT")',
        'committing = True\n            writer.execute("ROLLBACK" if batch[0].unit.site == "step.done" else "COMMIT")',
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
        "                ticket.error = error\n",
        "                ticket.result = error\n",
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
        "conformance/test_async.py::test_a_commit_is_shielded_from_cancellation",
        "store/committer.py",
        "                cancelled = error\n",
        "                self._queue.clear()\n                raise\n",
    ),
    mutant(
        "fork-not-noticed",
        "a forked child uses the connection of its parent",
        "conformance/test_runs.py::test_a_forked_child_says_so_and_the_parent_goes_on",
        "store/sqlite.py",
        "        store._abandon()\n",
        "        pass\n",
    ),
)
