"""What may go and what must stay."""

from __future__ import annotations

from tests.mutations.mutant import mutant

RETENTION = "conformance/test_retention.py::"

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
        RETENTION + "test_nothing_vanishes_that_somebody_is_about_to_refer_to",
        "collect.py",
        "        yield from self._marks.catch_up(heads)\n",
        "",
    ),
    mutant(
        "collects-beside-a-commit",
        "a large value vanishes while a commit that has written it again is on its way",
        RETENTION + "test_nothing_vanishes_that_somebody_is_about_to_refer_to[postgres]",
        "store/sql/postgres/queries.sql",
        "FOR UPDATE SKIP LOCKED;",
        ";",
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
        "a-look-frees",
        "gc with dry_run deletes",
        RETENTION + "test_expired_keys_are_told_and_then_deleted_by_events",
        "retention.py",
        "    if dry_run:\n",
        "    if False:\n",
    ),
)
