"""What a run waits for."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_waiting.py::"

WAITING = (
    mutant(
        "a-question-is-asked-anew",
        "after a crash the same question is put once more",
        TESTS + "test_each_question_is_asked_once_and_its_answer_kept",
        "run/waiting.py",
        "waited = waits[nth] if nth < len(waits) else None",
        "waited = None",
    ),
    mutant(
        "an-event-is-taken-twice",
        "two that wait for one name get the same event",
        TESTS + "test_threads_that_wait_for_one_name_take_one_event_each",
        "run/waiting.py",
        "        taken.add(number)\n",
        "",
    ),
    mutant(
        "an-event-is-sent-before-its-step",
        "a step that fails has sent its event",
        TESTS + "test_an_event_sent_in_a_step_is_sent_with_the_step",
        "answers.py",
        "    yield from write(engine, Site.SIGNAL, [signal])",
        "    from .state import land\n\n    yield from land(engine, Site.SIGNAL, [signal])",
    ),
    mutant(
        "any-answer-fits",
        "an answer of the wrong type reaches the program",
        TESTS + "test_an_answer_that_does_not_fit_is_asked_for_again",
        "run/waiting.py",
        '"answer" if _is_fit(value, fits) else "refused"',
        '"answer"',
    ),
)
