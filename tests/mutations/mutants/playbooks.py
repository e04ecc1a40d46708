"""Playbooks: attempts that are counted once, and answers that were refused."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

PLAYBOOKS = "conformance/test_playbooks.py::"

COUNTED_OUTSIDE = """(
    self._play._do(shelf.count_attempt(
        self._play._engine, self._plan.playbook, self.name, tier, play.AttemptOutcome(recorded['accepted'], 0, True)
    )),
    PlayAttempt(recorded['answer'], recorded['accepted']),
)[1]"""

MUTANTS = (
    mutant(
        "refused-answers-pass",
        "a playbook returns an answer that its verification refused",
        PLAYBOOKS + "test_a_refused_answer_goes_one_tier_up_and_is_offered_as_a_lesson[sqlite]",
        "perdure.api.sync.playbooks:PlayStep.attempt",
        ("made.accepted", "made"),
    ),
    mutant(
        "versions-share-statistics",
        "a changed playbook keeps the statistics of the one before",
        PLAYBOOKS + "test_versions_are_kept_compared_and_start_their_statistics_anew[sqlite]",
        "perdure.work.playbooks.shelf:read_record",
        ("version == playbook.version and len(parts) == 2", "len(parts) == 2"),
    ),
    mutant(
        "models-share-statistics",
        "a changed model keeps the statistics of the one before",
        "unit/test_playbook_statistics.py::test_another_model_behind_a_tier_starts_its_statistics_anew",
        "perdure.work.playbooks.statistics:add_attempt",
        ("attempt.model != known.model", "False"),
    ),
    mutant(
        "attempts-counted-beside-their-step",
        "a resumed play counts its finished attempts again",
        "crash/test_playbooks.py::test_killed_plays_come_to_what_undisturbed_ones_do[sqlite-sync]",
        "perdure.api.sync.playbooks:PlayStep._run_step",
        ("PlayAttempt(recorded['answer'], recorded['accepted'])", COUNTED_OUTSIDE),
        Edit(
            "perdure.work.playbooks.play:record_attempt",
            "shelf.count_attempt(run.engine, plan.playbook, attempt.step, attempt.tier, outcome)",
            "()",
        ),
    ),
    mutant(
        "lost-plans-drawn-anew",
        "a play that is killed while it plans may choose other tiers than it would have",
        PLAYBOOKS + "test_a_plan_that_was_lost_in_a_crash_is_drawn_the_same_again[sqlite]",
        "perdure.work.playbooks.play:make_plan",
        ("_seed_of(engine.name, book, run.id)", "int.from_bytes(engine.clock.salt()[:8], 'big')"),
    ),
    mutant(
        "refused-calls-elsewhere-pass",
        "an answer of a call made elsewhere counts as accepted though it was refused",
        PLAYBOOKS + "test_a_program_makes_the_call_itself_and_tells_the_outcome[sqlite]",
        "perdure.api.sync.playbooks:Play.record_attempt",
        ("bool(accepted)", "True"),
    ),
)
