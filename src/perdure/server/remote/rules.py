"""Whose rows each write touches. `read_rules` has the same for reads.

A statement without a rule is refused. `tests/server/test_statement_rules.py` fails for a write without one.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from perdure.store import sql


class Use(StrEnum):
    """How a statement may come over the network."""

    ENTRY = "entry"
    """Appends an entry; the server computes its link again."""
    VIEW = "view"
    """Changes a view: only as what follows from an entry of the same batch, which the server projects again."""
    DIRECT = "direct"
    """Stands for itself: leases, objects, indexes, erasure."""
    MAINTENANCE = "maintenance"
    """Changes what others rely on: for admins."""


class StatementRule(msgspec.Struct, frozen=True):
    """How a write may come over the network, and the parameter that says whose rows it touches."""

    use: Use
    whose: str
    """`stream` or `owner`: the number of a stream; `agent`, `name`: a name. Others belong to no agent: a `holder` is a
    process, an `id` is that of content, an `upload` is a random number, a `key` is a fact about the store, `what` is
    something awaited. `store` stands for rows of everybody."""


def _rules(use: Use, whose: str, names: str) -> dict[str, StatementRule]:
    return dict.fromkeys(names.split(), StatementRule(use, whose))


RULES: dict[str, StatementRule] = {
    **_rules(Use.ENTRY, "stream", "append_entry"),
    **_rules(
        Use.VIEW,
        "stream",
        """add_agent add_run add_fork resume_run mark_run_running set_resumes set_run_status add_run_event
        add_question drop_questions close_question close_questions add_answer add_usage drop_usage add_savings
        drop_savings put_order ensure_task set_task_state drop_task drop_task_waits add_task_wait wake_by_run
        wake_if_answered wake_if_sent wake_if_ended drop_memory_at drop_memory_relations_at erase_run
        set_departure""",
    ),
    **_rules(
        Use.VIEW,
        "owner",
        """set_run_state restore_run_state delete_run_state drop_run_state set_agent_state add_state_history
        set_namespace_revision raise_state_horizon put_checkpoint drop_checkpoint put_artifact drop_artifact add_event
        put_workflow set_workflow_step put_signal queue_task requeue_task put_thread_checkpoint put_thread_write
        raise_thread_generation drop_thread_checkpoints settle_thread_checkpoints drop_all_thread_writes
        drop_thread_checkpoint drop_thread_writes put_memory add_memory_relation settle_memory count_memory""",
    ),
    **_rules(Use.VIEW, "what", "wake_task"),
    **_rules(
        Use.DIRECT,
        "stream",
        """add_seal add_lease add_fork_lease take_lease release_lease notify_holder erase_entry drop_answer""",
    ),
    **_rules(
        Use.DIRECT,
        "owner",
        """prune_replay_snapshots put_replay_snapshot drop_replay_snapshots set_rate_limit drop_document_words
        drop_documents put_document put_document_words drop_memory_uses drop_signal drop_state_history
        detach_checkpoint remove_checkpoint detach_artifact remove_artifact drop_events_of_entry move_state_history
        move_checkpoint
        move_artifact move_event move_thread_checkpoint move_thread_writes count_memory_use put_chunk put_missing_chunk
        put_chunk_vector drop_chunk_words drop_chunk_vectors drop_chunks drop_other_vectors""",
    ),
    **_rules(Use.DIRECT, "name", "add_stream"),
    **_rules(Use.DIRECT, "id", "put_object"),
    **_rules(Use.DIRECT, "upload", "renew_upload add_upload_objects drop_upload drop_upload_objects"),
    **_rules(Use.DIRECT, "holder", "renew_holder ensure_holder release_all drop_holder"),
    **_rules(Use.DIRECT, "key", "put_meta drop_meta"),
    **_rules(Use.DIRECT, "store", "drop_dead_holders put_chunk_words index_vectors"),
    **_rules(Use.MAINTENANCE, "stream", "drop_journal_entries drop_seals append_erased restore_lease set_lease"),
    **_rules(Use.MAINTENANCE, "stream", "revoke_lease"),
    **_rules(Use.MAINTENANCE, "agent", "revoke_run_leases"),
    **_rules(
        Use.MAINTENANCE,
        "owner",
        """renumber_events_of drop_document_words_of drop_documents_of drop_chunk_words_of drop_chunk_vectors_of
        drop_chunks_of drop_uses_of""",
    ),
    **_rules(
        Use.MAINTENANCE,
        "store",
        """check_file add_location drop_object drop_old_uploads drop_orphan_upload_objects raise_arrivals
        renumber_events note_lost_snapshots clear_replay_snapshots clear_events clear_agents clear_runs clear_run_state
        clear_questions clear_answers clear_state_namespaces clear_state_horizons clear_agent_state clear_state_history
        clear_checkpoints clear_artifacts clear_usage clear_savings clear_workflows clear_workflow_steps clear_orders
        clear_signals clear_tasks clear_task_waits clear_thread_generations clear_thread_checkpoints
        clear_thread_writes clear_memories clear_memory_relations lock_journal""",
    ),
}
"""Every statement that writes."""

ALSO = {
    "add_agent": "name",
    "add_run": "agent",
    "add_fork": "agent",
    "erase_run": "agent",
    "queue_task": "agent",
    "requeue_task": "agent",
}
"""Writes that also name an agent, and the parameter that does."""

PARAMETERS = {name: named.parameters for name, named in sql.load("sqlite").items()}
