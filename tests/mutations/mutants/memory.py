"""Memory: what is forgotten is gone, what is replaced is readable, and trust does not rise."""

from __future__ import annotations

from tests.mutations.mutant import mutant

KEEPING = "conformance/test_memory.py::"
FORGETTING = "conformance/test_memory_forgetting.py::"
LETTING_GO = "conformance/test_memory_letting_go.py::"

MEMORY = (
    mutant(
        "a-forgotten-entry-keeps-its-body",
        "the journal still has the text of a forgotten memory",
        FORGETTING + "test_nothing_is_left_of_what_was_forgotten",
        "memory/forgetting.py",
        'also.append(Statement("erase_event", (stream, seq, chain.body_digest(body))))',
        "pass",
    ),
    mutant(
        "a-forgotten-object-stays",
        "the large text of a forgotten memory can be read by its id",
        FORGETTING + "test_nothing_is_left_of_what_was_forgotten",
        "memory/forgetting.py",
        "            self.dropped = len(unused)",
        "            also = list(plan.also)",
    ),
    mutant(
        "a-shared-object-is-taken",
        "another memory loses its text with the one that was forgotten",
        FORGETTING + "test_what_two_share_stays_for_the_other",
        "collect.py",
        "        if identity in self._watched:",
        "        if False:",
    ),
    mutant(
        "the-log-is-not-emptied",
        "the bytes of a forgotten memory are in the log of the file",
        FORGETTING + "test_nothing_is_left_of_what_was_forgotten[sqlite]",
        "store/sqlite.py",
        'return "" if self._one_connection else scrub(self.path, self.durability, texts)',
        'return ""',
    ),
    mutant(
        "what-was-replaced-comes-back",
        "an old fact counts again when what has replaced it is forgotten",
        FORGETTING + "test_what_was_replaced_stays_so_and_a_repetition_goes_with_its_source",
        "memory/forgetting.py",
        'if what == "superseded" and other in going',
        'if what == "never" and other in going',
    ),
    mutant(
        "trust-rises",
        "what was made of something untrusted is trusted",
        KEEPING + "test_the_same_again_is_counted_and_the_opposite_is_surfaced",
        "memory/keeping.py",
        "trust = min([wish.trust, *(it.trust for it in origins)])",
        "trust = wish.trust",
    ),
    mutant(
        "whom-nobody-trusts-replaces",
        "an untrusted source takes the place of a trusted fact",
        KEEPING + "test_the_same_again_is_counted_and_the_opposite_is_surfaced",
        "memory/keeping.py",
        "if trust < TRUSTED <= it.trust]",
        "if False]",
    ),
    mutant(
        "what-was-made-of-lies-stays",
        "a summary of withdrawn memories still counts",
        LETTING_GO + "test_what_came_from_a_bad_source_is_undone",
        "memory/rolling.py",
        "derived = _made_of(engine, [it.id for it in own])",
        "derived: list[Memory] = []",
    ),
)
