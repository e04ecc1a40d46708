"""Faults in what stands between frameworks and runs."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TOOLS = "adapters/test_durable_tools.py::"

CAPTURED = "adapters/test_capture.py::"

PLAYED = "adapters/test_frameworks.py::test_a_killed_turn_goes_on_without_repeating_anything"

MUTANTS = (
    mutant(
        "captured-answers-are-paid-again",
        "an answer that was captured is not looked up",
        CAPTURED + "test_equal_requests_are_different_calls[httpx2]",
        "perdure.http_capture.calls:CapturedCall.find",
        ("find_recorded(self.run, self.frame, self.call)", "None"),
    ),
    mutant(
        "failed-calls-keep-their-number",
        "a call that failed counts as one, so that its retry is not found again",
        CAPTURED + "test_errors_and_cut_streams_are_not_recorded",
        "perdure.http_capture.calls:CapturedCall.release",
        ("not self._settled", "False"),
    ),
    mutant(
        "every-host-is-captured",
        "calls to hosts that are no providers are recorded",
        CAPTURED + "test_other_hosts_are_left_alone",
        "perdure.http_capture.hosts:find_provider",
        ("return None", 'return "openai"'),
    ),
    mutant(
        "a-mismatch-is-not-noticed",
        "a restarted program that asks something else goes on unnoticed",
        CAPTURED + "test_a_mismatch_is_warned_about_and_paid",
        "perdure.http_capture.calls:RunCalls.find_other",
        ("self._at.get(position)", "None"),
    ),
    mutant(
        "recorded-answers-are-asked-for",
        "an answer of a client that the run has is paid for again",
        PLAYED + "[anthropic-after]",
        "perdure.adapters.http_recording:OpenCall.recorded",
        ("return is_recorded(self.run, self.frame, self.call)", "return False"),
    ),
    mutant(
        "streams-are-not-kept",
        "a whole stream of a client is taken for one that was cut",
        PLAYED + "[anthropic-stream]",
        "perdure.adapters.recorded_answers:StreamTee.take",
        ("self.held += chunk", "pass"),
    ),
    mutant(
        "unsafe-default-unnamed",
        "a graph runs with a durability that loses checkpoints, and nobody says so",
        "adapters/test_saver_durability.py::test_the_default_of_langgraph_is_warned_about_once_with_the_argument_to_pass",
        "perdure.adapters.langgraph.saver:PerdureSaver._advise",
        ("_RUNNING not in given or _DURABILITY in given or _DURABILITY in self._advised", "True"),
    ),
    mutant(
        "lost-calls-are-new",
        "a call whose checkpoint was lost is made again as if nothing had been",
        TOOLS + "test_a_tool_that_was_killed_is_done_once",
        "perdure.adapters.langgraph.trail:CallTrail.find",
        ("found = here or next(iter(lost), None)", "found = here"),
    ),
    mutant(
        "new-input-proves-the-old",
        "input that is given once more counts as proof that the tool before it has ended",
        TOOLS + "test_a_tool_that_was_killed_is_done_once",
        "perdure.adapters.langgraph.finished_tasks:_GraphCheckpoints.has_passed",
        (
            "return any(_parent(one) == checkpoint and _is_from_loop(one) for one in self._found.values())",
            "return any(_parent(one) == checkpoint for one in self._found.values())",
        ),
    ),
    mutant(
        "lost-payments-are-forgotten",
        "a payment that the graph has lost does not keep the model from another one",
        TOOLS + "test_a_model_that_decides_otherwise_cannot_pay_again",
        "perdure.adapters.langgraph.trail:CallTrail.possible_repeats",
        ("return [one for one in same if one.lost or one.run in self.unsettled]", "return []"),
    ),
    mutant(
        "nothing-is-past-at-exit",
        'with durability="exit" the calls of a turn that has ended are taken for lost ones',
        TOOLS + "test_the_next_turn_and_a_fork_are_new",
        "perdure.adapters.langgraph.finished_tasks:_GraphCheckpoints._parent_is_missing",
        ('one.metadata.get("step", -1) - step > 1', 'one.metadata.get("step", -1) - step > 99'),
    ),
    mutant(
        "an-interrupt-is-a-failure",
        "a tool that waits for an answer leaves a failed run",
        TOOLS + "test_an_interrupt_in_a_tool_waits_and_is_no_failure",
        "perdure.adapters.langgraph.calls:_leave",
        ("isinstance(error, _Interrupted)", "isinstance(error, KeyboardInterrupt)"),
    ),
    mutant(
        "passed-calls-save-nothing",
        "what a resumed graph did not pay again is not counted",
        TOOLS + "test_what_was_not_paid_again_is_counted",
        "perdure.adapters.langgraph.calls:_credit",
        ("run.account.credit_other(recorded)", "pass"),
    ),
    mutant(
        "a-doubt-goes-with-its-thread",
        "an effect in doubt is done again without a word when its thread was deleted",
        TOOLS + "test_a_thread_that_was_deleted_begins_anew",
        "perdure.work.threads.trails:delete_trail",
        (
            (
                "[SetKey((engine.stream, space_of(thread), run)) for run in runs if effect_outcome(engine, run)"
                " != IN_DOUBT]"
            ),
            "[SetKey((engine.stream, space_of(thread), run)) for run in runs]",
        ),
    ),
    mutant(
        "a-trail-outlives-its-thread",
        "a thread that is begun anew gets the answers of the one that was deleted",
        TOOLS + "test_a_thread_that_was_deleted_begins_anew",
        "perdure.work.threads.prune:_commit",
        (
            "land(engine, {dropped.thread: life}, [dropped], still, trail)",
            "land(engine, {dropped.thread: life}, [dropped], still)",
        ),
    ),
    mutant(
        "a-paid-answer-is-lost",
        "what a provider puts into an answer makes it fail after it was paid for",
        "adapters/test_durable_tools_langchain.py::test_a_paid_answer_is_not_lost_whatever_is_in_it",
        "perdure.adapters.langgraph.stored_messages:_make_storable_message",
        ("return _reduce_message(message)", "return message"),
    ),
)
