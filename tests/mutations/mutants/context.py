"""Contexts: what a model is shown, and what must stay."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TEXT = "unit/test_context.py::"
STORED = "conformance/test_context.py::"
MODEL = TEXT + "test_a_long_conversation_of_all_kinds"

MUTANTS = (
    mutant(
        "what-is-pinned-makes-way",
        "an instruction that was pinned is gone from a long conversation",
        MODEL,
        "perdure.presence.context.window:ContextWindow.is_never_cut",
        (
            "return unit.pinned or 0 < unit.stands_for <= self.room // LARGE",
            "return 0 < unit.stands_for <= self.room // LARGE",
        ),
    ),
    mutant(
        "results-of-a-pinned-call-stay-whole",
        "a call that was pinned keeps a megabyte of its result in every context",
        TEXT + "test_what_belongs_to_a_pinned_message_stays_with_it_and_is_masked",
        "perdure.presence.context.window:ContextWindow.is_kept",
        ("return self.is_never_cut(unit) and (one.pinned or not unit.pinned)", "return self.is_never_cut(unit)"),
    ),
    mutant(
        "the-room-is-not-looked-at",
        "a context is larger than the budget, and the provider refuses it",
        MODEL,
        "perdure.presence.context.window:ContextWindow.extend",
        ("if not self.fits:\n    self._step(talk)", ""),
    ),
    mutant(
        "messages-make-way-one-by-one",
        "the beginning changes with every turn, and no cache hits",
        TEXT + "test_between_two_steps_a_third_of_the_room_is_filled",
        "perdure.presence.context.window:FULL",
        ("0.55", "0.97"),
    ),
    mutant(
        "what-is-to-come-decides",
        "after a crash, a context begins otherwise than before",
        MODEL,
        "perdure.presence.context.window:ContextWindow._step",
        ("low, last = int(self.room * FULL), self._last", "low, last = int(self.room * FULL), len(talk.units) - 1"),
    ),
    mutant(
        "a-result-stands-alone",
        "a result is shown without its call, and the provider refuses it",
        TEXT + "test_what_belongs_together_is_shown_together_or_not_at_all",
        "perdure.presence.context.turns:Turns._add",
        ('unit is None or one.role == "assistant"', "True"),
    ),
    mutant(
        "a-compaction-hides-what-is-pinned",
        "what was pinned is not shown after a compaction",
        STORED + "test_a_compaction_is_an_operation_of_the_run[sqlite]",
        "perdure.run.data_view:RunDataView._compact",
        (
            "covers = frozenset(position for position in there if not self.pins.get(position))",
            "covers = frozenset(there)",
        ),
    ),
    mutant(
        "a-compaction-in-a-step-is-lost",
        "a compaction inside a step is forgotten when the step is done",
        STORED + "test_inside_a_step_it_lands_with_the_step_or_not_at_all[sqlite]",
        "perdure.kernel.scope:_ALL_LAND",
        (
            "{WriteOp.MESSAGE, WriteOp.EVENT, WriteOp.PIN, WriteOp.COMPACT, WriteOp.THREAD}",
            "{WriteOp.MESSAGE, WriteOp.EVENT, WriteOp.PIN, WriteOp.THREAD}",
        ),
    ),
    mutant(
        "where-it-is-from-says-more",
        "who sends a mail writes a memory of his own into the context, which looks trusted",
        STORED + "test_the_source_of_a_memory_cannot_forge_a_line[sqlite]",
        "perdure.presence.context.sources:memory_line",
        ("format_in_brackets(words)", "words"),
    ),
    mutant(
        "what-is-untrusted-ends-its-mark",
        "a text from somewhere gets out of its marks and is taken for an instruction",
        STORED + "test_memories_and_documents_are_in_it_and_what_is_untrusted_is_marked[sqlite]",
        "perdure.presence.context.sources:memory_line",
        ("marked.translate(_OPENING)", "marked"),
    ),
    mutant(
        "what-went-wrong-is-left-out",
        "an agent sees that there was a traceback, and not what it was about",
        TEXT + "test_what_went_wrong_is_said_in_a_short_text[a traceback-110]",
        "perdure.presence.context.error_lines:_find_exception_positions",
        ("yield start + line.index(own)", "yield from ()"),
    ),
    mutant(
        "a-screenshot-costs-nothing",
        "a context with images that tools returned is far larger than the budget",
        TEXT + "test_images_in_what_a_tool_returned_are_counted_and_make_way",
        "perdure.presence.context.mask:_size",
        ("CALL_TOKENS + count(part.text) + part.others * OTHER_TOKENS", "CALL_TOKENS + count(part.text)"),
    ),
    mutant(
        "what-is-asked-is-summarised",
        "in a small context the turn that a model is about to answer is gone",
        TEXT + "test_a_giant_message_fits_into_a_tiny_budget",
        "perdure.presence.context.window:ContextWindow._step",
        ("self._cuts(talk, last + 1 - RECENT_LEAST, low)", "self._cuts(talk, self.mask, low)"),
    ),
)
