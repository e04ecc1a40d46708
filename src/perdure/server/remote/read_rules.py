"""Whose rows each statement reads. A statement without a rule is refused.

`tests/server/test_statement_rules.py` fails for a read without a rule, as it does for a write.
"""

from __future__ import annotations

AGENT_COLUMN = {
    "all_runs": 1,
    "find_runs": 1,
    "runs_with_prefix": 1,
    "queued_tasks": 1,
    "all_agents": 0,
    "agents_with_runs": 0,
    "awaiting_runs": 0,
    "run_counts": 0,
    "question_inbox": 0,
}
"""Lists of everybody's rows, and the column with the name of the agent."""

_WITH_STREAM = """all_agent_state all_answers all_artifacts all_checkpoints all_events all_leases all_memories
    all_memory_relations all_memory_uses all_orders all_questions all_run_state all_savings all_seals all_signals
    all_state_history all_state_horizons all_state_namespaces all_tasks all_thread_checkpoints all_thread_generations
    all_thread_writes all_usage all_workflow_steps all_workflows dropped_thread_checkpoints orphan_entries orphan_seals
    streams_page"""

STREAM_COLUMN = {
    **dict.fromkeys(("all_streams", "stream_heads", "entries_of_kind"), 0),
    **dict.fromkeys(_WITH_STREAM.split(), 0),
    "all_task_waits": 1,
}
"""Lists of everybody's rows, and the column with a stream that says whose each is."""


def _reads(whose: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), whose)


READS: dict[str, str] = {
    **_reads(
        "owner",
        """agent_events agent_events_newest_first agent_events_of_kind agent_events_of_kind_newest_first
        agent_state_among agent_state_at agent_state_of agent_state_page agent_state_under all_chunks_in_ranges
        all_chunks_in_ranges_compared all_thread_checkpoints_page arrivals_of artifact_entry artifact_names
        artifact_versions artifacts_of candidate_chunks check_thread check_thread_head checkpoint_base
        checkpoint_versions checkpoints_of chunk_totals chunks_in_ranges chunks_in_ranges_compared chunks_of
        chunks_without_vector count_expired_state count_memories count_running count_tasks documents_of
        documents_since documents_to_reembed documents_with_words due_queues embedding_progress event_kinds
        events_out_of_order expired_state find_event first_event_since get_agent_state get_artifact
        get_checkpoint get_namespace_revision get_rate_limit get_signal get_state_value get_task
        get_thread_checkpoint get_workflow has_event held_tasks last_artifact last_checkpoint last_event_before
        last_replay_snapshot last_signal last_thread_position links_of links_valid_from lock_awaited
        lock_held_task lock_namespace matching_chunks memories_about memories_by_id memories_in_thread
        memories_matching memories_on_subject memories_page memories_repeated memories_repeated_by
        memories_with_same_words memories_without_chunks memory_relations_but_repeats memory_relations_of
        namespace_sizes namespaces_of nearest_by_scan nearest_chunks newest_artifact newest_checkpoint
        newest_event_of_kind newest_thread_checkpoint newest_workflow newest_workflow_steps next_due
        next_event_after next_state_change next_tasks nonempty_namespaces older_checkpoints positions_of_days
        queue_names replay_snapshots_of run_events run_events_newest_first run_state_of signals_of stalled_tasks
        state_history_in state_history_of state_horizon_of state_key_at term_counts thread_ancestors
        thread_checkpoints_of_run thread_checkpoints_page thread_generation thread_min_generation
        thread_writes_between threads_of uses_of vectors_by_model vectors_of vectors_of_memories vectors_since
        was_thread_checkpoint workflow_steps_of workflows_of writes_of_thread""",
    ),
    **_reads(
        "stream",
        """answers_of chain_at check_lease children_of descendant_runs entry_counts fork_point_of get_answer
        head_of hold_agent hold_lease journal_entry journal_of journal_page last_compaction last_order_under
        lease_at lock_forks lock_lease lock_task open_questions read_lease run_in seals_of spent_by""",
    ),
    **_reads("run", "events_beside"),
    **_reads("forked_from", "forks_of"),
    **_reads(
        "agent",
        "finished_runs get_run question_inbox run_streams runs_in_status saved_by_day savings_of spent_by_day usage_of",
    ),
    **_reads("name", "departure_of get_agent lock_agent"),
    **_reads("streams", "standing_orders"),
    **_reads("which", "journal_among"),
    **_reads(
        "ids",
        """chunks_among owners_of_chunks positions_matching positions_of_chunks vector_similarity vectors_among""",
    ),
    **_reads("words", "chunks_with_words positions_with_words"),
    **_reads(
        "listed",
        """agents_with_runs all_agents all_runs all_streams awaiting_runs entries_of_kind find_runs queued_tasks
        run_counts runs_with_prefix stream_heads""",
    ),
    **_reads(
        "open",
        """clock_now count_dead_holders count_objects count_streams documents_now foreign_code get_holder get_meta
        get_object get_objects has_object hold_objects holder_time_left holders_at_work last_chunk_number
        lock_objects lock_streams lock_upload meta_with_prefix moved_arrivals prefer_indexes settled_arrivals
        signed_stream_count store_bytes stored_sizes upload_objects_among vector_schema vectors_now""",
    ),
    **_reads("tenant", f"{_WITH_STREAM} all_task_waits all_replay_snapshots live_upload_objects"),
    **_reads(
        "whole",
        """all_objects chunks_page copy_events documents_page last_location object_ids objects_page vectors_page""",
    ),
}
"""The parameter of every read that says whose rows it touches.

`owner`, `stream`, `run` and `forked_from` are the number of a stream; `agent` and `name` a name; `streams` and `which`
lists of streams; `ids` a list of chunks, whose owners the server looks up; `words` begin with their owner.
`listed` rows are filtered by their agent. `open` ones belong to no agent: cursors, counts, content by its id, holders.
`tenant` ones have rows of all agents, also filtered; a key of one agent may not read them, because an empty page would
look like the end. `whole` ones are copies of everybody's rows, for admins.
"""
