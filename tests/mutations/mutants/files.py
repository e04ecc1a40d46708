"""The files of a SQLite store: who notices that they are gone, or say less than was acknowledged."""

from __future__ import annotations

from tests.mutations.mutant import mutant

FILES = "crash/test_files.py::"
MARK = "unit/test_store_mark.py::"
PRESENCE = "unit/test_store_file_guard.py::"

MUTANTS = (
    mutant(
        "files-not-looked-at",
        "what is acknowledged after somebody has removed the log is lost",
        FILES + "test_nothing_is_lost_when_the_log_is_taken_from_a_process",
        "perdure.store.sqlite.watch:StoreWatch.check_after_commit",
        ("sight = self._presence.check_files()", "sight = GuardState.SAME"),
    ),
    mutant(
        "cut-log-not-noticed",
        "a process goes on committing to a log that somebody has emptied",
        FILES + "test_a_log_that_is_cut_short_stops_its_process_at_once[sqlite-log_emptied-sync]",
        "perdure.store.sqlite.watch:StoreWatch.check_before_commit",
        ("self._guard.is_log_cut()", "False"),
    ),
    mutant(
        "other-index-not-noticed",
        "two processes with different indexes of one log overwrite each other's commits",
        FILES + "test_processes_with_different_indexes_of_the_log_lose_nothing_of_each_other",
        "perdure.store.sqlite.watch:StoreWatch.check_before_commit",
        ("not self._guard.has_index() and self._presence.is_index_replaced()", "False"),
    ),
    mutant(
        "old-log-is-applied",
        "the log of a replaced store damages the backup that was put in its place",
        FILES + "test_a_backup_next_to_the_log_of_another_store_is_refused_unharmed",
        "perdure.store.sqlite.watch:refuse_bad_files",
        ("_refuse_old_log(path)", "pass"),
    ),
    mutant(
        "folder-not-looked-at",
        "what is acknowledged after somebody has exchanged the folder of a store is lost",
        PRESENCE + "test_files_that_are_gone_are_noticed",
        "perdure.store.sqlite.file_guard:OpenStoreFiles.check_files",
        ("names != self._names or not self._settled", "not self._settled"),
    ),
    mutant(
        "locks-can-be-dropped",
        "a look into the store with Python's sqlite3 deletes its log",
        MARK + "test_the_standard_library_takes_no_lock_of_ours",
        "perdure.store.sqlite.file_guard:FileGuard.watch",
        ("_lock(fd, fcntl.F_RDLCK, first, count)", "pass"),
    ),
    mutant(
        "mark-not-written",
        "a damaged log goes unnoticed, and effects are paid again",
        MARK + "test_a_store_that_was_put_back_can_be_read_and_not_written",
        "perdure.store.sqlite.watch:StoreWatch.check_after_commit",
        ("if entries:\n    ...", "if not entries:\n    ..."),
    ),
    mutant(
        "mark-not-compared",
        "a store that has lost entries goes on as if nothing had happened",
        MARK + "test_a_store_that_was_put_back_can_be_read_and_not_written",
        "perdure.store.sqlite.watch:StoreWatch.find_rollback",
        ("has_all_heads(read, self.mark.read_newest())", "True"),
    ),
    mutant(
        "torn-lines-count",
        "a mark that a power cut has torn accuses a sound store",
        MARK + "test_lines_are_found_again_behind_what_is_torn",
        "perdure.store.sqlite.mark:lines",
        ("len(body) == length and crc32(body) == checksum", "len(body) == length"),
    ),
    mutant(
        "unsynced-mark-is-believed",
        "after a power cut a store of durability='process' cannot be opened",
        MARK + "test_without_a_sync_a_mark_counts_until_the_machine_restarts",
        "perdure.store.sqlite.mark:DurabilityMark._parse_lines",
        ("(marked.synced or marked.boot == self._boot)", "True"),
    ),
    mutant(
        "folded-entries-are-missed",
        "a store whose old entries were archived is called damaged",
        MARK + "test_after_compaction_nothing_is_missed",
        "perdure.store.sqlite.mark:_is_there",
        ("return int(compaction[0][0]) > head.last", "return False"),
    ),
    mutant(
        "alarm-after-the-commit",
        "a signal handler that raises after a commit makes the process forget it: the next entry takes its number",
        "unit/test_store_commit.py::test_an_alarm_just_after_the_commit_leaves_the_head_where_it_is",
        "perdure.store.sqlite.store:SqliteStore._commit",
        ("not isinstance(error, apsw.Error)", "False"),
    ),
    mutant(
        "adopt-does-not-verify",
        "a store that a copy has damaged is adopted as if it were sound",
        "unit/test_cli_store_admin.py::test_a_damaged_copy_is_not_adopted_unless_somebody_insists",
        "perdure.cli.store_admin:adopt",
        ("damage and not accept_damage", "False"),
    ),
    mutant(
        "adopt-forgets-the-doubt",
        "effects that happened in lost entries happen again after `perdure adopt`",
        FILES + "test_a_backup_put_in_place_of_a_store_is_found",
        "perdure.run.lifecycle:ClaimRun._take_lost_entries",
        ("known = self._engine.store.doubts.get(name)", "known = None"),
    ),
    mutant(
        "lost-second-attempt",
        "an effect whose second attempt was lost with the log is attempted a third time",
        FILES + "test_an_effect_that_had_begun_again_is_in_doubt_too",
        "perdure.run.lost_effects:lose",
        ("recorded = by_intent.get(intent.again)", "recorded = None"),
    ),
    mutant(
        "check-without-the-key",
        "a check that is asked for another key says that nothing happened, and is believed",
        FILES + "test_where_the_key_is_lost_a_person_is_asked",
        "perdure.run.effect:_intent_of",
        ("lost == KEY", "False"),
    ),
    mutant(
        "two-names-are-fine",
        "two programs use one file under two names, each with a log of its own",
        MARK + "test_a_file_with_two_names_is_refused",
        "perdure.store.sqlite.watch:_refuse_links",
        ("links > 1", "links > 2"),
    ),
    mutant(
        "full-disk-kills",
        "opening a store on a full disk with small blocks ends in SIGBUS",
        "crash/test_disk_full.py::test_a_full_disk_with_small_blocks_is_an_error_and_no_sigbus",
        "perdure.store.sqlite.watch:_refuse_full_disk",
        ("not allocated", "False"),
    ),
    mutant(
        "mark-remembers-what-was-forgotten",
        "a text that was forgotten everywhere stands in the mark",
        MARK + "test_what_was_forgotten_is_not_in_the_mark",
        "perdure.store.sqlite.scrub:_empty_log",
        ("forget_marked(connection.filename, texts, everything=anew)", ""),
    ),
)
