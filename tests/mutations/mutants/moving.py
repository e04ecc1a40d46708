"""Moving house: nobody is in two places, nothing is lost on the way, and nothing of others goes along."""

from __future__ import annotations

from tests.mutations.mutant import mutant

MOVING = "conformance/test_transfer.py::"
FILE = "conformance/test_transfer_file.py::"
BESIDE = "conformance/test_transfer_archives.py::"
HOSTILE = "conformance/test_transfer_hostile.py::"
BOMBS = "conformance/test_transfer_bombs.py::"
NOTHING_LEFT = "conformance/test_transfer_failures.py::"

MUTANTS = (
    mutant(
        "an-agent-leaves-and-its-runs-keep-their-fences",
        "who has a run open goes on with it in the old store, and somebody else in the new one",
        MOVING + "test_an_open_run_is_lost_when_its_agent_moves",
        "perdure.transfer.export:LeaveStore.script",
        ('yield [Statement("revoke_run_leases", (engine.name,)), *fences]', "yield fences"),
    ),
    mutant(
        "a-run-of-an-agent-that-has-left-is-taken",
        "the original of a moved agent continues",
        MOVING + "test_a_moved_agent_goes_on_at_the_right_step_and_the_original_refuses",
        "perdure.journal.departures:refuse_departed",
        ("raise _refusal(agent, at, left)", "return None"),
    ),
    mutant(
        "who-writes-for-another-agent-does-not-ask-whether-it-is-there",
        "a run of another agent changes one that has moved",
        MOVING + "test_a_moved_agent_goes_on_at_the_right_step_and_the_original_refuses",
        "perdure.journal.agent_writes:_decide_usage",
        ("yield from lock_not_departed(owner)", "yield from ()"),
    ),
    mutant(
        "a-copy-believes-that-nothing-happened",
        "a copy charges once more what its original is just charging",
        MOVING + "test_a_copy_never_believes_that_what_its_origin_has_begun_did_not_happen",
        "perdure.transfer.import_writes:ImportEntries._mark_foreign_holder",
        ("return msgspec.structs.replace(holder, boot=mark + strip_boot_prefix(holder.boot))", "return holder"),
    ),
    mutant(
        "what-is-others-goes-along",
        "the file has what other agents keep",
        FILE + "test_nothing_of_other_agents_goes_along_and_nothing_of_its_own_is_left",
        "perdure.transfer.collect:RecordOwnership.part",
        (
            "return record if len(ours) == len(landed) else msgspec.structs.replace(record, landed=ours)",
            "return record",
        ),
    ),
    mutant(
        "what-others-have-written-for-it-is-left",
        "state that another agent's run has set is gone after a move",
        FILE + "test_nothing_of_other_agents_goes_along_and_nothing_of_its_own_is_left",
        "perdure.transfer.collect:ExportReader.iterate_all",
        ("yield from self._iterate_foreign_entries()", ""),
    ),
    mutant(
        "a-move-that-failed-leaves-nobody-at-home",
        "a full disk, and the agent is nowhere",
        MOVING + "test_a_move_that_cannot_be_written_leaves_the_agent_at_home",
        "perdure.transfer.export:export",
        ("was_here and not os.path.lexists(path)", "False"),
    ),
    mutant(
        "large-values-of-a-file-are-not-compared",
        "who changes one in the file changes what an agent remembers",
        FILE + "test_a_file_that_was_changed_is_refused_wherever_that_was",
        "perdure.transfer.check:_ExportCheck._compare",
        ("self._contents(header) != ContentDigests(end.contents, end.index)", "False"),
    ),
    mutant(
        "what-was-erased-while-it-was-away-is-there-again",
        "an agent that comes back knows what it was told to forget",
        MOVING + "test_an_agent_moves_away_and_comes_back_with_what_is_new",
        "perdure.transfer.import_writes:_EntryImporter._entry",
        ("yield from self._erase(entry.seq)", "pass"),
    ),
    mutant(
        "archives-of-an-agent-stay-where-they-were",
        "an agent has moved, and what it did long ago is nowhere",
        BESIDE + "test_archives_go_along_and_are_known_where_they_arrive",
        "perdure.transfer.import_file:_AgentImport._write",
        ("self.notes = self._beside.write_archives()", "pass"),
    ),
    mutant(
        "an-archive-is-called-whatever-a-file-says",
        "who imports a file has another one written wherever its author likes",
        NOTHING_LEFT + "test_an_archive_leads_nowhere_whatever_its_journal_calls_it",
        "perdure.transfer.archives:_require_archive_name",
        ('raise ExportDamaged(f"{path}: {name!r} is not the name of an archive")', "return"),
    ),
    mutant(
        "an-archive-goes-along-whoever-has-something-in-it",
        "the file has what other agents keep",
        BESIDE + "test_an_archive_that_others_have_something_in_stays",
        "perdure.transfer.archives:AgentArchives._iterate_stream_archives",
        ("self._is_private(path, found.header)", "True"),
    ),
    mutant(
        "a-parked-run-waits-for-who-is-not-here",
        "an agent has moved, and a run of it waits for ever, for one that stayed",
        "conformance/test_transfer_waits.py::test_a_parked_run_waits_for_an_agent_left_behind",
        "perdure.journal.project:_project_parked",
        ('_task_moved(stream, "parked", 0 if lost else record.until)', '_task_moved(stream, "parked", record.until)'),
    ),
    mutant(
        "an-agent-arrives-twice-under-two-names",
        "one agent is two in one store, with one key",
        BESIDE + "test_an_agent_renamed_in_its_own_store_is_not_imported_a_second_time",
        "perdure.transfer.export:refuse_duplicate",
        ("key == public_key and other != name and not gone", "False"),
    ),
    mutant(
        "an-agent-arrives-wherever-its-file-is",
        "the store that it left was told where it is, and lets it arrive elsewhere too",
        BESIDE + "test_the_store_that_it_left_lets_it_arrive_once_if_it_is_asked",
        "perdure.transfer.export:LeaveStore._refuse_retired",
        (
            'self._left is not None and (left.how, self._left.how) == ("moved", "moved") and not left.store',
            'self._left is not None and (left.how, self._left.how) == ("moved", "moved")',
        ),
    ),
    mutant(
        "an-unsigned-file-is-accepted",
        "anybody changes what an agent remembers, on its way",
        HOSTILE + "test_an_unsigned_file_is_imported_only_if_it_is_asked_for_by_name",
        "perdure.transfer.import_file:find_refusal",
        ("not accepted", "False"),
    ),
    mutant(
        "a-forged-move-is-signed-by-the-key-inside-it",
        "whoever changes a moved file has the agent itself sign the forgery",
        HOSTILE + "test_a_forged_move_is_never_signed_by_the_key_inside_it",
        "perdure.transfer.import_file:find_refusal",
        ("file.header.private_key", "False"),
    ),
    mutant(
        "an-unsigned-file-is-accepted-where-the-key-is",
        "the key that is here signs what somebody else wrote",
        HOSTILE + "test_where_the_key_is_no_unsigned_file_is_accepted",
        "perdure.transfer.import_file:import_agent",
        ("_refuse_forgery(engine, file)", ""),
    ),
    mutant(
        "a-key-opens-in-any-file",
        "the locked key of one file is used for another",
        HOSTILE + "test_a_key_opens_in_the_file_that_it_was_locked_for_and_in_no_other",
        "perdure.transfer.locked_key:_bind_to_file",
        ('return b"perdure agent key " + public_key + digest', 'return b"perdure agent key " + public_key'),
    ),
    mutant(
        "an-entry-of-another-agent-is-imported",
        "importing one agent plants a run in another",
        HOSTILE + "test_nothing_in_a_file_names_another_agent",
        "perdure.transfer.ownership:OwnershipCheck._look_into",
        ("value != self._agent", "False"),
    ),
    mutant(
        "whose-state-it-is-is-not-asked",
        "importing one agent writes state that is nobody's",
        HOSTILE + "test_nothing_in_a_file_names_another_agent",
        "perdure.transfer.ownership:OwnershipCheck._entry",
        ("not self._ownership.is_whole(record)", "False"),
    ),
    mutant(
        "a-file-reads-what-others-have-by-its-id",
        "who has seen the id of a large value reads it out of another agent's store",
        HOSTILE + "test_a_file_refers_to_nothing_that_others_have_in_the_store",
        "perdure.transfer.ownership:OwnershipCheck._entry",
        ("not self._references.take(record)", "False"),
    ),
    mutant(
        "a-file-expands-without-bound",
        "a small file takes all memory",
        BOMBS + "test_a_bomb_is_refused_before_it_goes_off",
        "perdure.platform.bounded_lines:_check_size",
        ("gauge.too_long or gauge.needed > size", "False"),
    ),
    mutant(
        "an-export-that-compresses-too-well-has-no-padding",
        "an agent is exported, and can never be imported",
        BOMBS + "test_an_agent_whose_values_compress_very_well_still_moves",
        "perdure.transfer.export:_write_export",
        ("make_padding(file.tell(), writer.needed)", "()"),
    ),
    mutant(
        "an-import-that-failed-leaves-its-key",
        "a failed import leaves a key, archives and large values behind",
        NOTHING_LEFT + "test_a_commit_that_fails_leaves_nothing",
        "perdure.transfer.import_file:_AgentImport.write",
        ("self._undo()", "pass"),
    ),
)
