"""What `verify` and `rebuild` find."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "unit/test_verify.py::"

MUTANTS = (
    mutant(
        "views-of-another-time",
        "a view says something else than the journal",
        "unit/test_rebuild.py::test_after_everything_has_happened_the_views_equal_the_journal",
        "perdure.journal.append:Append.entries",
        ("statements += project(stream, seq, at, record)", "statements += project(stream, seq, at + 1, record)"),
    ),
    mutant(
        "views-not-compared",
        "rebuild --check finds nothing, whatever the views say",
        "unit/test_rebuild.py::test_missing_and_extra_rows_are_found_and_mended",
        "perdure.journal.rebuild:_compare",
        ('yield ViewDifference(name, key, "missing", expected=row)', "continue"),
    ),
    mutant(
        "rebuild-from-anything",
        "views are made anew from a damaged journal",
        "unit/test_rebuild.py::test_nothing_is_rebuilt_from_a_damaged_journal",
        "perdure.journal.stream_reader:sound_events",
        ('raise JournalDamaged(f"stream {stream}, entry {seq} ({what}): {text}")', "pass"),
    ),
    mutant(
        "verify-skips-the-chain",
        "verify does not see an edited entry",
        TESTS + "test_swapped_entries_are_located",
        "perdure.journal.stream_reader:ChainWalk.follow",
        ("gap or stored in after", "True"),
    ),
    mutant(
        "verify-skips-gaps",
        "verify does not see a removed entry",
        TESTS + "test_a_removed_entry_is_located",
        "perdure.journal.stream_reader:ChainWalk.follow",
        ("if seq != self.seq + 1:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "verify-skips-signatures",
        "verify believes a forged seal",
        TESTS + "test_a_changed_bit_in_any_row_is_found[seals-signature]",
        "perdure.journal.verify:_StreamInspection._seal",
        ("not _is_signature_valid(self.whole.store.identity, seal)", "False"),
    ),
    mutant(
        "verify-believes-any-key",
        "whoever rewrites a run can sign it himself",
        TESTS + "test_a_seal_by_another_key_is_none",
        "perdure.journal.verify:_StreamInspection._seal",
        ("public_key != self._key(public_key)", "False"),
    ),
    mutant(
        "verify-skips-the-sealed-head",
        "verify does not see that a run was rewritten as a whole",
        TESTS + "test_a_rewritten_stream_does_not_fit_its_seal",
        "perdure.journal.verify:_StreamInspection._seal",
        ("link not in self.sealed_links[seq]", "False"),
    ),
    mutant(
        "verify-skips-the-end",
        "verify does not see that the end of a run was cut off",
        TESTS + "test_a_stream_cut_off_below_its_seal_is_truncated",
        "perdure.journal.verify:_StreamInspection._seal",
        ("seq > self.along.seq", "False"),
    ),
    mutant(
        "verify-counts-no-streams",
        "verify does not miss a run that was removed",
        TESTS + "test_a_removed_stream_is_missed",
        "perdure.journal.verify:_StoreInspection.look_for_strays",
        ("self.most_streams > self.streams", "False"),
    ),
    mutant(
        "verify-skips-objects",
        "verify does not see a changed large value",
        TESTS + "test_a_changed_object_is_located_by_the_entries_that_refer_to_it",
        "perdure.journal.verify:_StoreInspection.refer",
        ("identity in self._bad_objects", "False"),
    ),
    mutant(
        "anchor-not-compared",
        "nobody notices that the whole store was put back",
        "unit/test_verify_anchor.py::test_a_rollback_of_the_whole_file_is_found",
        "perdure.journal.anchor:_differences",
        (
            'text = f"stream {head.stream} had {head.seq} entries when the anchor was made"',
            'continue\ntext = f"stream {head.stream} had {head.seq} entries when the anchor was made"',
        ),
    ),
    mutant(
        "answers-not-signed",
        "the answer of a person can be removed unnoticed",
        TESTS + "test_an_answer_is_signed_at_once",
        "perdure.run.answers:_record_answer",
        (
            "Append(Site.ANSWER, head, [record], store.clock, objects=made, signer=signer, seal=True)",
            "Append(Site.ANSWER, head, [record], store.clock, objects=made)",
        ),
    ),
)
