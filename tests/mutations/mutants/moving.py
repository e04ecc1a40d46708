"""Moving house: nobody is in two places, nothing is lost on the way, and nothing of others goes along."""

from __future__ import annotations

from tests.mutations.mutant import mutant

MOVING = "conformance/test_moving.py::"
FILE = "conformance/test_moving_file.py::"
BESIDE = "conformance/test_moving_beside.py::"

OF_MOVING = (
    mutant(
        "an-agent-leaves-and-its-runs-keep-their-fences",
        "who has a run open goes on with it in the old store, and somebody else in the new one",
        MOVING + "test_whoever_has_a_run_open_loses_it",
        "moving/leaving.py",
        'yield [Statement("fence_off_runs", (engine.name,)), *fences]',
        "yield fences",
    ),
    mutant(
        "a-run-of-an-agent-that-has-left-is-taken",
        "the original of a moved agent continues",
        MOVING + "test_a_moved_agent_goes_on_at_the_right_step_and_the_original_refuses",
        "journal/departures.py",
        "        raise _refusal(agent, at, left)\n",
        "        return None\n",
    ),
    mutant(
        "who-writes-for-another-agent-does-not-ask-whether-it-is-there",
        "a run of another agent changes one that has moved",
        MOVING + "test_a_moved_agent_goes_on_at_the_right_step_and_the_original_refuses",
        "journal/landing.py",
        "        yield from held_at_home(owner)\n",
        "        yield from ()\n",
    ),
    mutant(
        "a-copy-believes-that-nothing-happened",
        "a copy charges once more what its original is just charging",
        MOVING + "test_a_copy_never_believes_that_what_its_origin_has_begun_did_not_happen",
        "moving/arriving.py",
        "        return msgspec.structs.replace(holder, boot=mark + at_home(holder.boot))",
        "        return holder",
    ),
    mutant(
        "what-is-others-goes-along",
        "the file has what other agents keep",
        FILE + "test_nothing_of_other_agents_goes_along_and_nothing_of_its_own_is_left",
        "moving/gathering.py",
        "        return record if len(ours) == len(landed) else msgspec.structs.replace(record, landed=ours)",
        "        return record",
    ),
    mutant(
        "what-others-have-written-for-it-is-left",
        "state that another agent's run has set is gone after a move",
        FILE + "test_nothing_of_other_agents_goes_along_and_nothing_of_its_own_is_left",
        "moving/gathering.py",
        "        yield from self._elsewhere()\n",
        "",
    ),
    mutant(
        "a-move-that-failed-leaves-nobody-at-home",
        "a full disk, and the agent is nowhere",
        MOVING + "test_a_move_that_cannot_be_written_leaves_the_agent_at_home",
        "moving/leaving.py",
        "        if was_here and not os.path.lexists(path):",
        "        if False:",
    ),
    mutant(
        "large-values-of-a-file-are-not-compared",
        "who changes one in the file changes what an agent remembers",
        FILE + "test_a_file_that_was_changed_is_refused_wherever_that_was",
        "moving/checking.py",
        "        if self._contents(header) != Digests(end.contents, end.index):",
        "        if False:",
    ),
    mutant(
        "what-was-erased-while-it-was-away-is-there-again",
        "an agent that comes back knows what it was told to forget",
        MOVING + "test_an_agent_moves_away_and_comes_back_with_what_is_new",
        "moving/arriving.py",
        "                yield from self._erase(entry.seq)\n",
        "                pass\n",
    ),
    mutant(
        "archives-of-an-agent-stay-where-they-were",
        "an agent has moved, and what it did long ago is nowhere",
        BESIDE + "test_archives_go_along_and_are_known_where_they_arrive",
        "moving/importing.py",
        "    notes = put_beside(engine.store, path) if file.archives else ()\n",
        "    notes = ()\n",
    ),
    mutant(
        "an-archive-is-called-whatever-a-file-says",
        "who imports a file has another one written wherever its author likes",
        BESIDE + "test_a_forged_archive_is_refused_and_leads_nowhere",
        "moving/archives.py",
        '    raise ExportDamaged(f"{path}: no archive is called {name!r}")\n',
        "    return name\n",
    ),
    mutant(
        "an-archive-goes-along-whoever-has-something-in-it",
        "the file has what other agents keep",
        BESIDE + "test_an_archive_that_others_have_something_in_stays",
        "moving/archives.py",
        "            if self._is_private(path, found.header):",
        "            if True:",
    ),
    mutant(
        "a-parked-run-waits-for-who-is-not-here",
        "an agent has moved, and a run of it waits for ever, for one that stayed",
        BESIDE + "test_a_parked_run_that_waits_for_who_stayed_says_so_and_goes_on_when_that_one_comes",
        "journal/fold.py",
        '_task_moved(stream, "parked", 0 if lost else it.until)',
        '_task_moved(stream, "parked", it.until)',
    ),
    mutant(
        "an-agent-arrives-twice-under-two-names",
        "one agent is two in one store, with one key",
        BESIDE + "test_who_was_renamed_in_its_own_store_is_not_taken_back_besides",
        "moving/leaving.py",
        "        if key == public_key and other != name and not gone:",
        "        if False:",
    ),
    mutant(
        "an-agent-arrives-wherever-its-file-is",
        "the store that it left was told where it is, and lets it arrive elsewhere too",
        BESIDE + "test_the_store_that_it_left_lets_it_arrive_once_if_it_is_asked",
        "moving/leaving.py",
        '(left.how, self._left.how) == ("moved", "moved") and not left.store',
        '(left.how, self._left.how) == ("moved", "moved")',
    ),
)
