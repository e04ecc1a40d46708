"""Runs that clients drive through a server, and the notices about their questions."""

from __future__ import annotations

from tests.mutations.mutant import mutant

RUNS = "conformance/test_client_runs.py::"
QUESTIONS = "server/test_questions.py::"
REST = "server/test_rest.py::"
ACCESS = "server/test_access.py::"

MUTANTS = (
    mutant(
        "a-repeated-open-takes-the-run",
        "a lost answer to the opening makes the client lose its own session",
        RUNS + "test_a_run_has_one_holder_and_a_repeated_open_is_the_same_one[sqlite]",
        "perdure.run.clients.session:ClaimClientRun._find_own",
        ("not seen.ours or not seen.lease.is_alive()", "True"),
    ),
    mutant(
        "old-checks-believed",
        "an effect that happened after it was checked is run again",
        RUNS + "test_an_effect_of_a_killed_client_is_in_doubt[sqlite]",
        "perdure.run.clients.session:ClientRun.check_asked_at",
        ("return self.asked_at", "return self.clock.boot_ms()"),
    ),
    mutant(
        "client-timeouts-ignored",
        "an effect is run again while the old client may still act",
        RUNS + "test_an_effect_of_a_killed_client_is_in_doubt[sqlite]",
        "perdure.run.doubt:_compute_holder_end",
        ("taken + recorded.timeout_ms + 1", "taken"),
    ),
    mutant(
        "another-request-starts-it-too",
        "two requests of a client start the same effect",
        RUNS + "test_an_intent_is_durable_before_the_body_and_a_repeated_request_is_recognised[sqlite]",
        "perdure.run.clients.calls:_tell_again",
        ("record.key == run.key_of(request)", "True"),
    ),
    mutant(
        "a-repeated-failure-counts-twice",
        "a lost answer takes an attempt away",
        RUNS + "test_a_failed_step_is_recorded_once_and_runs_again_in_the_next_opening[sqlite]",
        "perdure.run.clients.calls:_is_repeated",
        ("0 < report.attempt <= recorded.attempts", "False"),
    ),
    mutant(
        "finished-with-an-effect-under-way",
        "a run is finished while nobody knows whether its effect has happened",
        RUNS + "test_an_intent_is_durable_before_the_body_and_a_repeated_request_is_recognised[sqlite]",
        "perdure.run.clients.session:close_session",
        ("_refuse_running(run)", "pass"),
    ),
    mutant(
        "every-server-sends",
        "people get a notice from each server",
        QUESTIONS + "test_a_notice_is_sent_until_it_is_accepted_and_by_one_server_at_a_time[sqlite]",
        "perdure.server.notify.deliveries:Deliveries._replace",
        (
            "await self._state.set(SPACE, delivery.key, _to_dict(delivery), if_version=version)",
            "await self._state.set(SPACE, delivery.key, _to_dict(delivery))",
        ),
    ),
    mutant(
        "a-refusal-counts-as-delivered",
        "a notice that nobody has accepted is not sent again",
        QUESTIONS + "test_a_notice_is_sent_until_it_is_accepted_and_by_one_server_at_a_time[sqlite]",
        "perdure.server.notify.targets:_post",
        ("not 200 <= answer.status < 300", "answer.status >= 400"),
    ),
    mutant(
        "audited-apart",
        "a killed server leaves a write that the audit log lacks",
        REST + "test_a_server_killed_around_its_write_carries_the_request_out_once[sqlite]",
        "perdure.kernel.open_stream:commit_to_process_stream",
        ("unit.accompany(companion.records)", "pass"),
    ),
    mutant(
        "carried-out-again",
        "a request that a killed server has carried out is carried out again",
        REST + "test_a_server_killed_around_its_write_carries_the_request_out_once[sqlite]",
        "perdure.server.idempotency:Idempotency._find_landed",
        ("await find_landed(self._tenants, principal.tenant, claim.request_id, claim.position)", "None"),
    ),
    mutant(
        "answers-made-by-writing",
        "a request is carried out again to make the answer that a crash has swallowed",
        REST + "test_the_answer_of_a_write_survives_a_crash_right_after_its_commit[sqlite]",
        "perdure.kernel.open_stream:commit_to_process_stream",
        ("companion.earlier is not None", "False"),
    ),
    mutant(
        "readers-count-uses",
        "a key that may only read writes how often it has recalled a memory",
        ACCESS + "test_a_reader_changes_nothing_whatever_it_asks",
        "perdure.memory.lifecycle.usage:note",
        ("engine.store.read_only or not _COUNTED.get()", "engine.store.read_only"),
    ),
    mutant(
        "readers-store-answers",
        "a key that may only read fills the store with its answers",
        ACCESS + "test_a_reader_changes_nothing_whatever_it_asks",
        "perdure.server.routing:ApiRoute._answer",
        ('route.method != "POST" or not route.writes', 'route.method != "POST"'),
    ),
    mutant(
        "keys-never-expire",
        "a key opens the store after its time",
        "server/test_operations.py::test_expired_and_revoked_keys_open_nothing",
        "perdure.server.keys:KeyRing.verify",
        ("not record.is_valid(self._clock.wall_ms())", "False"),
    ),
    mutant(
        "links-unsigned",
        "who has one link can make others",
        QUESTIONS + "test_a_link_opens_its_question_and_nothing_else",
        "perdure.server.notify.links:read_token",
        ("not hmac.compare_digest(found[4], _sign(store, claim))", "False"),
    ),
)
