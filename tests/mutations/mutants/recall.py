"""Recall: what is found first, among what, and because of what was said around it and when."""

from __future__ import annotations

from tests.mutations.mutant import Edit, mutant

MANY = "conformance/test_recall.py::"
PURE = "unit/test_recall.py::"

OF_RECALL = (
    mutant(
        "meaning-counts-for-nothing",
        "a memory that says it in other words is not found",
        MANY + "test_what_passes_a_filter_is_found_however_many_better_ones_do_not[sqlite-listed]",
        "memory/fusion.py",
        "score = words + meaning * piece.likeness",
        "score = words",
    ),
    mutant(
        "strangers-lend-words",
        "a memory is found by the words of another conversation that stands beside it in the index",
        PURE + "test_an_answer_is_found_by_the_question_before_it",
        "memory/boards.py",
        "joined = short[:-step] & short[step:] & (thread[:-step] == thread[step:])",
        "joined = short[:-step] & short[step:]",
    ),
    mutant(
        "a-time-that-is-asked-for-counts-for-nothing",
        "what was said in the month that was asked for comes no sooner than what was said in another",
        PURE + "test_a_named_time_decides_between_like_things",
        "memory/fusion.py",
        "score += TIME * closeness(asked.spans, piece.day, piece.told)",
        "pass",
    ),
    mutant(
        "what-passes-is-crowded-out",
        "memories of one user are not found when others have better ones",
        MANY + "test_what_passes_a_filter_is_found_however_many_better_ones_do_not[sqlite-asked one by one]",
        "memory/drawing.py",
        "if len(found) >= wanted or len(ids) < count:",
        "if True:",
    ),
    mutant(
        "what-does-not-pass-lends-words",
        "among many memories, one that nobody trusts makes its neighbours found",
        MANY + "test_what_does_not_pass_lends_nothing_among_many_either[sqlite]",
        "memory/candidates.py",
        '"pieces_near" if sure else "pieces_around"',
        '"pieces_around"',
        Edit("memory/candidates.py", "*(self._filters if sure else ())", "*()"),
    ),
)
