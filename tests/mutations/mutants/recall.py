"""Recall: what is found first, among what, and because of what was said around it and when."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

MANY = "conformance/test_recall.py::"
CACHE = "conformance/test_recall_cache.py::"
PURE = "unit/test_recall.py::"

MUTANTS = (
    mutant(
        "meaning-counts-for-nothing",
        "a memory that says it in other words is not found",
        MANY + "test_what_passes_a_filter_is_found_however_many_better_ones_do_not[sqlite-listed]",
        "perdure.memory.recall.ranking:rank",
        ("score = words + meaning * piece.likeness", "score = words"),
    ),
    mutant(
        "strangers-lend-words",
        "a memory is found by the words of another conversation that stands beside it in the index",
        PURE + "test_an_answer_is_found_by_the_question_before_it",
        "perdure.memory.recall.lexical:NumpyTermScores._score_with_neighbours",
        (
            "joined = short[:-step] & short[step:] & (thread[:-step] == thread[step:])",
            "joined = short[:-step] & short[step:]",
        ),
    ),
    mutant(
        "a-time-that-is-asked-for-counts-for-nothing",
        "what was said in the month that was asked for comes no sooner than what was said in another",
        PURE + "test_a_named_time_decides_between_like_things",
        "perdure.memory.recall.ranking:rank",
        ("score += TIME * closeness(asked.spans, piece.day, piece.told)", "pass"),
    ),
    mutant(
        "what-passes-is-crowded-out",
        "memories of one user are not found when others have better ones",
        MANY + "test_what_passes_a_filter_is_found_however_many_better_ones_do_not[sqlite-asked one by one]",
        "perdure.memory.recall.candidate_sources:CheckedCandidates._read_first_passing",
        ("len(found) >= wanted or len(ids) < count", "True"),
    ),
    mutant(
        "what-does-not-pass-lends-words",
        "among many memories, one that nobody trusts makes its neighbours found",
        MANY + "test_what_does_not_pass_lends_nothing_among_many_either[sqlite]",
        "perdure.memory.recall.candidates:IndexSearch._read_neighbours",
        ('"chunks_in_ranges" if sure else "all_chunks_in_ranges"', '"all_chunks_in_ranges"'),
        Edit(
            "perdure.memory.recall.candidates:IndexSearch._read_neighbours", "*(self._filters if sure else ())", "*()"
        ),
    ),
    mutant(
        "what-was-forgotten-stays-parsed",
        "the words of a forgotten memory stay in the process that forgot it",
        CACHE + "test_forgetting_drops_what_this_process_keeps_of_the_text[sqlite]",
        "perdure.memory.erasure.forget:_commit_erasure",
        ("drop_cached(engine)", "pass"),
    ),
    mutant(
        "a-list-is-taken-for-the-last-one",
        "what another process has remembered or forgotten is not seen until the process ends",
        CACHE + "test_what_another_process_remembers_and_forgets_is_seen_at_once[sqlite]",
        "perdure.memory.recall.piece_cache:PieceCache.among",
        ("before is not None and before.ids == listed", "before is not None"),
    ),
    mutant(
        "new-vectors-have-no-sketch",
        "among many memories, the newest are not found by their meaning",
        "unit/test_vector_table.py::test_sketches_find_what_comparing_every_vector_finds",
        "perdure.data.search.vectors:NumpyVectorTable.extend",
        ("if self._sketches is not None:\n    self._sketches.put(first, self._rows[first:self._count])", "pass"),
    ),
)
