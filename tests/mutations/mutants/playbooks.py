"""Playbooks: attempts that are counted once, and answers that were refused."""

from __future__ import annotations

from tests.mutations.mutant import mutant

PLAYBOOKS = "conformance/test_playbooks.py::"

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
        "unit/test_playbook_choice.py::test_another_model_behind_a_tier_starts_its_statistics_anew",
        "perdure.work.playbooks.statistics:add_attempt",
        ("attempt.model != known.model", "False"),
    ),
)
