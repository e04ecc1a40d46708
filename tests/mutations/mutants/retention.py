"""What may go and what must stay."""

from __future__ import annotations

from tests.mutations.mutant import mutant

RETENTION = "conformance/test_retention.py::"
FOLDING = "conformance/test_compaction.py::"
EVENTS = "conformance/test_events_compaction.py::"

MUTANTS = (
    mutant(
        "a-large-file-stays-large",
        "who asks for the empty space of a large file does not get it",
        "unit/test_shrinking.py::test_a_large_file_becomes_smaller_when_somebody_asks_for_it",
        "perdure.maintenance.retention:gc",
        ("store.shrink(whole=vacuum)", "store.shrink(whole=False)"),
    ),
    mutant(
        "sweeps-what-was-set-again",
        "a key that somebody has just set again is deleted because it once ran out",
        RETENTION + "test_a_key_that_was_set_again_is_not_swept_away",
        "perdure.journal.agent_writes:_WriteResolver._apply",
        ("not ask.writes or (ask.sweeps and (entry is not stored or found.value))", "not ask.writes"),
    ),
    mutant(
        "collects-what-is-new",
        "a large value vanishes that a commit has begun to refer to since the marks were made",
        RETENTION + "test_what_is_referred_to_again_after_the_look_stays",
        "perdure.journal.object_gc:select_unused",
        ("yield from marks.catch_up(heads)", ""),
    ),
    mutant(
        "a-label-pins-nothing",
        "a checkpoint with a label goes with the others",
        RETENTION + "test_the_last_ones_are_kept_and_those_with_a_label",
        "perdure.journal.checkpoint_writes:_labels",
        ("yield from entry.labels", "yield from ()"),
    ),
    mutant(
        "the-newest-goes-too",
        "keep_for removes the only checkpoint of a name",
        RETENTION + "test_old_ones_go_but_never_the_newest",
        "perdure.maintenance.retention:iterate_outdated",
        (
            "place and ((keep.last and place >= keep.last) or (keep.milliseconds and at + keep.milliseconds <= now))",
            "(keep.last and place >= keep.last) or (keep.milliseconds and at + keep.milliseconds <= now)",
        ),
    ),
    mutant(
        "deletes-a-busy-thread",
        "gc deletes a thread that somebody has gone on with since it was found idle",
        RETENTION + "test_threads_go_by_age_and_by_count_unless_in_use",
        "perdure.work.threads.prune:delete_idle",
        ("found is None or any(place.at > since for place in there)", "found is None"),
    ),
    mutant(
        "a-look-frees",
        "gc with dry_run deletes",
        RETENTION + "test_expired_keys_are_told_and_then_deleted_by_events",
        "perdure.maintenance.retention:gc",
        ("if dry_run:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "folds-the-last-value",
        "the newest change of a key is folded, and its value cannot be read any more",
        FOLDING + "test_whatever_was_done_is_the_same_after_compaction",
        "perdure.journal.needed_entries:EntryNeeds._state",
        ("if not later:\n    return False", "if not later:\n    return True"),
    ),
    mutant(
        "folds-what-is-there",
        "the entry of a checkpoint that is there is folded",
        FOLDING + "test_whatever_was_done_is_the_same_after_compaction",
        "perdure.journal.needed_entries:EntryNeeds._may_drop_version",
        ("if any(not dropped for *_, dropped in rows):\n    return False", ""),
    ),
    mutant(
        "half-a-past",
        "the state of a time before the horizon is answered from what is left of it",
        FOLDING + "test_the_past_before_the_horizon_is_refused_and_never_half_true",
        "perdure.data.state_history:_refuse_compacted",
        ("bounds.revision < floor or bounds.at < floor_at", "False"),
    ),
    mutant(
        "anybody-folds",
        "who has no key makes signed entries disappear",
        FOLDING + "test_tampering_with_what_was_compacted_is_found",
        "perdure.journal.verify:_StreamInspection._report_unsigned",
        ("self.compacted_at > last_sealed", "False"),
    ),
    mutant(
        "kept-entries-are-not-looked-at",
        "an entry that was kept can be edited after those around it were folded",
        FOLDING + "test_tampering_with_what_was_compacted_is_found",
        "perdure.journal.stream_reader:ChainWalk._follow_kept",
        ("chain.mark(self.stream, seq, kind, at, covered, stored) != wanted", "False"),
    ),
    mutant(
        "a-folded-stream-is-the-end",
        "a process whose stream was folded cannot write any more",
        FOLDING + "test_a_writer_goes_on_in_another_stream_after_compaction",
        "perdure.kernel.open_stream:commit_to_process_stream",
        ("engine.place.leave_stream(head)\ncontinue", "raise"),
    ),
    mutant(
        "floors-are-forgotten",
        "a second folding forgets from when on the past is whole",
        FOLDING + "test_compaction_again_forgets_nothing_of_what_it_knew",
        "perdure.journal.compaction:_StreamScan._record",
        ("(*(old.floors if old is not None else ()), *self._needs.floors)", "self._needs.floors"),
    ),
    mutant(
        "folds-what-no-replay-has-passed",
        "events are folded that a replay with a snapshot has not kept a result of",
        EVENTS + "test_what_a_replay_has_not_passed_stays",
        "perdure.data.events.compaction:find_compaction_limit",
        (
            "EventCompactionLimit(min(last[:3], end), arrived if places else None, tuple(carries), note)",
            "EventCompactionLimit(end, None, tuple(carries), note)",
        ),
    ),
    mutant(
        "a-replay-of-what-is-left",
        "a replay without a kept result is made of the events that are left",
        EVENTS + "test_what_a_replay_has_not_passed_stays",
        "perdure.data.events.replay:_begin",
        ("if keeper.floor:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "kept-results-are-not-carried",
        "after a rebuild nobody knows what a replay came to whose events were folded",
        EVENTS + "test_a_replay_comes_to_the_same_when_its_events_are_gone",
        "perdure.maintenance.retention:gc",
        ("holds and holds[engine.stream].carries", "False"),
    ),
    mutant(
        "events-of-a-run-at-work-go",
        "events are folded that belong to a run which is not finished",
        EVENTS + "test_following_from_a_compacted_position_is_refused",
        "perdure.journal.needed_entries:EntryNeeds._may_drop_events",
        (
            "(at, self._stream, seq) >= noted.before.get(owner, (0, 0, 0)) or (run and run not in noted.finished)",
            "(at, self._stream, seq) >= noted.before.get(owner, (0, 0, 0))",
        ),
    ),
)
