"""Artifacts: uploads, collecting beside them, verified reading, shared chunks."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

KEPT = "conformance/test_artifacts.py::"
MENDED = "conformance/test_damage_repair.py::"
ARRAYS = "unit/test_artifacts_arrays.py::"

MUTANTS = (
    mutant(
        "the-collector-does-not-see-uploads",
        "collecting removes what an upload has written or relies on",
        KEPT + "test_a_collector_leaves_a_running_upload_alone",
        "perdure.journal.object_gc:LiveObjects.__contains__",
        ("return identity in self._used or identity in self._pending", "return identity in self._used"),
        Edit(
            "perdure.journal.object_gc:select_unused",
            "{bytes(identity) for (identity,) in rows} - {bytes(identity) for (identity,) in pending}",
            "{bytes(identity) for (identity,) in rows}",
        ),
    ),
    mutant(
        "a-lost-upload-becomes-a-version",
        "a version is acknowledged whose chunks were collected",
        KEPT + "test_an_upload_that_was_given_up_is_never_half_a_version",
        "perdure.journal.artifact_writes:decide_puts",
        ("not all(rows[2 * len(places) :])", "False"),
    ),
    mutant(
        "a-lost-upload-goes-on",
        "an upload that was collected begins anew in its middle",
        KEPT + "test_an_upload_that_was_given_up_is_never_half_a_version",
        "perdure.journal.artifact_writes:Upload.script",
        ("not there and not self._first", "False"),
    ),
    mutant(
        "uploads-do-not-resume",
        "what was committed before a crash is written again",
        KEPT + "test_killed_in_the_middle_it_goes_on",
        "perdure.journal.artifact_writes:Upload.script",
        (
            "[chunk.statement for chunk in self._chunks if chunk.identity not in known]",
            "[chunk.statement for chunk in self._chunks ]",
        ),
    ),
    mutant(
        "half-uploads-are-collected-at-once",
        "what a killed upload has written is gone before the next try",
        KEPT + "test_what_a_killed_upload_has_written_is_found_and_later_collected",
        "perdure.journal.object_gc:_find_stale_limits",
        ("store.clock.wall_ms() - int(grace * 1000)", "store.clock.wall_ms() + 60_000"),
    ),
    mutant(
        "a-slow-upload-is-collected",
        "a living process loses what it has uploaded because it took long",
        KEPT + "test_a_collector_leaves_a_running_upload_alone",
        "perdure.store.sql.sqlite.queries:drop_old_uploads",
        (
            "DELETE FROM uploads WHERE at < :before AND NOT EXISTS (",
            "DELETE FROM uploads WHERE at < :before OR NOT EXISTS (",
        ),
    ),
    mutant(
        "an-artifact-does-not-wait",
        "an artifact of a step that fails is there all the same",
        KEPT + "test_it_lands_with_the_step_or_the_item_or_not_at_all",
        "perdure.kernel.write_routing:write",
        (
            "if buffer is None:\n    return (yield from land(engine, site, asks))",
            "if True:\n    return (yield from land(engine, site, asks))",
        ),
    ),
    mutant(
        "deleted-artifacts-stay-for-ever",
        "what was deleted goes on taking place",
        KEPT + "test_every_version_reads_back_and_a_small_edit_adds_little",
        "perdure.journal.objects:DroppedVersions.__init__",
        (
            '("CheckpointMade", "all_checkpoints"), ("ArtifactSaved", "all_artifacts")',
            '("CheckpointMade", "all_checkpoints"),',
        ),
    ),
    mutant(
        "chunks-of-one-size",
        "an insert makes all chunks behind it new",
        KEPT + "test_every_version_reads_back_and_a_small_edit_adds_little",
        "perdure.journal.trees.streams:_find_cut",
        ("crc32(view[end - _WINDOW : end]) < _CHANCE", "False"),
    ),
    mutant(
        "the-digest-is-not-compared",
        "the whole may be another one than was saved",
        KEPT + "test_damage_is_told_with_its_place",
        "perdure.data.artifacts.reader:ArtifactReader._go_on",
        ("self._digest.digest() != self._saved.digest", "False"),
    ),
    mutant(
        "the-copy-is-not-compared",
        "a file that was loaded holds other bytes than were saved",
        KEPT + "test_damage_is_told_with_its_place",
        "perdure.data.artifacts.reader:ArtifactReader._copy_to",
        ("digest.digest() == self._saved.digest", "True"),
    ),
    mutant(
        "a-damaged-chunk-is-shared",
        "saving again over damage makes a version that cannot be read",
        MENDED + "test_written_again_over_damage_it_can_be_read",
        "perdure.data.artifacts.upload:ArtifactWrite._flush",
        ("if damaged:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "a-damaged-object-stays",
        "a value that is written again over damage cannot be read",
        MENDED + "test_written_again_over_damage_it_can_be_read",
        "perdure.store.sql.sqlite.queries:put_object",
        (
            "WHERE objects.data <> excluded.data OR objects.size <> excluded.size;",
            "WHERE objects.size <> excluded.size;",
        ),
    ),
    mutant(
        "a-checkpoint-relies-on-damage",
        "a process that was told of damage leaves it in the next version",
        MENDED + "test_the_next_checkpoint_does_not_rely_on_what_was_found_damaged",
        "perdure.journal.trees.split:TreeBuilder.__init__",
        ("objects.select_trusted(known)", "known"),
    ),
    mutant(
        "arrays-lose-their-order",
        "a dict of arrays comes back in another order",
        ARRAYS + "test_arrays_come_back_exactly",
        "perdure.data.artifacts.arrays:read_arrays",
        ("[*first, *(name for name in found if name not in first)]", "found"),
    ),
)
