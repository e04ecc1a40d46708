"""The journal, its chain, its seals and its views; large values."""

from __future__ import annotations

from tests.mutations.mutant import mutant

GAPS = "conformance/test_gaps_journal.py::"
EDITED = GAPS + "test_nothing_is_resumed_from_an_edited_journal"

JOURNAL = (
    mutant(
        "chain-not-verified",
        "a run is resumed from an edited journal",
        EDITED + "[sqlite-change_time]",
        "journal/append.py",
        "if seq != expected or link != stored:",
        "if seq != expected:",
    ),
    mutant(
        "gaps-not-noticed",
        "a run is resumed from a journal that lacks an entry",
        EDITED + "[sqlite-remove]",
        "journal/append.py",
        "link = linked(link, stream, seq, kind, at, digest_of(body) if body is not None else digest)\n"
        "        if seq != expected or link != stored:",
        "link = stored\n        if False:",
    ),
    mutant(
        "chain-without-the-link-before",
        "an entry can be replaced by a forged one",
        EDITED + "[sqlite-forge]",
        "journal/chain.py",
        "return sha256(before + _PLACE.pack(stream, seq, kind, at) + digest).digest()",
        "return sha256(_PLACE.pack(stream, seq, kind, at) + digest).digest()",
    ),
    mutant(
        "chain-without-the-place",
        "time and kind of an entry can be changed",
        EDITED + "[sqlite-change_kind]",
        "journal/chain.py",
        "return sha256(before + _PLACE.pack(stream, seq, kind, at) + digest).digest()",
        "return sha256(before + digest).digest()",
    ),
    mutant(
        "chain-without-the-body",
        "the content of an entry can be changed",
        EDITED + "[sqlite-edit_body]",
        "journal/chain.py",
        "return sha256(before + _PLACE.pack(stream, seq, kind, at) + digest).digest()",
        "return sha256(before + _PLACE.pack(stream, seq, kind, at)).digest()",
    ),
    mutant(
        "streams-begin-alike",
        "a stream can be moved to another place or store",
        GAPS + "test_a_stream_begins_differently_in_every_store_and_place",
        "journal/chain.py",
        'return sha256(b"perdure stream %s %d" % (store.encode(), stream)).digest()',
        'return sha256(b"perdure stream").digest()',
    ),
    mutant(
        "seals-not-signed",
        "the signed heads prove nothing",
        GAPS + "test_the_end_of_a_run_is_signed_with_the_key_of_the_agent",
        "journal/append.py",
        "signature = signer.sign(chain.seal_message(head.store, head.stream, seq, link, streams))",
        "signature = bytes(64)",
    ),
    mutant(
        "seals-never-made",
        "a truncated run is not missed",
        GAPS + "test_the_end_of_a_run_is_signed_with_the_key_of_the_agent",
        "run/lifecycle.py",
        "also=[release], seal=True",
        "also=[release], seal=False",
    ),
    mutant(
        "any-signature-will-do",
        "a forged signature is believed",
        GAPS + "test_the_end_of_a_run_is_signed_with_the_key_of_the_agent",
        "keys.py",
        "    except (InvalidSignature, ValueError):\n        return False\n",
        "    except (InvalidSignature, ValueError):\n        return True\n",
    ),
    mutant(
        "delete-not-folded",
        "a deleted key of run.state is still seen by others",
        "conformance/test_async.py::test_writes_and_items",
        "journal/fold.py",
        'changes.append(Statement("drop_state", (stream, RUN_STATE, write.key)))',
        "continue",
    ),
    mutant(
        "interruption-not-folded",
        "an interrupted run looks crashed",
        "conformance/test_runs.py::test_a_signal_interrupts_the_run_and_releases_the_lease",
        "journal/fold.py",
        "_status(stream, r.Status.INTERRUPTED, at, 0, it.reason)",
        "()",
    ),
    mutant(
        "objects-not-verified",
        "a changed large value is returned as the recorded one",
        GAPS + "test_a_large_value_that_was_changed_or_removed_is_not_believed",
        "objects.py",
        "if identify(store, data) != identity:",
        "if False:",
    ),
    mutant(
        "messages-with-all-before",
        "every message of a conversation costs more than the one before",
        "conformance/test_gaps.py::test_a_message_costs_the_same_at_the_end_of_a_long_conversation",
        "run/writes.py",
        "        return made(value, path)\n",
        "        return made([*read_messages(frame.run).messages, value] if op == r.Op.MESSAGE else value, path)\n",
    ),
    mutant(
        "nothing-is-shared",
        "a large value takes its space once per use",
        "conformance/test_gaps.py::test_a_value_in_the_journal_is_stored_once",
        "limits.py",
        "INLINE_BYTES_MAX = 4096",
        "INLINE_BYTES_MAX = 64 * 1024 * 1024",
    ),
    mutant(
        "head-not-restored",
        "after a full disk the run cannot go on",
        "conformance/test_gaps.py::test_a_disk_that_fills_up_in_the_commit_itself_takes_the_run_back_to_where_it_was",
        "journal/append.py",
        "if not committed and self._before is not None",
        "if False and self._before is not None",
    ),
    mutant(
        "head-restored-in-the-wrong-order",
        "after a full disk a run that writes concurrently cannot go on",
        "conformance/test_gaps.py::test_a_disk_that_fills_up_in_the_commit_itself_takes_the_run_back_to_where_it_was",
        "journal/append.py",
        " and self._before[0] <= self.head.seq:",
        ":",
    ),
)
