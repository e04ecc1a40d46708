"""`agent.state`: versions, landing, what is out of date."""

from __future__ import annotations

from tests.mutations.mutant import mutant

STATE = "conformance/test_state.py::"
LANDING = "conformance/test_state_landing.py::"

OF_STATE = (
    mutant(
        "a-revert-in-a-step-does-not-look-again",
        "a revert undoes what another process has written meanwhile, unseen",
        "conformance/test_state.py::test_a_revert_in_a_step_is_refused_when_others_change_the_namespace_meanwhile",
        "state.py",
        "buffer.asks += [*unchanged, *asks]",
        "buffer.asks += asks",
    ),
    mutant(
        "if-version-ignored",
        "who lost a race overwrites the winner",
        STATE + "test_versions_count_and_a_lost_race_shows_both_values",
        "journal/landing.py",
        "if ask.if_version is not None and ask.if_version != found.version:",
        "if False:",
    ),
    mutant(
        "what-was-read-does-not-matter",
        "a transaction writes what it made of values that have changed",
        STATE + "test_a_transaction_that_relied_on_old_values_is_refused",
        "sync/state.py",
        "self._asks.insert(0, Ask(place, if_version=seen.version, writes=False))",
        "pass",
    ),
    mutant(
        "state-dropped-by-a-step",
        "a change made in a step is acknowledged and not there",
        LANDING + "test_it_lands_with_the_step_or_not_at_all",
        "run/steps.py",
        "objects=made, asks=body.buffer.asks)",
        "objects=made)",
    ),
    mutant(
        "state-dropped-by-an-item",
        "a change made in an item is acknowledged and not there",
        LANDING + "test_it_lands_with_the_item",
        "run/items.py",
        "objects=buffer.objects, asks=buffer.asks)",
        "objects=buffer.objects)",
    ),
    mutant(
        "state-lands-at-once",
        "a change made in a step that fails stays",
        LANDING + "test_it_lands_with_the_step_or_not_at_all",
        "state.py",
        "    if buffer is not None:\n        buffer.asks += asks\n        return []\n",
        "",
    ),
    mutant(
        "an-effect-that-lost-a-race-is-in-doubt",
        "an effect that happened is asked about, because its state lost a race",
        LANDING + "test_an_effect_that_loses_a_race_has_happened_all_the_same",
        "run/outcomes.py",
        "        yield from it.run.commit(Site.EFFECT_OUTCOME, done, *more, objects=made)\n",
        "        raise\n",
    ),
    mutant(
        "the-paid-result-is-thrown-away",
        "a step that lost a race leaves nothing of what was paid for",
        LANDING + "test_a_step_that_loses_a_race_is_told_and_its_result_is_kept",
        "run/steps.py",
        "yield from _give_up(run, call, since, error, packed, objects)",
        "yield from _give_up(run, call, since, error)",
    ),
    mutant(
        "never-out-of-date",
        "a value is seen after its time to live",
        STATE + "test_what_has_a_time_to_live_is_gone_after_it",
        "journal/landing.py",
        "return self if self.value and (not self.expires or self.expires > now) else _NOTHING",
        "return self if self.value else _NOTHING",
    ),
    mutant(
        "versions-begin-anew",
        "a key that was deleted counts from 1 again, so that an old if_version fits",
        STATE + "test_what_is_deleted_is_gone_and_its_versions_go_on",
        "journal/landing.py",
        "made = (old.version + 1, revision, entry.value, entry.expires)",
        "made = (old.seen(self._now).version + 1, revision, entry.value, entry.expires)",
    ),
    mutant(
        "the-last-stream-wins",
        "views made anew have old values, because streams are folded one after the other",
        STATE + "test_eight_processes_lose_nothing",
        "store/sql/sqlite/queries.sql",
        "WHERE excluded.revision > entries.revision;",
        "WHERE true;",
    ),
    mutant(
        "revert-without-a-look",
        "a revert overwrites what was changed while it was prepared",
        "unit/test_state.py::test_a_revert_sees_what_came_in_between",
        "journal/landing.py",
        "if revisions[space] != wanted:",
        "if False:",
    ),
    mutant(
        "joined-before-they-are-decided",
        "a step that writes to the agent is lost when another one lands beside it",
        "unit/test_state.py::test_only_plain_appends_are_joined",
        "journal/append.py",
        "units = [unit for unit in (self, *others) if type(unit) is Append]",
        "units = [self, *(unit for unit in others if type(unit) is Append)]",
    ),
    mutant(
        "state-unsigned",
        "what was written in the open could be cut off unnoticed, although the process ended in order",
        "unit/test_verify.py::test_a_removed_entry_is_located",
        "engine.py",
        "if head.seq > head.sealed and (key := signer()) is not None:",
        "if False and (key := signer()) is not None:",
    ),
)

CHECKPOINTS = "conformance/test_checkpoints.py::"

OF_CHECKPOINTS = (
    mutant(
        "a-checkpoint-relies-on-what-is-gone",
        "a checkpoint is acknowledged, and half of it was collected",
        CHECKPOINTS + "test_the_next_one_does_not_rely_on_what_was_deleted_elsewhere",
        "journal/marks.py",
        "if mark.relies_on and (not found or found[0][3]):",
        "if False:",
    ),
    mutant(
        "a-checkpoint-is-made-again",
        "a resumed run makes its checkpoints a second time",
        CHECKPOINTS + "test_in_a_run_it_is_made_once",
        "checkpoints.py",
        "if run.ledger.recorded_write(frame.path, r.Op.CHECKPOINT, name, nth) is not None:",
        "if False:",
    ),
    mutant(
        "the-collector-does-not-see-trees",
        "collecting removes what a checkpoint needs",
        CHECKPOINTS + "test_what_is_deleted_is_gone_and_frees_its_place",
        "trees/read.py",
        "while wanted := sorted(nodes - opened):",
        "while wanted := []:",
    ),
    mutant(
        "deleted-checkpoints-stay-for-ever",
        "what was deleted goes on taking place",
        CHECKPOINTS + "test_what_is_deleted_is_gone_and_frees_its_place",
        "objects.py",
        "return type(record).__name__, record.owner, record.name, record.version",
        "return type(record).__name__, record.owner, record.name, 0",
    ),
    mutant(
        "cuts-move-with-values",
        "one changed key of many writes several parts of the dict anew",
        "unit/test_trees.py::test_another_value_of_a_key_moves_no_cut",
        "trees/split.py",
        "marks = [crc32(view[start : start + size]) for start, size in zip(edges, sizes[::2], strict=False)]",
        "marks = [crc32(view[start:end]) for start, end in pairwise(edges)]",
    ),
    mutant(
        "versions-share-nothing",
        "each checkpoint of a growing conversation is as large as all of it",
        CHECKPOINTS + "test_a_growing_conversation_is_stored_once",
        "trees/split.py",
        "if len(data) <= INLINE_BYTES_MAX:",
        "if True:",
    ),
    mutant(
        "a-checkpoint-does-not-wait",
        "a checkpoint of a step that fails is there all the same",
        CHECKPOINTS + "test_it_lands_with_the_step_or_the_item_or_not_at_all",
        "checkpoints.py",
        "        room.asks += [mark, *rule]\n        return 0\n",
        "        yield from land(engine, Site.CHECKPOINT, [mark, *rule])\n        return 0\n",
    ),
)
