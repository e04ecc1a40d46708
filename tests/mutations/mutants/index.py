"""What values are found by, many namespaces at once, and how long items live."""

from __future__ import annotations

from tests.mutations.mutant import mutant

KEPT = "adapters/test_store.py::"

MUTANTS = (
    mutant(
        "old-texts-stay",
        "what was overwritten or deleted is still in the index",
        KEPT + "test_what_has_changed_is_found_by_what_it_is_now",
        "perdure.journal.agent_writes:_WriteResolver._index",
        ("old.indexed", "False"),
    ),
    mutant(
        "an-old-version-is-found",
        "a text in memory is found although what it belongs to has changed",
        KEPT + "test_what_has_changed_is_found_by_what_it_is_now",
        "perdure.data.search.key_ranking:_filter_current",
        (
            "kept is not None and kept.version == version and (wanted is None or wanted(kept)) and given < most",
            "kept is not None and (wanted is None or wanted(kept)) and given < most",
        ),
    ),
    mutant(
        "prefixes-leak",
        "a search below one namespace finds what is in another that begins alike",
        KEPT + "test_namespaces_that_begin_alike_are_others",
        "perdure.store.sql.sqlite.queries:agent_state_under",
        (
            "AND (:tree = '' OR namespace = :first OR substr(namespace, 1, length(:tree)) = :tree)",
            "AND (:tree = :tree)",
        ),
    ),
    mutant(
        "reading-makes-versions",
        "an item that is only read gets another version, and somebody's put_if is refused",
        KEPT + "test_items_live_as_long_as_somebody_reads_them",
        "perdure.journal.agent_writes:_WriteResolver._change",
        ("version = old.version if entry.touched else old.version + 1", "version = old.version + 1"),
    ),
    mutant(
        "a-reader-undoes-a-write",
        "what was read before somebody changed it takes the place of the change",
        KEPT + "test_a_reader_takes_nothing_back",
        "perdure.journal.agent_writes:_WriteResolver._touch",
        ("changed or ask.touches != stored.as_seen_at(self._now).version", "changed"),
    ),
)
