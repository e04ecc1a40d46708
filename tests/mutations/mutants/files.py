"""The files of a SQLite store: who notices that they are gone, or say less than was acknowledged."""

from __future__ import annotations

from tests.mutations.mutant import mutant

FILES = "crash/test_files.py::"
MARK = "unit/test_mark.py::"

OF_FILES = (
    mutant(
        "files-not-looked-at",
        "what is acknowledged after somebody has removed the log is lost",
        FILES + "test_nothing_is_lost_when_the_log_is_taken_from_a_process",
        "store/sqlite_watch.py",
        "        sight = self._presence.look()\n",
        "        sight = Sight.SAME\n",
    ),
    mutant(
        "locks-can-be-dropped",
        "a look into the store with Python's sqlite3 deletes its log",
        MARK + "test_the_standard_library_takes_no_lock_of_ours",
        "store/sqlite_presence.py",
        "            _lock(fd, fcntl.F_RDLCK, first, count)\n",
        "            pass\n",
    ),
    mutant(
        "mark-not-written",
        "a damaged log goes unnoticed, and effects are paid again",
        MARK + "test_a_store_that_was_put_back_can_be_read_and_not_written",
        "store/sqlite_watch.py",
        "        if entries:\n",
        "        if not entries:\n",
    ),
    mutant(
        "mark-not-compared",
        "a store that has lost entries goes on as if nothing had happened",
        MARK + "test_a_store_that_was_put_back_can_be_read_and_not_written",
        "store/sqlite_watch.py",
        "        if all_there(read, self.mark.newest()):\n",
        "        if True:\n",
    ),
    mutant(
        "torn-lines-count",
        "a mark that a power cut has torn accuses a sound store",
        MARK + "test_lines_are_found_again_behind_what_is_torn",
        "store/sqlite_mark.py",
        "len(body) == length and zlib.crc32(body) == checksum",
        "len(body) == length",
    ),
    mutant(
        "unsynced-mark-is-believed",
        "after a power cut a store of durability='process' cannot be opened",
        MARK + "test_without_a_sync_a_mark_counts_until_the_machine_restarts",
        "store/sqlite_mark.py",
        "(marked.synced or marked.boot == self._boot)",
        "True",
    ),
    mutant(
        "folded-entries-are-missed",
        "a store whose old entries were archived is called damaged",
        MARK + "test_after_folding_nothing_is_missed",
        "store/sqlite_mark.py",
        "    return int(folded[0][0]) > head.last\n",
        "    return False\n",
    ),
    mutant(
        "adopt-forgets-the-doubt",
        "effects that happened in lost entries happen again after `perdure adopt`",
        FILES + "test_a_backup_put_in_place_of_a_store_is_found",
        "run/lifecycle.py",
        "        known = self._engine.store.doubts.get(name)\n",
        "        known = None\n",
    ),
    mutant(
        "lost-second-attempt",
        "an effect whose second attempt was lost with the log is attempted a third time",
        FILES + "test_an_effect_that_had_begun_again_is_in_doubt_too",
        "run/losses.py",
        "        recorded = by_intent.get(intent.again)\n",
        "        recorded = None\n",
    ),
    mutant(
        "check-without-the-key",
        "a check that is asked for another key says that nothing happened, and is believed",
        FILES + "test_where_the_key_is_lost_a_person_is_asked",
        "run/effects.py",
        "recorded.keyless = not lost, lost == KEY",
        "recorded.keyless = not lost, False",
    ),
    mutant(
        "two-names-are-fine",
        "two programs use one file under two names, each with a log of its own",
        MARK + "test_a_file_with_two_names_is_refused",
        "store/sqlite_watch.py",
        "    if links > 1:\n",
        "    if links > 2:\n",
    ),
    mutant(
        "full-disk-kills",
        "opening a store on a full disk with small blocks ends in SIGBUS",
        "crash/test_disk_full.py::test_a_full_disk_with_small_blocks_is_an_error_and_no_sigbus",
        "store/sqlite_watch.py",
        "    if not made:\n",
        "    if False:\n",
    ),
    mutant(
        "mark-remembers-what-was-forgotten",
        "a text that was forgotten everywhere stands in the mark",
        MARK + "test_what_was_forgotten_is_not_in_the_mark",
        "store/sqlite_scrub.py",
        "    forget_marked(connection.filename, texts, everything=anew)\n",
        "",
    ),
)
