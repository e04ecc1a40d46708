"""`agent.state`: versions, landing, what is out of date."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

STATE = "conformance/test_state.py::"
TTL = "conformance/test_state_ttl.py::"
LANDING = "conformance/test_state_landing.py::"
CHECKPOINTS = "conformance/test_checkpoints.py::"

MUTANTS = (
    mutant(
        "a-copy-is-changed-in-silence",
        "run.state['seen'].append(x) is lost, and nobody is told",
        "conformance/test_state_copies.py::test_a_change_of_a_copy_is_told",
        "perdure.run.finish:end_run",
        ("yield Read(copies.check)", "pass"),
    ),
    mutant(
        "a-write-counts-as-a-changed-copy",
        "who writes his copy back is warned that it is lost",
        "conformance/test_state_copies.py::test_what_is_written_back_read_or_not_a_number_is_quiet",
        "perdure.run.state_copies:StateCopies.check",
        ("packed == copy.packed", "True"),
    ),
    mutant(
        "version-of-any-type",
        "if_version='x' looks like a conflict that a retry would end",
        "conformance/test_wrong_arguments.py::test_a_wrong_type_is_refused_at_the_call",
        "perdure.data.state:_check_version",
        ("if_version is not None", "False"),
    ),
    mutant(
        "a-write-inside-update-joins-the-item",
        "what the function of an update writes lands twice, or not at all",
        STATE + "test_update_is_given_what_is_there_and_its_error_changes_nothing",
        "perdure.kernel.write_routing:enclosing_buffer",
        ("check_not_deciding()", ""),
    ),
    mutant(
        "a-revert-in-a-step-does-not-look-again",
        "a revert undoes what another process has written meanwhile, unseen",
        "conformance/test_state.py::test_a_revert_in_a_step_is_refused_when_others_change_the_namespace_meanwhile",
        "perdure.data.state_history:revert",
        ("buffer.asks += [*unchanged, *asks]", "buffer.asks += asks"),
    ),
    mutant(
        "if-version-ignored",
        "who lost a race overwrites the winner",
        STATE + "test_versions_count_and_a_lost_race_shows_both_values",
        "perdure.journal.agent_writes:_WriteResolver._apply",
        ("ask.if_version is not None and ask.if_version != found.version", "False"),
    ),
    mutant(
        "what-was-read-does-not-matter",
        "a transaction writes what it made of values that have changed",
        STATE + "test_a_transaction_that_relied_on_old_values_is_refused",
        "perdure.api.sync.state:StateTransaction._look",
        ("self._asks.insert(0, SetKey(place, if_version=seen.version, writes=False))", "pass"),
    ),
    mutant(
        "all-that-was-read-does-not-matter",
        "a transaction writes a sum of keys that have changed",
        "conformance/test_state_transactions.py::test_a_transaction_that_read_a_namespace_is_refused_when_it_changed",
        "perdure.api.sync.state:StateTransaction.__exit__",
        ("state.change(self._engine, asks, list(self._whole.values()))", "state.change(self._engine, asks)"),
    ),
    mutant(
        "state-dropped-by-a-step",
        "a change made in a step is acknowledged and not there",
        LANDING + "test_it_lands_with_the_step_or_not_at_all",
        "perdure.run.step:_execute",
        (
            "run.commit(_DONE, done, objects=made, asks=buffer.asks)",
            "run.commit(_DONE, done, objects=made)",
        ),
    ),
    mutant(
        "state-dropped-by-an-item",
        "a change made in an item is acknowledged and not there",
        LANDING + "test_state_lands_with_the_item",
        "perdure.run.item:finish_item",
        (
            "run.commit(Site.ITEM_DONE, done, objects=buffer.objects, asks=buffer.asks)",
            "run.commit(Site.ITEM_DONE, done, objects=buffer.objects)",
        ),
    ),
    mutant(
        "state-lands-at-once",
        "a change made in a step that fails stays",
        LANDING + "test_it_lands_with_the_step_or_not_at_all",
        "perdure.data.state:change",
        ("if buffer is not None:\n    buffer.asks += [*unchanged, *asks]\n    return []", ""),
    ),
    mutant(
        "an-effect-that-lost-a-race-is-in-doubt",
        "an effect that happened is asked about, because its state lost a race",
        LANDING + "test_an_effect_that_loses_a_race_has_happened_all_the_same",
        "perdure.run.outcome:commit_outcome",
        ("yield from effect.run.commit(Site.EFFECT_OUTCOME, done, *more, objects=made)", "raise"),
    ),
    mutant(
        "the-paid-result-is-thrown-away",
        "a step that lost a race leaves nothing of what was paid for",
        LANDING + "test_a_step_that_loses_a_race_is_told_and_its_result_is_kept",
        "perdure.run.step:_execute",
        (
            "yield from _give_up(run, call, since, error, packed, objects)",
            "yield from _give_up(run, call, since, error)",
        ),
    ),
    mutant(
        "never-out-of-date",
        "a value is seen after its time to live",
        STATE + "test_what_has_a_time_to_live_is_gone_after_it",
        "perdure.journal.agent_writes:StoredKey.as_seen_at",
        (
            "return self if self.value and (not self.expires or self.expires > now) else _NOTHING",
            "return self if self.value else _NOTHING",
        ),
    ),
    mutant(
        "incr-makes-it-stay",
        "a counter with a time to live stays for ever once it is counted up",
        TTL + "test_incr_and_update_leave_a_key_its_time",
        "perdure.journal.agent_writes:_WriteResolver._apply",
        ("timed = there if ask.keeps else ask", "timed = ask"),
    ),
    mutant(
        "a-revert-makes-it-stay",
        "a value with a time to live stays for ever once it is brought back",
        TTL + "test_a_revert_gives_a_value_the_time_that_it_had",
        "perdure.data.state_history:_plan_namespace_revert",
        ("SetKey(at, was.value, expires=was.expires, lasts=was.lasts)", "SetKey(at, was.value)"),
    ),
    mutant(
        "a-revert-wakes-the-dead",
        "a token that has run out is there again",
        TTL + "test_a_revert_brings_nothing_back_that_has_run_out",
        "perdure.data.state_history:_plan_namespace_revert",
        ("_is_valid_at(change, clock)", "True"),
    ),
    mutant(
        "what-will-be-is-now",
        "a revert to a version that is still to come does nothing, and says that it is done",
        "conformance/test_state_bounds.py::test_what_has_not_been_is_refused",
        "perdure.data.state_history:_check_reached",
        ("when > latest", "False"),
    ),
    mutant(
        "nobody-is-told-that-time-has-run-out",
        "who watches a key believes that it is there",
        TTL + "test_a_watcher_hears_of_an_expired_key_once",
        "perdure.data.state:read_latest",
        ("value and 0 < expires <= engine.store.clock.wall_ms()", "False"),
    ),
    mutant(
        "versions-begin-anew",
        "a key that was deleted counts from 1 again, so that an old if_version fits",
        STATE + "test_what_is_deleted_is_gone_and_its_versions_go_on",
        "perdure.journal.agent_writes:_WriteResolver._change",
        (
            "version = old.version if entry.touched else old.version + 1",
            "version = old.version if entry.touched else old.seen(self._now).version + 1",
        ),
    ),
    mutant(
        "the-last-stream-wins",
        "views made anew have old values, because streams are folded one after the other",
        STATE + "test_eight_processes_lose_nothing",
        "perdure.store.sql.portable.queries:set_agent_state",
        ("WHERE excluded.revision > agent_state.revision;", "WHERE true;"),
    ),
    mutant(
        "revert-without-a-look",
        "a revert overwrites what was changed while it was prepared",
        "unit/test_state.py::test_a_revert_sees_what_came_in_between",
        "perdure.journal.agent_writes:_WriteResolver.run",
        ("revisions[space] != wanted", "False"),
    ),
    mutant(
        "joined-before-they-are-decided",
        "a step that writes to the agent is lost when another one lands beside it",
        "unit/test_state.py::test_only_plain_appends_are_joined",
        "perdure.journal.append:Append.join",
        (
            "units = [unit for unit in (self, *others) if type(unit) is Append]",
            "units = [self, *(unit for unit in others if type(unit) is Append)]",
        ),
    ),
    mutant(
        "state-unsigned",
        "what was written in the open could be cut off unnoticed, although the process ended in order",
        "unit/test_verify.py::test_a_removed_entry_is_located",
        "perdure.kernel.engine:StoreSession.seal",
        ("head.seq > head.sealed", "False"),
    ),
    mutant(
        "what-is-set-on-a-restored-checkpoint-is-lost",
        "where.page = 31 is not in what is saved next",
        CHECKPOINTS + "test_the_keys_of_a_dict_are_attributes",
        "perdure.values.codec.restored:Restored.__setattr__",
        ("self[name] = value", "pass"),
    ),
    mutant(
        "a-checkpoint-relies-on-what-is-gone",
        "a checkpoint is acknowledged, and half of it was collected",
        CHECKPOINTS + "test_the_next_one_does_not_rely_on_what_was_deleted_elsewhere",
        "perdure.journal.checkpoint_writes:decide_checkpoints",
        ("mark.relies_on and not any(base for _, base, *_ in found[:1])", "False"),
    ),
    mutant(
        "a-checkpoint-relies-on-another-name",
        "a checkpoint that continues one of another name is acknowledged, and half of it was collected",
        CHECKPOINTS + "test_another_name_does_not_rely_on_what_was_deleted_elsewhere",
        "perdure.journal.checkpoint_writes:SaveCheckpoint.base_place",
        ("self.base or self.name", "self.name"),
    ),
    mutant(
        "a-memo-belongs-to-a-name",
        "each checkpoint of a growing conversation under a new name costs as much as all of it",
        CHECKPOINTS + "test_a_conversation_is_stored_once_under_any_name",
        "perdure.journal.checkpoint_writes:CheckpointCache.base_of",
        ("max(fitting, key=_length, default=mine)", "self._last.get(name, NEVER)"),
    ),
    mutant(
        "a-checkpoint-is-made-again",
        "a resumed run makes its checkpoints a second time",
        CHECKPOINTS + "test_in_a_run_it_is_made_once",
        "perdure.data.checkpoints:create_in_run",
        ("run.ledger.find_write(frame.path, r.WriteOp.CHECKPOINT, name, nth)", "None"),
    ),
    mutant(
        "the-collector-does-not-see-trees",
        "collecting removes what a checkpoint needs",
        CHECKPOINTS + "test_what_is_deleted_is_gone_and_frees_its_place",
        "perdure.journal.trees.read:reachable",
        ("sorted(nodes - opened)", "[]"),
    ),
    mutant(
        "deleted-checkpoints-stay-for-ever",
        "what was deleted goes on taking place",
        CHECKPOINTS + "test_what_is_deleted_is_gone_and_frees_its_place",
        "perdure.journal.objects:is_dropped",
        (
            "return (type(record).__name__, record.owner, record.name, record.version) in dropped",
            "return (type(record).__name__, record.owner, record.name, 0) in dropped",
        ),
    ),
    mutant(
        "cuts-move-with-values",
        "one changed key of many writes several parts of the dict anew",
        "unit/test_trees.py::test_another_value_of_a_key_moves_no_cut",
        "perdure.journal.trees.split:TreeBuilder._leaves",
        (
            "marks = [crc32(view[start : start + size]) for start, size in zip(edges, sizes[::2], strict=False)]",
            "marks = [crc32(view[start:end]) for start, end in pairwise(edges)]",
        ),
    ),
    mutant(
        "versions-share-nothing",
        "each checkpoint of a growing conversation is as large as all of it",
        CHECKPOINTS + "test_a_growing_conversation_is_stored_once",
        "perdure.journal.trees.split:tree_of",
        ("len(data) <= inline", "True"),
        Edit(
            "perdure.journal.trees.grown_list:pack_again", "len(data) <= INLINE_BYTES_MAX", "data"
        ),  # a list that grows is split there
    ),
    mutant(
        "a-list-relies-on-versions-that-are-gone",
        "a checkpoint of a list cannot be read when older ones have gone",
        CHECKPOINTS + "test_an_element_that_comes_back_is_stored_again_when_its_old_version_is_gone",
        "perdure.data.checkpoints:_pack",
        ("trees.ids_of(memo)", "before.ids"),
    ),
    mutant(
        "a-checkpoint-does-not-wait",
        "a checkpoint of a step that fails is there all the same",
        CHECKPOINTS + "test_it_lands_with_the_step_or_the_item_or_not_at_all",
        "perdure.data.checkpoints:_wait",
        (
            "room.asks += [_make_buffered(mark, wanted), *rule]",
            "yield from land(engine, Site.CHECKPOINT, [mark, *rule])",
        ),
    ),
    mutant(
        "a-body-does-not-see-its-checkpoints",
        "what a step has just kept is not there when it looks for it",
        CHECKPOINTS + "test_a_body_sees_what_it_has_made_and_deleted",
        "perdure.data.checkpoints:_find_checkpoint",
        ("not wanted and promised", "False"),
    ),
)
