"""What may go and what must stay."""

from __future__ import annotations

from tests.mutations.mutant import mutant

RETENTION = "conformance/test_retention.py::"
FOLDING = "conformance/test_folding.py::"
EVENTS = "conformance/test_events_folding.py::"

OF_RETENTION = (
    mutant(
        "sweeps-what-was-set-again",
        "a key that somebody has just set again is deleted because it once ran out",
        RETENTION + "test_who_sets_a_key_again_is_not_swept_away",
        "journal/landing.py",
        "or (ask.sweeps and (entry is not stored or found.value))",
        "",
    ),
    mutant(
        "collects-what-is-new",
        "a large value vanishes that a commit has begun to refer to since the marks were made",
        RETENTION + "test_what_is_referred_to_again_after_the_look_stays",
        "collect.py",
        "        yield from self._marks.catch_up(heads)\n",
        "",
    ),
    mutant(
        "a-label-pins-nothing",
        "a checkpoint with a label goes with the others",
        RETENTION + "test_the_last_ones_are_kept_and_those_with_a_label",
        "journal/marks.py",
        "yield from it.labels",
        "yield from ()",
    ),
    mutant(
        "the-newest-goes-too",
        "keep_for removes the only checkpoint of a name",
        RETENTION + "test_old_ones_go_but_never_the_newest",
        "retention.py",
        "            if place and (",
        "            if (",
    ),
    mutant(
        "deletes-a-busy-thread",
        "gc deletes a thread that somebody has gone on with since it was found idle",
        RETENTION + "test_threads_go_by_age_and_by_count_but_not_one_that_somebody_goes_on_with",
        "threads/keeping.py",
        "if found is None or any(place.at > since for place in there):",
        "if found is None:",
    ),
    mutant(
        "a-look-frees",
        "gc with dry_run deletes",
        RETENTION + "test_expired_keys_are_told_and_then_deleted_by_events",
        "retention.py",
        "    if dry_run:\n",
        "    if False:\n",
    ),
    mutant(
        "folds-the-last-value",
        "the newest change of a key is folded, and its value cannot be read any more",
        FOLDING + "test_whatever_was_done_is_the_same_after_folding",
        "journal/needs.py",
        "if not later or later[0][1] >= self._horizon:",
        "if later and later[0][1] >= self._horizon:",
    ),
    mutant(
        "folds-what-is-there",
        "the entry of a checkpoint that is there is folded",
        FOLDING + "test_whatever_was_done_is_the_same_after_folding",
        "journal/needs.py",
        "        if rows and not rows[0][3]:\n            return False\n",
        "",
    ),
    mutant(
        "half-a-past",
        "the state of a time before the horizon is answered from what is left of it",
        FOLDING + "test_the_past_before_the_horizon_is_refused_and_never_half_true",
        "state.py",
        "        if revision < floor or at < floor_at:\n",
        "        if False:\n",
    ),
    mutant(
        "anybody-folds",
        "who has no key makes signed entries disappear",
        FOLDING + "test_tampering_with_what_was_folded_is_found",
        "journal/verify.py",
        "        elif self.folded_at > last_sealed:\n",
        "        elif False:\n",
    ),
    mutant(
        "kept-entries-are-not-looked-at",
        "an entry that was kept can be edited after those around it were folded",
        FOLDING + "test_tampering_with_what_was_folded_is_found",
        "journal/walk.py",
        "        if chain.mark(self.stream, seq, kind, at, covered, stored) != wanted:\n",
        "        if False:\n",
    ),
    mutant(
        "a-folded-stream-is-the-end",
        "a process whose stream was folded cannot write any more",
        FOLDING + "test_who_writes_goes_on_in_another_stream",
        "run/open_stream.py",
        "            engine.place.leave_stream(head)\n            continue\n        return unit",
        "            raise\n        return unit",
    ),
    mutant(
        "floors-are-forgotten",
        "a second folding forgets from when on the past is whole",
        FOLDING + "test_folding_again_forgets_nothing_of_what_it_knew",
        "journal/folding.py",
        "(*(old.floors if old is not None else ()), *self._needs.floors)",
        "self._needs.floors",
    ),
    mutant(
        "folds-what-no-replay-has-passed",
        "events are folded that a replay with a snapshot has not kept a result of",
        EVENTS + "test_what_a_replay_has_not_passed_stays",
        "events/horizon.py",
        "    return Held(min(last[:3], end), arrived if places else None, ",
        "    return Held(end, None, ",
    ),
    mutant(
        "a-replay-of-what-is-left",
        "a replay without a kept result is made of the events that are left",
        EVENTS + "test_what_a_replay_has_not_passed_stays",
        "events/replaying.py",
        "    elif keeper.floor:\n",
        "    elif False:\n",
    ),
    mutant(
        "kept-results-are-not-carried",
        "after a rebuild nobody knows what a replay came to whose events were folded",
        EVENTS + "test_a_replay_comes_to_the_same_when_its_events_are_gone",
        "retention.py",
        "if holds and holds[engine.stream].carries:",
        "if False:",
    ),
    mutant(
        "events-of-a-run-at-work-go",
        "events are folded that belong to a run which is not finished",
        EVENTS + "test_who_goes_on_from_before_is_told",
        "journal/needs.py",
        " or (run and run not in noted.finished)",
        "",
    ),
)
