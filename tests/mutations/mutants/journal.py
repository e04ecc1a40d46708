"""The journal, its chain, its seals and its views; large values."""

from __future__ import annotations

from tests.mutations.mutant import mutant

EDITED = "conformance/test_tampered_journal.py::test_nothing_is_resumed_from_an_edited_journal"

MUTANTS = (
    mutant(
        "chain-not-verified",
        "a run is resumed from an edited journal",
        EDITED + "[sqlite-change_time]",
        "perdure.journal.append:walk_events",
        ("seq != expected or link != stored", "seq != expected"),
    ),
    mutant(
        "gaps-not-noticed",
        "a run is resumed from a journal that lacks an entry",
        EDITED + "[sqlite-remove]",
        "perdure.journal.append:walk_events",
        (
            (
                "link = linked(link, stream, seq, kind, at, hashed(body).digest() if body is not None else digest)\n"
                "if seq != expected or link != stored:\n"
                "    ..."
            ),
            "link = stored\nif False:\n    ...",
        ),
    ),
    mutant(
        "chain-without-the-link-before",
        "an entry can be replaced by a forged one",
        EDITED + "[sqlite-forge]",
        "perdure.journal.chain:link",
        (
            "return sha256(before + _PLACE.pack(stream, seq, kind, at) + digest).digest()",
            "return sha256(_PLACE.pack(stream, seq, kind, at) + digest).digest()",
        ),
    ),
    mutant(
        "chain-without-the-place",
        "time and kind of an entry can be changed",
        EDITED + "[sqlite-change_kind]",
        "perdure.journal.chain:link",
        (
            "return sha256(before + _PLACE.pack(stream, seq, kind, at) + digest).digest()",
            "return sha256(before + digest).digest()",
        ),
    ),
    mutant(
        "chain-without-the-body",
        "the content of an entry can be changed",
        EDITED + "[sqlite-edit_body]",
        "perdure.journal.chain:link",
        (
            "return sha256(before + _PLACE.pack(stream, seq, kind, at) + digest).digest()",
            "return sha256(before + _PLACE.pack(stream, seq, kind, at)).digest()",
        ),
    ),
    mutant(
        "streams-begin-alike",
        "a stream can be moved to another place or store",
        "conformance/test_tampered_journal.py::test_a_stream_begins_differently_in_every_store_and_place",
        "perdure.journal.chain:genesis",
        (
            'return sha256(b"perdure stream %s %d" % (store.encode(), stream)).digest()',
            'return sha256(b"perdure stream").digest()',
        ),
    ),
    mutant(
        "seals-not-signed",
        "the signed heads prove nothing",
        "conformance/test_tampered_journal.py::test_the_end_of_a_run_is_signed_with_the_key_of_the_agent",
        "perdure.journal.append:_seal",
        (
            "signature = signer.sign(chain.seal_message(head.store, head.stream, seq, link, streams))",
            "signature = bytes(64)",
        ),
    ),
    mutant(
        "seals-never-made",
        "a truncated run is not missed",
        "conformance/test_tampered_journal.py::test_the_end_of_a_run_is_signed_with_the_key_of_the_agent",
        "perdure.run.finish:_commit_end",
        (
            "run.commit(Site.RUN_END, *whole, *entries, objects=objects, also=[release], seal=True, asks=asks)",
            "run.commit(Site.RUN_END, *whole, *entries, objects=objects, also=[release], seal=False, asks=asks)",
        ),
    ),
    mutant(
        "any-signature-will-do",
        "a forged signature is believed",
        "conformance/test_tampered_journal.py::test_the_end_of_a_run_is_signed_with_the_key_of_the_agent",
        "perdure.journal.keys:is_signed_by",
        ("return False", "return True"),
    ),
    mutant(
        "delete-not-folded",
        "a deleted key of run.state is still seen by others",
        "conformance/test_async.py::test_writes_and_items",
        "perdure.journal.project:_project_writes",
        ('changes.append(Statement("delete_run_state", (stream, RUN_STATE, write.key)))', "continue"),
    ),
    mutant(
        "interruption-not-folded",
        "an interrupted run looks crashed",
        "conformance/test_runs.py::test_a_signal_interrupts_the_run_and_releases_the_lease",
        "perdure.journal.project:_project_interrupted",
        ("_status(stream, r.RunStatus.INTERRUPTED, at, 0, record.reason)", "()"),
    ),
    mutant(
        "objects-not-verified",
        "a changed large value is returned as the recorded one",
        "conformance/test_tampered_journal.py::test_a_large_value_that_was_changed_or_removed_is_not_believed",
        "perdure.journal.objects:_compare_copies",
        ("identify(store, data) != identity", "False"),
    ),
    mutant(
        "messages-with-all-before",
        "every message of a conversation costs more than the one before",
        "conformance/test_commits.py::test_a_message_costs_the_same_at_the_end_of_a_long_conversation",
        "perdure.run.writes:_encode_or_uncount",
        (
            "return made(value, path)",
            "return made([*read_messages(frame.run).messages, value] if op == r.Op.MESSAGE else value, path)",
        ),
    ),
    mutant(
        "nothing-is-shared",
        "a large value takes its space once per use",
        "conformance/test_commits.py::test_a_value_in_the_journal_is_stored_once",
        "perdure.values.limits:INLINE_BYTES_MAX",
        ("4096", "64 * 1024 * 1024"),
    ),
    mutant(
        "head-not-restored",
        "after a full disk the run cannot go on",
        ("conformance/test_commits.py::test_a_disk_that_fills_up_in_the_commit_takes_the_run_back"),
        "perdure.journal.append:Append.settle",
        ("not committed", "False"),
    ),
    mutant(
        "head-restored-in-the-wrong-order",
        "after a full disk a run that writes concurrently cannot go on",
        ("conformance/test_commits.py::test_a_disk_that_fills_up_in_the_commit_takes_the_run_back"),
        "perdure.journal.append:Append.settle",
        (
            "not committed and self._before is not None and self._before[0] <= self.head.seq",
            "not committed and self._before is not None",
        ),
    ),
)
