"""`agent.events`: landing, order, what is kept of a replay, schemas."""

from __future__ import annotations

from tests.mutations.mutant import mutant

EVENTS = "conformance/test_events.py::"
KINDS = "conformance/test_events_kinds.py::"

MUTANTS = (
    mutant(
        "an-event-lands-at-once",
        "an event of a step that was killed is there, and comes a second time",
        EVENTS + "test_it_lands_with_the_work_once_wherever_it_is_killed",
        "perdure.data.events.append:append",
        ("room, frame = enclosing_buffer(engine), current_frame()", "room, frame = None, current_frame()"),
    ),
    mutant(
        "anothers-event-is-lost",
        "an event of another agent is acknowledged in a step and not there",
        EVENTS + "test_it_lands_with_the_work_once_wherever_it_is_killed",
        "perdure.journal.agent_writes:_DECIDERS",
        ("((UnconditionalWrite,), _pass_through)", ""),
    ),
    mutant(
        "run-events-in-no-view",
        "what a run has noted cannot be read",
        EVENTS + "test_a_part_of_them_is_read",
        "perdure.journal.project:_project_writes",
        ("write.op == r.WriteOp.EVENT", "False"),
    ),
    mutant(
        "a-page-begins-with-the-last-event",
        "an event is read twice where one page ends",
        EVENTS + "test_many_are_all_or_none_and_are_read_in_pages",
        "perdure.data.events.read:EventPages.read_next_page",
        ("EventPosition(*rows[-1].position)", "EventPosition(*rows[-1].position).before"),
    ),
    mutant(
        "followed-past-a-rebuild",
        "who follows while the store is rebuilt misses what comes next, or gets old events again",
        EVENTS + "test_a_position_outlives_a_rebuild",
        "perdure.data.events.follow:Follower.poll",
        ("self._after = resolve_position(self._store, book.owner, self._after)", "pass"),
    ),
    mutant(
        "arrivals-given-twice",
        "events of one commit have one place in the order, and of two streams one comes before what was read",
        EVENTS + "test_nothing_is_missed_or_given_twice_while_many_write",
        "perdure.store.sql.sqlite.queries:add_event",
        (
            "VALUES (:owner, max(coalesce((SELECT max(arrival) FROM events WHERE owner = :owner), 0) + 1, :at),",
            "VALUES (:owner, 1,",
        ),
    ),
    mutant(
        "rebuilt-in-the-order-of-streams",
        "after a rebuild, positions that were kept lead elsewhere",
        EVENTS + "test_a_position_outlives_a_rebuild",
        "perdure.data.events.positions:resolve_position",
        ("return position._replace(arrival=arrival)", "break"),
    ),
    mutant(
        "an-old-fold-is-believed",
        "a reducer that was changed goes on from what the old one has made",
        EVENTS + "test_another_version_of_a_reducer_starts_again",
        "perdure.data.events.replay:_key",
        (
            "(reduction.snapshot, reduction.version, sorted(wanted.kinds), wanted.run, wanted.typed)",
            "(reduction.snapshot, sorted(wanted.kinds), wanted.run, wanted.typed)",
        ),
    ),
    mutant(
        "a-kept-fold-is-collected",
        "a large result of a replay is kept, and its content was thrown away",
        "unit/test_rebuild.py::test_what_replays_have_kept_is_not_collected",
        "perdure.journal.object_gc:LiveObjects.catch_up",
        ("{packed for (packed,) in kept if reference(packed)}", "set()"),
    ),
    mutant(
        "unknown-fields-dropped",
        "what a newer program has added to an event is lost when an older one passes it on",
        KINDS + "test_what_a_newer_program_has_added_is_kept",
        "perdure.data.events.schemas:EventSchema.fields",
        (
            "return _fields_of(self._build_object(given), self.shape) | extra",
            "return _fields_of(self._build_object(given), self.shape)",
        ),
    ),
    mutant(
        "an-object-is-believed",
        "an object whose fields have other types than its class says is stored",
        KINDS + "test_what_does_not_fit_is_refused_at_the_call",
        "perdure.data.events.schemas:EventSchema.fields",
        (
            "fields = _fields_of(payload, self.shape)\nself._build_object(fields)",
            "fields = _fields_of(payload, self.shape)",
        ),
    ),
    mutant(
        "who-follows-does-not-wait",
        "an event of an older transaction is never given to who follows",
        "postgres/test_events.py::test_an_older_transaction_that_comes_late_is_not_missed",
        "perdure.data.events.follow:Follower.poll",
        (
            "rows = book.rows(self._wanted.kinds, run, self._after, read_settled_end(self._store), EVENTS_OF_PAGE_MAX)",
            "rows = book.rows(self._wanted.kinds, run, self._after, END, EVENTS_OF_PAGE_MAX)",
        ),
    ),
)
