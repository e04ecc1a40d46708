"""The tools of `perdure mcp`: actions that must happen once, text of strangers."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

ONCE = "mcp/test_once.py::"

MUTANTS = (
    mutant(
        "once-unknown-goes",
        "an action whose session died is begun again without a check",
        ONCE + "test_an_unknown_outcome_is_settled_by_whoever_checks_first",
        "perdure.mcp.once:_call_of",
        ("'fail'", "'retry'"),
        Edit("perdure.mcp.once:_tell", "known.in_doubt and (not known.answered)", "False"),
    ),
    mutant(
        "once-finished-by-a-stranger",
        "a session reports the outcome of an action that another one is doing",
        ONCE + "test_a_second_session_is_told_what_the_first_one_does",
        "perdure.mcp.once:finish",
        ("known.lease.is_alive()", "False"),
    ),
    mutant(
        "untrusted-unmarked",
        "a model takes a stranger's text for its own memory",
        "mcp/test_tools.py::test_text_of_strangers_is_marked_as_data_in_every_form",
        "perdure.mcp.memory_tools:_shown",
        ("memory.text if memory.trusted else ...", "memory.text"),
    ),
)
