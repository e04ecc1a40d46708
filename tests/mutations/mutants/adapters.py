"""Faults in what stands between frameworks and runs."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TOOLS = "adapters/test_durable_tools.py::"

OF_ADAPTERS = (
    mutant(
        "lost-calls-are-new",
        "a call whose checkpoint was lost is made again as if nothing had been",
        TOOLS + "test_a_tool_that_was_killed_is_done_once",
        "adapters/langgraph/trail.py",
        "            found = here or next(iter(lost), None)\n",
        "            found = here\n",
    ),
    mutant(
        "new-input-proves-the-old",
        "input that is given once more counts as proof that the tool before it has ended",
        TOOLS + "test_a_tool_that_was_killed_is_done_once",
        "adapters/langgraph/past.py",
        "            return any(_parent(one) == checkpoint and _by_loop(one) for one in self._found.values())\n",
        "            return any(_parent(one) == checkpoint for one in self._found.values())\n",
    ),
    mutant(
        "lost-payments-are-forgotten",
        "a payment that the graph has lost does not keep the model from another one",
        TOOLS + "test_a_model_that_decides_otherwise_cannot_pay_again",
        "adapters/langgraph/trail.py",
        "            return [one for one in same if one.lost or one.run in self.unsettled]\n",
        "            return []\n",
    ),
    mutant(
        "nothing-is-past-at-exit",
        'with durability="exit" the calls of a turn that has ended are taken for lost ones',
        TOOLS + "test_the_next_turn_and_a_fork_are_new",
        "adapters/langgraph/past.py",
        " - step > 1\n",
        " - step > 99\n",
    ),
    mutant(
        "an-interrupt-is-a-failure",
        "a tool that waits for an answer leaves a failed run",
        TOOLS + "test_an_interrupt_in_a_tool_waits_and_is_no_failure",
        "adapters/langgraph/calls.py",
        " if isinstance(error, _Interrupted) else error\n",
        " if isinstance(error, KeyboardInterrupt) else error\n",
    ),
    mutant(
        "passed-calls-save-nothing",
        "what a resumed graph did not pay again is not counted",
        TOOLS + "test_what_was_not_paid_again_is_counted",
        "adapters/langgraph/calls.py",
        "        run.account.credit_other(recorded)\n",
        "        pass\n",
    ),
    mutant(
        "a-doubt-goes-with-its-thread",
        "an effect in doubt is done again without a word when its thread was deleted",
        TOOLS + "test_a_thread_that_was_deleted_begins_anew",
        "threads/trails.py",
        " for run in runs if how_it_stands(engine, run) != IN_DOUBT]\n",
        " for run in runs]\n",
    ),
    mutant(
        "a-trail-outlives-its-thread",
        "a thread that is begun anew gets the answers of the one that was deleted",
        TOOLS + "test_a_thread_that_was_deleted_begins_anew",
        "threads/keeping.py",
        "[dropped], still, trail)\n",
        "[dropped], still)\n",
    ),
    mutant(
        "a-paid-answer-is-lost",
        "what a provider puts into an answer makes it fail after it was paid for",
        "adapters/test_durable_details.py::test_a_paid_answer_is_not_lost_whatever_is_in_it",
        "adapters/langgraph/storable.py",
        "        return _reduced(message)\n",
        "        return message\n",
    ),
)
