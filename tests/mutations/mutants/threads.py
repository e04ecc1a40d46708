"""Chat threads, and replay that never drops a difference."""

from __future__ import annotations

from tests.mutations.mutant import mutant

DIFFERS = "conformance/test_replay_differs.py::"
CHAT = "conformance/test_chat_threads.py::"
LASTING = "conformance/test_chat_threads_lasting.py::"
DELETED = "conformance/test_chat_threads_deleted.py::"
COMPACTED = "conformance/test_chat_threads_compacted.py::"
AT_ONCE = "conformance/test_chat_threads_at_once.py::"

MUTANTS = (
    mutant(
        "another-value-is-dropped",
        "the second message of a conversation is lost without a word",
        DIFFERS + "test_two_texts_under_one_run_are_refused",
        "perdure.run.core:RunCore.compare",
        ("codec.digest(known, what) == codec.digest(value, what)", "True"),
    ),
    mutant(
        "another-result-is-dropped",
        "a finished run takes another result in silence",
        DIFFERS + "test_the_last_result_of_a_finished_run_is_compared",
        "perdure.run.writes:check_result",
        ("finished is not None and finished.result and run.view.result", "False"),
    ),
    mutant(
        "rerun-records-behind-the-old-value",
        "on_change=rerun records a value that the next resume does not find",
        DIFFERS + "test_rerun_records_the_new_value_from_there_on",
        "perdure.run.ledger:Ledger._on_wrote",
        ("record.instead - 1 if record.instead else len(recorded)", "len(recorded)"),
    ),
    mutant(
        "a-time-is-not-recorded",
        "a resumed run sees another time, and pays the step that takes it again",
        DIFFERS + "test_now_random_and_uuid_are_recorded",
        "perdure.run.writes:record_value",
        ("recorded is not None", "False"),
    ),
    mutant(
        "two-turns-with-one-number",
        "a turn starts although the thread has changed since it was read",
        LASTING + "test_two_processes_start_one_turn_each",
        "perdure.run.turn_start:TurnStart.entries",
        ("resolve_writes(store, self.asks, self.unchanged)", "resolve_writes(store, (), self.unchanged)"),
    ),
    mutant(
        "the-users-message-is-written-by-the-code",
        "the first message of the code is taken for the user's",
        CHAT + "test_each_message_is_a_turn_of_its_own",
        "perdure.run.turn_start:consume_start",
        ("run.land(run.root, (message,))", "None"),
    ),
    mutant(
        "a-closed-turn-goes-on",
        "a failed turn is resumed after later ones, and takes back what they wrote to the thread's state",
        "conformance/test_chat_threads.py::test_a_failed_turn_is_resumed_by_its_id_until_a_later_one_begins",
        "perdure.work.threads.turn:_require_open",
        ("not run.status.over", "False"),
    ),
    mutant(
        "a-doubtful-turn-is-given-up",
        "a new message closes a turn whose effect may have happened",
        CHAT + "test_a_turn_in_doubt_keeps_new_messages_in_the_queue",
        "perdure.work.threads.turn:read_last_turn",
        ("bool(ledger.list_in_doubt()) or run.status == r.RunStatus.WAITING", "False"),
    ),
    mutant(
        "what-happened-is-forgotten",
        "the next turn does not know what the failed one has done",
        CHAT + "test_what_changed_the_world_stays_when_a_turn_is_given_up",
        "perdure.work.threads.history:_iterate_kept",
        ("[effect] if not pair else []", "[]"),
    ),
    mutant(
        "a-foreign-thread-gets-turns",
        "a turn is added to a thread that LangGraph continues",
        CHAT + "test_threads_of_langgraph_are_foreign",
        "perdure.work.threads.conversations:refuse_foreign",
        ("is_foreign(engine, thread)", "False"),
    ),
    mutant(
        "a-deleted-turn-keeps-its-content",
        "the entries of a deleted conversation keep their bodies",
        DELETED + "test_a_deleted_conversation_is_in_no_file",
        "perdure.work.threads.erasure:_erase_run",
        ("run.status == r.RunStatus.ERASED", "True"),
    ),
    mutant(
        "state-goes-with-the-turn",
        "what a deleted turn wrote to its agent is gone after a rebuild",
        DELETED + "test_what_the_agent_learned_outlasts_the_conversation",
        "perdure.journal.project:project_anew",
        ("isinstance(record, r.ChangesCarried)", "False"),
    ),
    mutant(
        "a-fork-of-a-thread-loses-its-turns",
        "deleting a thread erases turns that a fork shows",
        DELETED + "test_a_fork_keeps_the_turns_that_it_shares",
        "perdure.work.threads.conversations:is_shown",
        ("any(number <= fork.shared and is_shown(engine, fork, number) for fork in forks)", "False"),
    ),
    mutant(
        "compaction-takes-conversations",
        "old turns of a thread are archived, and their messages vanish from it",
        DELETED + "test_compaction_leaves_the_turns_that_a_thread_shows",
        "perdure.work.threads.conversations:is_shown_turn",
        ("not thread or not number.isdecimal()", "True"),
    ),
    mutant(
        "a-context-is-cut-again",
        "replay cuts a context anew, and the model is paid again",
        LASTING + "test_a_context_is_cut_on_replay_as_it_was_recorded",
        "perdure.presence.context.run_context:context",
        ("shown is not None", "False"),
    ),
    mutant(
        "a-summary-is-lost-in-later-turns",
        "a context of a later turn does not show the summary of older ones",
        COMPACTED + "test_a_summary_is_shown_however_long_ago_it_was_made",
        "perdure.presence.context.thread_context:summary_in_use",
        ("packed is None", "False"),
    ),
    mutant(
        "a-turn-taken-fails-its-neighbours",
        "a request that comes second rolls back the commits of others",
        AT_ONCE + "test_requests_in_threads_are_a_turn_each",
        "perdure.run.lifecycle:ClaimRun.script",
        ("TurnTaken", "RuntimeError"),
    ),
    mutant(
        "a-turn-sees-later-state",
        "a resumed turn sees what others wrote after its start",
        CHAT + "test_thread_state_is_a_snapshot_with_the_turns_own_writes",
        "perdure.work.threads.thread_state:read_state",
        ("run is None", "True"),
    ),
    mutant(
        "a-started-message-is-not-queued",
        "workers answer the started messages of a thread in any order",
        "conformance/test_chat_threads_queued.py::test_started_messages_become_turns_in_their_order",
        "perdure.work.tasks.submission:start.ask",
        ("*also()", ""),
    ),
)
