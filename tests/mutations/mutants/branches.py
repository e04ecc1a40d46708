"""Runs that branch off others."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_branches.py::"
UNDO = "conformance/test_undo.py::"

BRANCHES = (
    mutant(
        "a-fork-repeats-what-had-begun",
        "the outcome that its origin knows is not the fork's",
        TESTS + "test_an_effect_that_had_begun_is_not_repeated",
        "branches/forks.py",
        "    outcomes = _outcomes(events, cut, begun)\n",
        "    outcomes: list[_Outcome] = []\n",
    ),
    mutant(
        "a-fork-believes-too-early",
        "a fork runs an effect that its origin may be at",
        TESTS + "test_an_effect_in_doubt_is_not_believed_absent_in_a_fork",
        "run/doubt.py",
        "    if run.ledger.is_shared(recorded):\n        return NEVER",
        "    if run.ledger.is_shared(recorded):\n        return 0",
    ),
    mutant(
        "a-fork-lands-what-its-origin-landed",
        "what an adopted effect wrote to the agent is written once more",
        TESTS + "test_an_effect_that_had_begun_is_not_repeated",
        "branches/forks.py",
        "if write.op != r.Op.EVENT)",
        ")",
    ),
    mutant(
        "a-fork-takes-its-origins-events",
        "a fork goes on after the events that its origin took, and not with its own",
        TESTS + "test_a_fork_waits_by_itself",
        "run/ledger.py",
        "        self.taken.clear()",
        "        pass",
    ),
    mutant(
        "what-a-fork-shares-is-folded",
        "the beginning of a fork goes into an archive",
        TESTS + "test_what_a_fork_shares_is_kept",
        "journal/folding.py",
        "        if forks:\n",
        "        if False:\n",
    ),
    mutant(
        "a-changed-beginning-is-not-noticed",
        "verify does not look at the entry where a fork parts from its origin",
        TESTS + "test_what_a_fork_shares_is_kept",
        "journal/verify.py",
        "            self._shared(record)\n",
        "            pass\n",
    ),
    mutant(
        "a-fork-saves-what-it-shares",
        "a fork that is opened for the first time is credited with its beginning",
        TESTS + "test_a_fork_shares_its_beginning_and_goes_its_own_way",
        "run/core.py",
        "credits=ledger.openings > 1",
        "credits=resumed",
    ),
    mutant(
        "an-undone-effect-is-forgotten",
        "an effect that was gone back over is done again without a word",
        UNDO + "test_an_effect_that_was_undone_is_not_silently_repeated",
        "run/undoing.py",
        'if effects == "keep" or ledger.by_intent[seq].in_doubt]',
        "if ledger.by_intent[seq].in_doubt]",
    ),
    mutant(
        "an-undo-counts-nothing-back",
        "after going back the same call is taken for another one",
        UNDO + "test_an_effect_that_was_undone_is_not_silently_repeated",
        "run/scope.py",
        "                self.counts[key] -= 1\n            del",
        "                pass\n            del",
    ),
    mutant(
        "a-replay-knows-nothing-of-an-undo",
        "after a crash the run does what was undone, and not what came after it",
        UNDO + "test_undo_under_asyncio",
        "run/lifecycle.py",
        "    if ledger.undos:\n",
        "    if False:\n",
    ),
    mutant(
        "an-undo-leaves-the-state",
        "others see the state that was undone",
        UNDO + "test_killed_around_an_undo",
        "journal/fold.py",
        "    return [*back, *closed, ",
        "    return [*closed, ",
    ),
)
