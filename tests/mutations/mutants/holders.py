"""Who is alive: process identity, heartbeat, turns, keys; and what is kept of large values."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

PROCESSES = "unit/test_process.py::"
LEASES = "unit/test_leases.py::"
KEYS = "unit/test_keys.py::"
OBJECTS = "unit/test_objects.py::"

MUTANTS = (
    mutant(
        "reboot-not-noticed",
        "after a reboot a run stays busy until its lease runs out",
        PROCESSES + "test_another_boot_is_the_past",
        "perdure.platform.process:proven_dead",
        ("return one_host and strip_boot_prefix(holder.boot) == holder.boot", "return False"),
    ),
    mutant(
        "judged-across-namespaces",
        "a process of another container is taken for dead",
        PROCESSES + "test_what_is_in_another_namespace_cannot_be_looked_at",
        "perdure.platform.process:proven_dead",
        ('holder.namespace != _namespace("self")', "False"),
    ),
    mutant(
        "number-used-again",
        "a process that got the number of a dead one keeps its run busy",
        PROCESSES + "test_a_number_that_another_process_has_now_is_no_sign_of_life",
        "perdure.platform.process:proven_dead",
        ("return started != holder.started", "return False"),
    ),
    mutant(
        "corpse-is-alive",
        "a dead process whose parent does not look keeps its run busy",
        PROCESSES + "test_a_corpse_that_nobody_has_collected_is_dead",
        "perdure.platform.process:_start_time",
        ("return seen.started if find_living_thread(pid, seen) else -1", "return seen.started"),
    ),
    mutant(
        "headless-is-dead",
        "a process whose main thread has ended loses its run while its other threads are at work",
        PROCESSES + "test_a_process_whose_main_thread_has_ended_lives_as_long_as_its_other_threads",
        "perdure.platform.process:_start_time",
        ("return seen.started if find_living_thread(pid, seen) else -1", "return -1 if seen.ended else seen.started"),
    ),
    mutant(
        "stopped-is-dead",
        "a stopped process loses its run, and acts when it goes on",
        PROCESSES + "test_a_stopped_process_is_alive",
        "perdure.platform.process:read_stat",
        ('fields[0] in (b"Z", b"X")', 'fields[0] in (b"Z", b"X", b"T")'),
    ),
    mutant(
        "no-heartbeat",
        "a process at work loses its runs",
        LEASES + "test_the_heart_renews_and_stops",
        "perdure.journal.leases:_heartbeat_loop",
        ("keeper.renew()", "pass"),
        hangs=True,
    ),
    mutant(
        "close-interrupts-a-beat",
        "closing an agent while its heart beats fails, because a connection is in use",
        LEASES + "test_closing_waits_for_a_beat_in_progress",
        "perdure.journal.leases:LeaseKeeper.stop_heartbeats",
        ("self._heart.join(LEAVE_SECONDS_MAX)", "pass"),
    ),
    mutant(
        "lists-of-many-moments",
        "a run whose status changes is listed twice, or not at all",
        "conformance/test_run_lists.py::test_a_run_whose_status_changes_is_listed_once",
        "perdure.store.sqlite.readers:SqliteReaders._read_snapshot",
        ('connection.execute("BEGIN")', "pass"),
    ),
    mutant(
        "ended-is-crashed",
        "a run that ends while it is listed is called crashed",
        "conformance/test_run_lists.py::test_a_run_that_ends_while_it_is_listed_has_not_crashed",
        "perdure.run.listing:summary_of",
        ("now is not None and now != run", "False"),
    ),
    mutant(
        "heart-stops-at-a-failure",
        "after one failed renewal a process loses its runs",
        LEASES + "test_the_heart_goes_on_after_a_failed_beat",
        "perdure.journal.leases:_heartbeat_loop",
        ("continue", "return"),
        hangs=True,
    ),
    mutant(
        "deadline-from-after-the-commit",
        "a process believes in its lease for longer than the others do",
        LEASES + "test_the_deadline_counts_from_before_the_commit",
        "perdure.journal.leases:LeaseKeeper.extend",
        ("self._deadline = now + self.lease_ms", "self._deadline = self._store.clock.boot_ms() + self.lease_ms"),
    ),
    mutant(
        "holders-swept-with-their-leases",
        "nobody knows any more who may still hold a run",
        LEASES + "test_what_dead_processes_left_is_removed_but_not_what_may_live",
        "perdure.store.sql.sqlite.queries:drop_dead_holders",
        (
            "OR deadline < :now) AND NOT EXISTS (",
            "OR deadline < :now) OR 0 AND NOT EXISTS (",
        ),
    ),
    mutant(
        "late-turn-kept",
        "a turn that came too late blocks every other process",
        "unit/test_turnstile.py::test_a_turn_that_comes_too_late_is_not_kept",
        "perdure.store.sqlite.turnstile:Turnstile._queue_up",
        ("flock(fd, LOCK_UN)\nself._left.discard(fd)\nos.close(fd)", "pass"),
        hangs=True,
    ),
    mutant(
        "everybody-can-read-the-key",
        "other users of the machine can sign in the name of the agent",
        KEYS + "test_only_the_owner_can_read_it",
        "perdure.platform.files:PRIVATE",
        ("0o600", "0o644"),
    ),
    mutant(
        "a-key-is-a-link",
        "a store from somewhere else has its history signed by the key of another agent",
        KEYS + "test_a_key_file_that_leads_elsewhere_is_refused",
        "perdure.journal.keys:_text_of",
        ("is_beside = folder.endswith(_BESIDE)", "is_beside = False"),
    ),
    mutant(
        "a-folder-of-another-user-is-used",
        "another user of the machine gets everything that is stored by whoever works in /tmp",
        "unit/test_store.py::test_a_folder_of_another_user_is_not_stumbled_upon",
        "perdure.store.address:locate",
        ("_require_own_folder(found)", ""),
    ),
    mutant(
        "two-keys-for-one-agent",
        "of two processes that start an agent, one signs with a key that nobody knows",
        KEYS + "test_two_threads_make_one_key",
        "perdure.journal.keys:_write_once",
        ("seed = _read_key(folder, agent) or seed", "pass"),
    ),
    mutant(
        "ids-betray-the-content",
        "who guesses a large value can see in the file whether it is there",
        OBJECTS + "test_ids_tell_nothing_to_those_who_guess_the_content",
        "perdure.journal.objects:identify",
        (
            "return blake2b(data, key=store.content_key, digest_size=ID_BYTES).digest()",
            "return blake2b(data, digest_size=ID_BYTES).digest()",
        ),
    ),
    mutant(
        "collector-takes-too-much",
        "a large value that is still needed is removed",
        OBJECTS + "test_only_what_no_entry_refers_to_is_collected",
        "perdure.journal.object_gc:select_unused",
        ("identity in ours and identity not in marks", "identity in ours"),
        Edit(
            "perdure.journal.object_gc:iterate_unused",
            "[(identity, size) for identity, size in page if identity not in marks]",
            "[(identity, size) for identity, size in page]",
        ),
    ),
    mutant(
        "forged-size-believed",
        "a few bytes in the file fill the memory",
        OBJECTS + "test_a_frame_that_claims_more_than_its_row_is_refused_before_it_is_opened",
        "perdure.journal.objects:_check_claimed_size",
        ("claimed != size or not 0 <= size <= VALUE_BYTES_MAX", "False"),
    ),
)
