"""Artifacts: uploads, collecting beside them, verified reading, shared chunks."""

from __future__ import annotations

from tests.mutations.mutant import Edit, mutant

KEPT = "conformance/test_artifacts.py::"
MENDED = "conformance/test_mending.py::"
ARRAYS = "unit/test_artifacts_arrays.py::"

ARTIFACTS = (
    mutant(
        "the-collector-does-not-see-uploads",
        "collecting removes what an upload has written or relies on",
        KEPT + "test_a_collector_leaves_a_running_upload_alone",
        "collect.py",
        "return identity in self._used or identity in self._pending",
        "return identity in self._used",
        Edit("collect.py", " - {bytes(identity) for (identity,) in pending}", ""),
    ),
    mutant(
        "a-lost-upload-becomes-a-version",
        "a version is acknowledged whose chunks were collected",
        KEPT + "test_an_upload_that_was_given_up_is_never_half_a_version",
        "journal/puts.py",
        "if not all(rows[2 * len(places) :]):",
        "if False:",
    ),
    mutant(
        "a-lost-upload-goes-on",
        "an upload that was collected begins anew in its middle",
        KEPT + "test_an_upload_that_was_given_up_is_never_half_a_version",
        "journal/puts.py",
        "if not there and not self._first:",
        "if False:",
    ),
    mutant(
        "uploads-do-not-resume",
        "what was committed before a crash is written again",
        KEPT + "test_killed_in_the_middle_it_goes_on",
        "journal/puts.py",
        "if chunk.identity not in known]",
        "]",
    ),
    mutant(
        "half-uploads-are-collected-at-once",
        "what a killed upload has written is gone before the next try",
        KEPT + "test_what_a_killed_upload_has_written_is_found_and_later_collected",
        "collect.py",
        "return store.clock.wall_ms() - int(grace * 1000), this_process()",
        "return store.clock.wall_ms() + 60_000, this_process()",
    ),
    mutant(
        "a-slow-upload-is-collected",
        "a living process loses what it has uploaded because it took long",
        KEPT + "test_a_collector_leaves_a_running_upload_alone",
        "store/sql/sqlite/queries.sql",
        "DELETE FROM uploads WHERE at < :before AND NOT EXISTS (",
        "DELETE FROM uploads WHERE at < :before OR NOT EXISTS (",
    ),
    mutant(
        "an-artifact-does-not-wait",
        "an artifact of a step that fails is there all the same",
        KEPT + "test_it_lands_with_the_step_or_the_item_or_not_at_all",
        "state.py",
        "    if room is None:\n        return (yield from land(engine, site, asks))",
        "    if True:\n        return (yield from land(engine, site, asks))",
    ),
    mutant(
        "deleted-artifacts-stay-for-ever",
        "what was deleted goes on taking place",
        KEPT + "test_every_version_reads_back_and_a_small_edit_adds_little",
        "objects.py",
        '("CheckpointMade", "all_checkpoints"), ("ArtifactSaved", "all_artifacts")',
        '("CheckpointMade", "all_checkpoints"),',
    ),
    mutant(
        "chunks-of-one-size",
        "an insert makes all chunks behind it new",
        KEPT + "test_every_version_reads_back_and_a_small_edit_adds_little",
        "trees/streams.py",
        "if crc32(view[at - _WINDOW : at]) < _CHANCE:",
        "if False:",
    ),
    mutant(
        "the-digest-is-not-compared",
        "the whole may be another one than was saved",
        KEPT + "test_damage_is_told_with_its_place",
        "artifacts/reader.py",
        "and self._digest.digest() != self._saved.digest:",
        "and False:",
    ),
    mutant(
        "a-damaged-chunk-is-shared",
        "saving again over damage makes a version that cannot be read",
        MENDED + "test_written_again_over_damage_it_can_be_read",
        "artifacts/saving.py",
        "if damaged:",
        "if False:",
    ),
    mutant(
        "a-damaged-object-stays",
        "a value that is written again over damage cannot be read",
        MENDED + "test_written_again_over_damage_it_can_be_read",
        "store/sql/sqlite/queries.sql",
        "WHERE objects.data <> excluded.data OR objects.size <> excluded.size;",
        "WHERE objects.size <> excluded.size;",
    ),
    mutant(
        "a-checkpoint-relies-on-damage",
        "a process that was told of damage leaves it in the next version",
        MENDED + "test_the_next_checkpoint_does_not_rely_on_what_was_found_damaged",
        "trees/split.py",
        "objects.trusted(known)",
        "known",
    ),
    mutant(
        "arrays-may-overlap",
        "a hostile header makes two arrays of the same bytes",
        ARRAYS + "test_a_hostile_header_is_refused",
        "artifacts/tensors.py",
        "if it.begin != at:",
        "if it.begin > at:",
    ),
)
