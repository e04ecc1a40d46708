"""What a run waits for."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_waiting.py::"

MUTANTS = (
    mutant(
        "placeholder-in-a-hint",
        "a message names RUN instead of the run",
        "conformance/test_waiting.py::test_messages_name_the_run_and_no_placeholder",
        "perdure.values.hints:insert_run_id",
        ('hint.replace("RUN", f"{shlex.quote(run)}{options}")', "hint"),
    ),
    mutant(
        "yes-not-understood",
        "`perdure answer 7 yes` is refused",
        "conformance/test_waiting.py::test_a_yes_or_no_is_said_in_words_or_as_a_flag",
        "perdure.run.answers:_fit_answer",
        ("_YES_NO.get(answer.result.lower())", "None"),
    ),
    mutant(
        "a-question-is-asked-anew",
        "after a crash the same question is put once more",
        TESTS + "test_each_question_is_asked_once_and_its_answer_kept",
        "perdure.run.wait:wait_for",
        ("waited = waits[nth] if nth < len(waits) else None", "waited = None"),
    ),
    mutant(
        "an-event-is-taken-twice",
        "two that wait for one name get the same event",
        TESTS + "test_threads_that_wait_for_one_name_take_one_event_each",
        "perdure.run.wait:_take_turn",
        ("taken.add(number)", ""),
    ),
    mutant(
        "an-event-is-sent-before-its-step",
        "a step that fails has sent its event",
        TESTS + "test_an_event_sent_in_a_step_is_sent_with_the_step",
        "perdure.run.answers:send_event",
        (
            "yield from write(engine, Site.SIGNAL, [signal])",
            "from .state import land\n\nyield from land(engine, Site.SIGNAL, [signal])",
        ),
    ),
    mutant(
        "any-answer-fits",
        "an answer of the wrong type reaches the program",
        TESTS + "test_an_answer_that_does_not_fit_is_asked_for_again",
        "perdure.run.wait:_await_answer",
        ('"answer" if _is_acceptable(value, fits) else "refused"', '"answer"'),
    ),
)
