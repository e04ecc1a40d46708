"""Memory: what is forgotten is gone, what is replaced is readable, and trust does not rise."""

from __future__ import annotations

from tests.mutations.mutant import mutant

KEEPING = "conformance/test_memory.py::"
FORGETTING = "conformance/test_memory_forgetting.py::"
EVERYWHERE = "conformance/test_memory_erasure.py::"
SCRUBBING = "unit/test_scrubbing.py::"
LETTING_GO = "conformance/test_memory_lifecycle.py::"
INSIDE = "conformance/test_memory_in_runs.py::"
FACTS = "conformance/test_memory_facts.py::"


MUTANTS = (
    mutant(
        "a-forgotten-entry-keeps-its-body",
        "the journal still has the text of a forgotten memory",
        FORGETTING + "test_nothing_is_left_of_what_was_forgotten",
        "perdure.memory.erasure.forget:_draw_up_plan",
        ('also.append(Statement("erase_entry", (stream, seq, chain.body_digest(entry.body))))', "pass"),
    ),
    mutant(
        "a-forgotten-object-stays",
        "the large text of a forgotten memory can be read by its id",
        FORGETTING + "test_nothing_is_left_of_what_was_forgotten",
        "perdure.memory.erasure.forget:_EraseMemories.script",
        ('also += [Statement("drop_object", (identity,)) for identity in self.gone]', "pass"),
    ),
    mutant(
        "a-shared-object-is-taken",
        "another memory loses its text with the one that was forgotten",
        FORGETTING + "test_what_two_share_stays_for_the_other",
        "perdure.journal.object_gc:ExactFilter.add",
        ("identity in self._watched", "False"),
    ),
    mutant(
        "the-log-is-not-emptied",
        "the bytes of a forgotten memory are in the log of the file",
        FORGETTING + "test_nothing_is_left_of_what_was_forgotten[sqlite]",
        "perdure.store.sqlite.store:SqliteStore.scrub",
        ('return "" if self._one_connection else scrub(self, self.path, self.durability, texts, token)', 'return ""'),
    ),
    mutant(
        "what-was-replaced-comes-back",
        "an old fact counts again when what has replaced it is forgotten",
        FORGETTING + "test_what_was_replaced_stays_so_and_a_repetition_goes_with_its_source",
        "perdure.memory.erasure.forget:_consequences",
        ('row.what == "superseded"', 'row.what == "never"'),
    ),
    mutant(
        "trust-rises",
        "what was made of something untrusted is trusted",
        KEEPING + "test_the_same_again_is_counted_and_the_opposite_is_surfaced",
        "perdure.memory.remember:_keep",
        ("trust = min([wish.trust, *(memory.trust for memory in origins)])", "trust = wish.trust"),
    ),
    mutant(
        "whom-nobody-trusts-replaces",
        "an untrusted source takes the place of a trusted fact",
        KEEPING + "test_the_same_again_is_counted_and_the_opposite_is_surfaced",
        "perdure.memory.remember:_keep",
        ("trust < TRUSTED <= memory.trust", "False"),
    ),
    mutant(
        "what-was-made-of-lies-stays",
        "a summary of withdrawn memories still counts",
        LETTING_GO + "test_what_came_from_a_bad_source_is_undone",
        "perdure.memory.lifecycle.rollback:_plan_rollback",
        ("derived = _find_derived(engine, [memory.id for memory in own])", "derived: list[Memory] = []"),
    ),
    mutant(
        "a-body-does-not-find-its-own",
        "a step recalls nothing of what it has just remembered",
        INSIDE + "test_a_body_recalls_what_it_has_remembered_and_nobody_else_does[sqlite]",
        "perdure.memory.recall.search:recall",
        ("(engine, query, list_uncommitted(engine))", "(engine, query, [])"),
    ),
    mutant(
        "what-waits-is-in-no-thread",
        "what a step remembers is found otherwise than when it has landed",
        INSIDE + "test_what_is_found_in_a_step_is_what_is_found_after_it[sqlite-all-words]",
        "perdure.memory.recall.pending:BufferedMemories._find_thread_ends",
        ("ends[spot.thread] = piece.thread, piece.place + max(first[spot.thread] - spot.place, 1)", "pass"),
    ),
    mutant(
        "a-promised-name-leads-nowhere",
        "what a step replaces, and was known already, still counts",
        INSIDE + "test_what_was_known_already_is_meant_by_the_name_that_it_got[sqlite]",
        "perdure.journal.memory_writes:_MemoryDecider._decide",
        ("self._twins[kept.id] = verdict.twin", ""),
    ),
    mutant(
        "a-rumour-replaces-by-another-name",
        "an untrusted source takes the place of a trusted fact that it has said again",
        INSIDE + "test_what_was_known_already_is_meant_by_the_name_that_it_got[sqlite]",
        "perdure.journal.memory_writes:_MemoryDecider._replace_counted_ids",
        ("memory_id in twins and kept.trust < TRUSTED <= twins[memory_id].trust", "False"),
    ),
    mutant(
        "a-batch-compares-all-with-all",
        "ten thousand memories about one thing take hours",
        INSIDE + "test_each_of_many_is_compared_with_a_few[sqlite]",
        "perdure.journal.memory_writes:_MemoryCandidates.find_newest",
        ("islice(reversed(self._found[look].values()), MEMORIES_COMPARED_MAX)", "reversed(self._found[look].values())"),
    ),
    mutant(
        "what-is-put-between-has-no-end",
        "a fact of the past counts beside the newer one",
        FACTS + "test_what_is_put_between_two_ends_where_the_next_begins[sqlite]",
        "perdure.journal.project_memories:_project_kept",
        ("record.followed", "record.followed[:0]"),
    ),
    mutant(
        "the-undone-leaves-two-beside-each-other",
        "the facts before and after one that is undone count at the same time",
        FACTS + "test_what_is_undone_between_others_brings_nothing_back_beside_them[sqlite]",
        "perdure.memory.lifecycle.rollback:_plan_rollback",
        ("bridged = tuple(_bridges(marks, going))", "bridged = tuple(_bridges(marks, going))[:0]"),
    ),
    mutant(
        "an-end-is-not-heard",
        "who says when a fact is over only counts it once more",
        FACTS + "test_a_stated_end_ends_a_fact[sqlite]",
        "perdure.memory.facts:FactJudge._is_ended_by_new",
        ("bool(longer)", "False"),
    ),
    mutant(
        "what-never-held-leaves-its-traces",
        "two facts hold at a time, since the one that was wrong had ended another",
        FACTS + "test_what_was_never_so_leaves_no_gap_and_nothing_beside[sqlite-False]",
        "perdure.journal.fact_intervals:SupersessionChains._find_superseded",
        ("over.update(dict.fromkeys(new))\ntodo += new", "pass"),
    ),
    mutant(
        "a-rumour-ends-a-fact",
        "an untrusted source takes the place of a trusted fact that was put before it",
        FACTS + "test_only_what_is_about_the_same_follows[sqlite]",
        "perdure.journal.fact_intervals:SupersessionChains.complete",
        ("against = [link.id for link in after if link.trust < TRUSTED <= kept.trust]", "against: list[str] = []"),
    ),
    mutant(
        "tomorrow-is-told-as-today",
        "a fact that begins later is listed as if it was so already",
        FACTS + "test_a_fact_that_begins_later_is_not_told_as_if_it_was_so[sqlite]",
        "perdure.store.sql.sqlite.queries:memories_page",
        ("(m.kind = 'episodic' OR m.valid_from <= m.recorded", "(m.kind <> '' OR m.valid_from <= m.recorded"),
    ),
    mutant(
        "a-body-takes-tomorrow-for-today",
        "a step sees what begins later as if it was so already",
        FACTS + "test_a_fact_that_begins_later_is_not_told_as_if_it_was_so[sqlite]",
        "perdure.memory.visible:_counts",
        ("begun = kept.valid_from <= at or later", "begun = True"),
    ),
    mutant(
        "nobody-makes-it-good",
        "a forgotten text stays in the log of a file, if who forgot it was killed right after",
        FORGETTING + "test_killed_while_it_forgets_all_of_it_is_there_or_nothing[sqlite]",
        "perdure.kernel.engine:Engine._open",
        ("place.store.finish_scrub()", ""),
    ),
    mutant(
        "a-large-file-says-nothing",
        "forget reports that all is gone, and the text is in the free space of a large file",
        SCRUBBING + "test_a_file_that_is_too_large_is_told_and_written_anew_when_somebody_asks",
        "perdure.store.sqlite.scrub:_scrub_file",
        ("return TOO_LARGE", 'return ""'),
    ),
    mutant(
        "a-file-without-empty-pages-is-not-written-anew",
        "gc --vacuum leaves what was forgotten in the gaps of pages",
        SCRUBBING + "test_a_file_that_is_too_large_is_told_and_written_anew_when_somebody_asks",
        "perdure.store.sqlite.vacuum:shrink",
        (
            "whole or ((worth_it or owed) and left <= VACUUM_BYTES_MAX)",
            "(whole and empty > 0) or ((worth_it or owed) and left <= VACUUM_BYTES_MAX)",
        ),
    ),
    mutant(
        "what-is-deleted-is-not-overwritten",
        "what SQLite has moved from page to page before it was forgotten stays in the file",
        SCRUBBING + "test_what_is_deleted_is_overwritten_at_any_time",
        "perdure.store.sqlite.file:_configure",
        ('_pragma(connection, "secure_delete", OVERWRITES, "fast")', "pass"),
    ),
    mutant(
        "vectors-are-not-looked-for",
        "the vector of a forgotten memory stays in a gap of the file",
        SCRUBBING + "test_words_vectors_and_large_values_are_looked_for_too",
        "perdure.memory.erasure.remnants:remnants_of",
        ("rows += _vectors(engine, [memory.id for memory in memories])", "pass"),
    ),
    mutant(
        "words-stay-in-their-index",
        "the words of a document that is gone can be read in the index",
        "unit/test_lexical_index.py::test_the_words_of_a_document_that_is_dropped_go_for_good",
        "perdure.store.sql.sqlite.migrations.0001_schema",
        (
            "INSERT INTO document_words (document_words, rank) VALUES ('secure-delete', 1)",
            "INSERT INTO document_words (document_words, rank) VALUES ('secure-delete', 0)",
        ),
    ),
    mutant(
        "a-fork-loses-its-beginning",
        "a fork at work does steps again that its origin has done",
        EVERYWHERE + "test_what_a_fork_at_work_shares_stays_until_it_is_over",
        "perdure.memory.erasure.reliance:RunReliance.explain",
        ("seq <= self._runs[fork].forked_at", "False"),
    ),
    mutant(
        "a-new-fork-loses-its-beginning",
        "a fork that is made while somebody forgets does steps again",
        EVERYWHERE + "test_a_fork_at_the_moment_of_an_erasure_gets_all_of_it",
        "perdure.memory.erasure.forget:_EraseMemories.script",
        ("yield from self._check_unreferenced()", ""),
    ),
    mutant(
        "a-run-loses-its-part",
        "a run that is resumed finds a run inside of it without its steps",
        EVERYWHERE + "test_what_is_part_of_a_run_at_work_stays_until_that_is_over",
        "perdure.memory.erasure.reliance:RunReliance.explain",
        (
            "run.parent and (name := self._find_unfinished_run(run.parent))",
            "False and (name := self._find_unfinished_run(run.parent))",
        ),
    ),
    mutant(
        "an-erased-result-opens-its-run-again",
        "a finished run is at work again when the views are made anew",
        EVERYWHERE + "test_the_result_of_a_run_that_is_over_is_erased_and_says_so",
        "perdure.records:remains",
        ('return RunFinishedEntry(b"") if kind == EntryKind.RUN_FINISHED else None', "return None"),
    ),
    mutant(
        "home-remembers",
        "what an agent has forgotten while it was away is in its old store when it comes back",
        EVERYWHERE + "test_what_an_agent_forgets_while_it_is_away_is_forgotten_at_home_too",
        "perdure.transfer.import_file:import_agent",
        ("_erase_here_too(engine, arrival.token)", "pass"),
    ),
    mutant(
        "a-summary-keeps-the-words",
        "the summary of a conversation has the first words of what was forgotten everywhere",
        EVERYWHERE + "test_a_summary_of_what_was_said_is_told_and_goes_with_it",
        "perdure.memory.erasure.find:TextSearch._summaries",
        ("(covers or self._is_begun_in(packed)) and not self.has(summary)", "False"),
    ),
    mutant(
        "a-database-outside-remembers",
        "vectors of what was forgotten without it stay in a vector database",
        EVERYWHERE + "test_an_unreachable_vector_database_catches_up_on_erasure",
        "perdure.memory.recall.vector_index:_attach",
        ("index.count(space_of(engine.store, engine.stream, embedder)) > has", "False"),
    ),
    mutant(
        "an-archive-hides-a-user",
        "what a rule has let go of a user stays in an archive when everything of the user is forgotten",
        LETTING_GO + "test_a_filter_means_what_is_only_in_an_archive",
        "perdure.memory.erasure.forget:_plan_erasure",
        ("put_away = find_archived(engine, which.query)", "put_away = find_archived(engine, None)"),
    ),
    mutant(
        "forgets-for-others-too",
        "what one agent forgets is erased from the runs and the state of all others",
        EVERYWHERE + "test_what_other_agents_have_is_told_and_left",
        "perdure.memory.erasure.erase:_CopySorter._explain_stay",
        ("self._owners.find_other_owner(stream, record)", '""'),
    ),
    mutant(
        "lands-although-it-was-forgotten",
        "what a step has forgotten again is remembered when it lands",
        "conformance/test_memory_in_runs.py::test_what_a_step_forgets_again_does_not_land",
        "perdure.memory.visible:discard_pending",
        ("discard_writes(engine.store, meant)", "pass"),
    ),
    mutant(
        "an-archive-is-everybodys",
        "an agent takes out of archives what another one had let go",
        LETTING_GO + "test_a_filter_means_what_is_only_in_an_archive",
        "perdure.memory.archive:find_dropped_ids",
        ("(own if record.owner == engine.stream else others)", "own"),
    ),
)
