"""Runs that branch off others."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_branches.py::"
UNDO = "conformance/test_undo.py::"

MUTANTS = (
    mutant(
        "a-fork-repeats-what-had-begun",
        "the outcome that its origin knows is not the fork's",
        TESTS + "test_an_effect_that_had_begun_is_not_repeated",
        "perdure.run.branches.fork:_plan",
        ("outcomes = _outcomes(events, cut, begun)", "outcomes: list[_Outcome] = []"),
    ),
    mutant(
        "a-fork-believes-too-early",
        "a fork runs an effect that its origin may be at",
        TESTS + "test_an_effect_in_doubt_is_not_believed_absent_in_a_fork",
        "perdure.run.doubt:_compute_holder_end",
        ("if run.ledger.is_shared(recorded):\n    return NEVER", "if run.ledger.is_shared(recorded):\n    return 0"),
    ),
    mutant(
        "a-fork-lands-what-its-origin-landed",
        "what an adopted effect wrote to the agent is written once more",
        TESTS + "test_an_effect_that_had_begun_is_not_repeated",
        "perdure.run.branches.fork:_outcomes",
        ("(write for write in record.writes if write.op != r.WriteOp.EVENT)", "(write for write in record.writes )"),
    ),
    mutant(
        "a-fork-takes-its-origins-events",
        "a fork goes on after the events that its origin took, and not with its own",
        TESTS + "test_a_fork_waits_by_itself",
        "perdure.run.ledger:Ledger._on_forked",
        ("self.taken.clear()", "pass"),
    ),
    mutant(
        "what-a-fork-shares-is-compacted",
        "the beginning of a fork goes into an archive",
        TESTS + "test_what_a_fork_shares_is_kept",
        "perdure.journal.compaction:Compact.script",
        ("if forks:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "a-changed-beginning-is-not-noticed",
        "verify does not look at the entry where a fork parts from its origin",
        TESTS + "test_what_a_fork_shares_is_kept",
        "perdure.journal.verify:_StreamInspection._check_first_entry",
        ("self._check_shared_entry(record)", "pass"),
    ),
    mutant(
        "a-fork-saves-what-it-shares",
        "a fork that is opened for the first time is credited with its beginning",
        TESTS + "test_a_fork_shares_its_beginning_and_goes_its_own_way",
        "perdure.run.core:RunCore.__init__",
        ("ledger.openings > 1", "resumed"),
    ),
    mutant(
        "an-undone-effect-is-forgotten",
        "an effect that was gone back over is done again without a word",
        UNDO + "test_an_effect_that_was_undone_is_not_silently_repeated",
        "perdure.run.undo:plan",
        ('effects == "keep" or ledger.by_intent[seq].in_doubt', "ledger.by_intent[seq].in_doubt"),
    ),
    mutant(
        "an-undo-counts-nothing-back",
        "after going back the same call is taken for another one",
        UNDO + "test_an_effect_that_was_undone_is_not_silently_repeated",
        "perdure.kernel.scope:Frame.rewind_counts",
        ("self.counts[key] -= 1", "pass"),
    ),
    mutant(
        "a-replay-knows-nothing-of-an-undo",
        "after a crash the run does what was undone, and not what came after it",
        UNDO + "test_undo_under_asyncio",
        "perdure.run.lifecycle:_read_ledger",
        ("ledger.undos", "False"),
    ),
    mutant(
        "an-undo-leaves-the-state",
        "others see the state that was undone",
        UNDO + "test_killed_around_an_undo",
        "perdure.journal.project:_undone",
        (
            "[*back, *closed, *([] if record.inside else _status(stream, r.RunStatus.INTERRUPTED, at, 0, told))]",
            "[*closed, *([] if record.inside else _status(stream, r.RunStatus.INTERRUPTED, at, 0, told))]",
        ),
    ),
)
