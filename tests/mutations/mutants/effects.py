"""Effects: intent, doubt, keys, divergence."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

OF_CHILDREN = "conformance/test_child_processes.py::"
OF_EFFECTS = "conformance/test_effects.py::"

MUTANTS = (
    mutant(
        "no-intent",
        "after a crash nobody knows that an effect had begun",
        OF_EFFECTS + "test_the_intent_is_durable_before_the_body_starts",
        "perdure.run.effect:_settle_and_execute",
        ("recorded.seq = recorded.begun = yield plain", "recorded.seq = recorded.begun = run.head.seq"),
    ),
    mutant(
        "intent-after-the-body",
        "an effect that was killed on the way happens again",
        OF_EFFECTS + "test_killed_after_the_effect_without_check_the_run_waits_for_a_person",
        "perdure.run.ledger:RecordedCall.in_doubt",
        ("return self.fence > 0 and not self.done and not self.failed and not self.running", "return False"),
    ),
    mutant(
        "outcome-not-recorded",
        "a finished effect is in doubt for ever",
        OF_EFFECTS + "test_an_effect_happens_once_and_is_remembered",
        "perdure.run.ledger:Ledger._on_effect_done",
        (
            "recorded.done, recorded.failed, recorded.result, recorded.writes = True, 0, record.result, record.writes",
            "recorded.result, recorded.writes = record.result, record.writes",
        ),
    ),
    mutant(
        "not-done-believed-too-early",
        "an effect happens twice, because the old holder was only slow",
        OF_EFFECTS + "test_not_done_is_not_believed_while_the_old_holder_may_live",
        "perdure.run.doubt:ask_check",
        (
            "return DoubtVerdict(absent=True) if believable else DoubtVerdict(disbelieved=True)",
            "return DoubtVerdict(absent=True)",
        ),
    ),
    mutant(
        "not-done-believed-without-a-timeout",
        "a body that sleeps for longer than a lease acts after it was run again",
        OF_EFFECTS + "test_not_done_is_not_believed_while_the_old_holder_may_live",
        "perdure.run.doubt:_compute_holder_end",
        ("if not recorded.timeout_ms:\n    return NEVER", "if not recorded.timeout_ms:\n    return 0"),
    ),
    mutant(
        "not-done-believed-of-a-body-at-work",
        "an effect that timed out is run beside itself",
        OF_EFFECTS + "test_not_done_is_not_believed_while_a_timed_out_body_runs",
        "perdure.run.effect:_handle_exception",
        ("believable = not run.bodies.is_running(recorded.seq)", "believable = True"),
    ),
    mutant(
        "not-done-never-believed",
        "a run waits for a person although everything is known",
        OF_EFFECTS + "test_not_done_is_believed_after_lease_and_timeout_have_passed",
        "perdure.run.doubt:_compute_holder_end",
        ("return recorded.boot_ms + lasts + 1", "return NEVER"),
    ),
    mutant(
        "timeouts-by-the-wall-clock",
        "a wall clock that is set ahead ends a timeout that has just begun, and an effect happens twice",
        OF_EFFECTS + "test_a_wall_clock_that_was_set_changes_no_timeout[sqlite-ahead]",
        "perdure.run.doubt:_compute_holder_end",
        (
            "return recorded.boot_ms + lasts + 1",
            "return recorded.boot_ms + lasts + run.clock.boot_ms() - run.clock.wall_ms()",
        ),
        Edit(
            "perdure.run.effect:_intent_of", "0 if lost else run.clock.boot_ms()", "0 if lost else run.clock.wall_ms()"
        ),
    ),
    mutant(
        "children-not-looked-for",
        "an effect happens twice, because what the killed process has started goes on",
        OF_CHILDREN + "test_not_done_is_not_believed_while_a_child_of_the_body_lives[sqlite-executed-sync]",
        "perdure.run.doubt:_ask_again",
        ("ask_check(effect, recorded, gone and child is None)", "ask_check(effect, recorded, gone)"),
    ),
    mutant(
        "children-looked-for-too-late",
        "an effect happens twice, because its last part was done between the check and the look",
        OF_CHILDREN + "test_a_child_that_ends_while_the_check_is_asked_may_have_acted[sqlite]",
        "perdure.run.doubt:_ask_again",
        (
            "child = yield Read(child_at_work, (effect, recorded))",
            (
                "verdict = yield from ask_check(effect, recorded, True)\n"
                "child = yield Read(child_at_work, (effect, recorded))\n"
                "return verdict if child is None or verdict.done else DoubtVerdict(disbelieved=True), child"
            ),
        ),
    ),
    mutant(
        "forks-leave-no-trace",
        "an effect happens twice, because a fork of the killed process goes on",
        OF_CHILDREN + "test_not_done_is_not_believed_while_a_child_of_the_body_lives[sqlite-forked_only-sync]",
        "perdure.platform.descendants:mark_descendants",
        ("_traces[mark] = _open_trace(mark)", "_traces[mark] = -1"),
    ),
    mutant(
        "programs-leave-no-trace",
        "an effect happens twice, because a program that the killed process has started goes on",
        OF_CHILDREN + "test_not_done_is_not_believed_while_a_child_of_the_body_lives[sqlite-executed_by_another-sync]",
        "perdure.platform.descendants:mark_descendants",
        ('os.environ[ANCESTORS] = " ".join(marks[-ANCESTORS_MAX:])', "pass"),
    ),
    mutant(
        "old-servers-are-waited-for",
        "a run waits for a server that its process had started long before the effect",
        OF_CHILDREN + "test_a_process_that_was_started_before_the_effect_is_not_waited_for[sqlite]",
        "perdure.platform.descendants:_DescendantSearch._look_at",
        ("(seen.started + 1) * _TICK_MS <= self._since_ms", "False"),
    ),
    mutant(
        "successor-waits-for-its-own",
        "a process that the killed one has started cannot go on with its run",
        OF_CHILDREN + "test_the_successor_may_be_a_child_of_the_body_itself[sqlite]",
        "perdure.platform.descendants:_DescendantSearch.__init__",
        ("_descends_from(holder)", "False"),
    ),
    mutant(
        "children-of-a-timed-out-body-forgotten",
        "an effect that timed out is begun again beside the program that it started",
        OF_CHILDREN + "test_a_child_of_a_body_that_timed_out_is_at_work[sqlite]",
        "perdure.run.effect:_handle_exception",
        ("believable = (yield Read(child_at_work, (effect, recorded))) is None", "pass"),
    ),
    mutant(
        "check-not-asked",
        "an effect that can be looked up waits for a person",
        OF_EFFECTS + "test_another_exception_is_in_doubt_and_the_check_is_asked_at_once",
        "perdure.run.doubt:ask_check",
        ("if check is None:\n    return NOTHING_KNOWN", "return NOTHING_KNOWN"),
    ),
    mutant(
        "failing-check-believed",
        "a check that cannot reach the service counts as: it did not happen",
        OF_EFFECTS + "test_a_check_that_does_not_know_leaves_it_to_the_policy",
        "perdure.run.doubt:ask_check",
        (
            "warn(..., ..., ...)\nreturn NOTHING_KNOWN",
            "warn(..., ..., ...)\nreturn DoubtVerdict(absent=True)",
        ),
    ),
    mutant(
        "retry-although-asked-to-ask",
        "an effect in doubt is repeated without anybody having agreed",
        OF_EFFECTS + "test_killed_after_the_effect_without_check_the_run_waits_for_a_person",
        "perdure.run.doubt:settle",
        ('effect.options.in_doubt == "retry"', 'effect.options.in_doubt != "fail"'),
    ),
    mutant(
        "policy-fail-repeats",
        "in_doubt=fail makes the effect happen again",
        OF_EFFECTS + "test_policy_fail_fails_with_in_doubt",
        "perdure.run.doubt:settle",
        ('effect.options.in_doubt == "retry"', 'effect.options.in_doubt != "ask"'),
    ),
    mutant(
        "timeout-means-not-done",
        "an effect that took too long is run again beside itself",
        (
            ""
            "conformance/test_effects_in_doubt.py::test_our_timeout_is_no_word_of_the_author_when_the_body_has_ended[sqlite]"
        ),
        "perdure.run.effect:_handle_exception",
        ("not isinstance(error, StepTimeout)", ""),
    ),
    mutant(
        "happened-forgotten",
        "an effect whose result could not be stored is run again when its check lags",
        "conformance/test_effects_in_doubt.py::test_an_effect_with_an_unstorable_result_is_not_repeated[sqlite-False]",
        "perdure.run.doubt:_compute_holder_end",
        ("recorded.happened or run.bodies.is_running(recorded.seq)", "run.bodies.is_running(recorded.seq)"),
    ),
    mutant(
        "exception-means-not-done",
        "an effect whose answer was lost on the way is repeated",
        OF_EFFECTS + "test_unknown_after_an_exception_is_in_doubt_and_holds_the_run",
        "perdure.run.effect:_handle_exception",
        ("isinstance(error, (*_NOTHING, *effect.options.not_done))", "isinstance(error, Exception)"),
    ),
    mutant(
        "not-done-is-doubt",
        "an effect that says that nothing happened holds the run",
        OF_EFFECTS + "test_not_done_without_retries_fails_and_runs_again_on_resume",
        "perdure.run.effect:_handle_exception",
        ("isinstance(error, (*_NOTHING, *effect.options.not_done))", "isinstance(error, NotDone)"),
    ),
    mutant(
        "answer-ignored",
        "what a person has answered is not heard",
        OF_EFFECTS + "test_an_answer_may_come_before_anybody_asked",
        "perdure.run.doubt:_answer_to",
        ('("get_answer", (effect.run.head.stream, recorded.begun))', '("get_answer", (effect.run.head.stream, -1))'),
    ),
    mutant(
        "last-answer-wins",
        "a second person overrules the first without knowing",
        OF_EFFECTS + "test_killed_after_the_effect_without_check_the_run_waits_for_a_person",
        "perdure.store.sql.sqlite.queries:add_answer",
        (
            "VALUES (:stream, :about, :verdict, :value, :by, :at);",
            "VALUES (:stream, :about, :verdict, :value, :by, :at) ON CONFLICT DO UPDATE SET value = excluded.value;",
        ),
    ),
    mutant(
        "answer-for-all-times",
        "one answer settles a later doubt too",
        OF_EFFECTS + "test_an_answer_settles_one_doubt_only",
        "perdure.run.ledger:Ledger._on_again",
        (
            (
                "recorded.fence, recorded.boot_ms, recorded.failed, recorded.begun = record.fence,"
                " record.boot_ms, 0, event.seq"
            ),
            "recorded.fence, recorded.boot_ms, recorded.failed = record.fence, record.boot_ms, 0",
        ),
    ),
    mutant(
        "answer-fail-is-not-final",
        "an effect that a person gave up is begun again",
        OF_EFFECTS + "test_the_answer_fail_fails_the_run_for_good",
        "perdure.run.ledger:Ledger.has_continued_after",
        ("failure.final or self.finished is not None", "self.finished is not None"),
    ),
    mutant(
        "key-anew-for-each-try",
        "a repeated effect has another key, and the service takes it for a second order",
        OF_EFFECTS + "test_policy_retry_repeats_with_the_same_key_and_says_so",
        "perdure.run.outcome:begin_again",
        ("again = ...", "recorded.key = run.clock.key()\nagain = ..."),
    ),
    mutant(
        "key-from-arguments",
        "two equal orders have one key, and the service drops the second",
        OF_EFFECTS + "test_equal_calls_have_different_keys",
        "perdure.run.effect:_intent_of",
        ("run.make_key", "call.ident.hex"),
    ),
    mutant(
        "key-over-the-callers",
        "the key that the caller has chosen is replaced",
        OF_EFFECTS + "test_the_key_goes_where_it_is_asked_for",
        "perdure.run.function:CallSignature.wants_key",
        ("return self.key_name is not None and self.key_name not in kwargs", "return self.key_name is not None"),
    ),
    mutant(
        "attempts-of-an-effect-forgotten",
        "a crash gives a failing effect all its attempts anew",
        "conformance/test_effects_in_doubt.py::test_the_attempts_of_an_effect_are_counted_across_a_crash",
        "perdure.run.effect:execute_body",
        ("run, attempts = effect.run, recorded.attempts", "run, attempts = effect.run, 0"),
    ),
    mutant(
        "again-without-a-record",
        "an effect is begun again, and the journal does not know",
        OF_EFFECTS + "test_policy_retry_repeats_with_the_same_key_and_says_so",
        "perdure.run.outcome:begin_again",
        ("recorded.begun = yield from run.commit(Site.EFFECT_AGAIN, again)", "yield from ()"),
    ),
    mutant(
        "divergence-ignored",
        "a changed argument makes a second effect beside the recorded one",
        OF_EFFECTS + "test_a_changed_argument_of_an_effect_diverges",
        "perdure.run.divergence:refuse_divergence",
        ("one is not None", "one is None"),
    ),
    mutant(
        "others-start-while-in-doubt",
        "a second payment starts while nobody knows of the first",
        OF_EFFECTS + "test_while_in_doubt_no_other_call_of_that_name_starts",
        "perdure.run.divergence:refuse_divergence",
        ("yield from find_unsettled_effect(effect)", "(yield from find_unsettled_effect(effect)) and None"),
    ),
    mutant(
        "rerun-not-allowed",
        "on_change=rerun is not heard",
        OF_EFFECTS + "test_on_change_rerun_overrides",
        "perdure.run.divergence:refuse_divergence",
        ('"rerun" in (effect.options.on_change, run.on_change)', "False"),
    ),
    mutant(
        "effect-outside-only-warns",
        "an effect outside of a run happens and is not recorded",
        OF_EFFECTS + "test_an_effect_outside_a_run_is_refused_unless_allowed",
        "perdure.run.durable:Durable._refuse_outside",
        ('self._function.effect and self._options.outside != "allow"', "False"),
    ),
    mutant(
        "effect-inside-a-step",
        "a step that is repeated repeats the effect in it",
        "conformance/test_steps.py::test_an_effect_inside_a_step_is_refused",
        "perdure.run.durable:Durable._refuse_inside",
        ("self._function.effect", "False"),
    ),
    mutant(
        "unstorable-result-forgets-the-effect",
        "an effect whose result cannot be stored is repeated",
        OF_EFFECTS + "test_a_result_that_cannot_be_stored_leaves_the_effect_in_doubt_not_forgotten",
        "perdure.run.effect:_result_is_lost",
        (
            "entry = r.EffectDoubted(recorded.seq, packed, describe(error), happened=True)",
            "entry = r.EffectFailed(recorded.seq, packed, describe(error))",
        ),
    ),
    mutant(
        "waiting-is-not-shown",
        "a run that waits for a person looks as if it were running",
        OF_EFFECTS + "test_killed_after_the_effect_without_check_the_run_waits_for_a_person",
        "perdure.journal.project:_project_question",
        ("return [question, *_status(stream, r.RunStatus.WAITING, at)]", "return [question]"),
    ),
    mutant(
        "check-gets-the-key-unasked",
        "a check without a parameter for the key is never understood",
        "conformance/test_effects_in_doubt.py::test_a_check_takes_the_key_or_leaves_it_and_needs_no_result",
        "perdure.run.doubt:ask_check",
        ("takes_key(check)", "True"),
    ),
    mutant(
        "absent-recorded-as-done",
        "after a second crash an effect that never happened counts as done",
        "conformance/test_effects_in_doubt.py::test_an_effect_proven_absent_is_begun_again_with_a_new_entry",
        "perdure.run.doubt:_apply_check",
        ("verdict.done", "True"),
    ),
    mutant(
        "policy-before-the-answer",
        "a run fails although a person has answered",
        "conformance/test_effects_in_doubt.py::test_an_answer_comes_before_the_policy_and_the_check",
        "perdure.run.doubt:settle",
        ("yield _answer_to(effect, recorded)", "()"),
    ),
    mutant(
        "lease-alone-ends-a-body",
        "an effect without a timeout is begun again beside its sleeping first try",
        "conformance/test_effects_in_doubt.py::test_a_body_without_a_timeout_is_never_believed_to_be_over",
        "perdure.run.doubt:_compute_holder_end",
        ("not recorded.timeout_ms", "False"),
    ),
    mutant(
        "done-by-check-not-recorded",
        "what a check has found out is forgotten by the next crash",
        "conformance/test_effects_in_doubt.py::test_an_effect_proven_done_is_recorded_and_not_asked_about_again",
        "perdure.run.doubt:_apply_check",
        ("verdict.done", "False"),
    ),
    mutant(
        "question-stays-open",
        "a question that was answered is still shown",
        "conformance/test_effects_in_doubt.py::test_a_question_is_closed_once_it_is_settled",
        "perdure.run.doubt:_close",
        ("if question:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "asked-again-and-again",
        "every resume puts the same question once more",
        "conformance/test_effects_in_doubt.py::test_a_question_is_closed_once_it_is_settled",
        "perdure.run.doubt:_ask_a_person",
        ("not question", "True"),
    ),
    mutant(
        "finished-run-forgets-the-doubt",
        "the replay of a finished run goes another way than the run",
        "conformance/test_effects_in_doubt.py::test_a_finished_run_says_again_what_nobody_knew",
        "perdure.run.effect:_begin_or_go_on",
        (
            "recorded is not None and recorded.in_doubt and run.ledger.finished is not None",
            "recorded is not None and False",
        ),
    ),
    mutant(
        "one-id-at-work-twice",
        "an effect that is called twice at the same time under one id happens twice",
        "conformance/test_effects_in_doubt.py::test_two_calls_with_one_id_at_the_same_time_are_one_effect",
        "perdure.run.core:RunCore.exclusive_id",
        ("call in self._under_way", "False"),
    ),
)
