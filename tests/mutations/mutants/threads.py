"""Threads: what is relied on is there, what was dropped stays away, what has changed is seen."""

from __future__ import annotations

from tests.mutations.mutant import mutant

SAVER = "adapters/test_saver.py::"

THREADS = (
    mutant(
        "a-dropped-thread-is-relied-on",
        "a checkpoint refers to objects of one that was deleted meanwhile, and late comers bring it back",
        SAVER + "test_what_comes_late_does_not_bring_a_deleted_thread_back",
        "threads/writing.py",
        'Statement("check_thread", (engine.stream, thread, lives[thread]), Moved) for thread in threads]',
        'Statement("check_thread", (engine.stream, thread, lives[thread]), Moved) for thread in threads[:0]]',
    ),
    mutant(
        "a-late-write-is-kept",
        "what is written to a deleted checkpoint takes place for ever",
        SAVER + "test_what_comes_late_does_not_bring_a_deleted_thread_back",
        "threads/writing.py",
        "if life.number and _was_dropped(engine, point, life):",
        "if False:",
    ),
    mutant(
        "two-writers-fork-a-thread",
        "the second of two writers is not refused",
        SAVER + "test_a_second_writer_is_refused_and_time_travel_is_not",
        "threads/writing.py",
        "        if wanted.on_head:",
        "        if False:",
    ),
    mutant(
        "a-message-changed-in-place-is-missed",
        "a checkpoint has the text that a message had before",
        SAVER + "test_a_message_that_was_changed_in_place_is_stored_as_it_is",
        "codec/prints.py",
        "_key(value[start : min(start + _SOME, count)]) == key for",
        "key for",
    ),
    mutant(
        "bytes-are-taken-for-bytearrays",
        "two values of different types are one for the process that has put the first",
        SAVER + "test_a_message_that_was_changed_in_place_is_stored_as_it_is",
        "trees/growing.py",
        "if prints.is_exact(more) else ()",
        "if True else ()",
    ),
    mutant(
        "pruning-forgets-what-deltas-need",
        "a channel that is made of its history is empty after a prune",
        SAVER + "test_pruning_keeps_what_delta_channels_need",
        "threads/keeping.py",
        "            wanted.update(point.put.since)",
        "            wanted.update(())",
    ),
    mutant(
        "plain-is-taken-for-encrypted",
        "a row that somebody else has written in clear is believed",
        SAVER + "test_a_serializer_is_used_for_everything_and_nothing_is_taken_for_encrypted_that_is_not",
        "adapters/langgraph/forms.py",
        "            if self._secret:\n                raise _in_clear()\n            return value",
        "            return value",
    ),
)
