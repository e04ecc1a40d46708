"""Records of questions, answers and waits, and the identity of the call that a record belongs to."""

from __future__ import annotations

from perdure.records.base import Record


class CallIdentity(Record, frozen=True):
    """Identifies a call of a function in a scope; compared on resume."""

    scope: str
    name: str
    ident: bytes
    nth: int


class QuestionAsked(Record, frozen=True):
    about: int  # the entry that let the body start
    kind: str
    text: str


class QuestionClosed(Record, frozen=True):
    question: int
    verdict: str


class Answered(Record, frozen=True):
    """An answer, in the stream of the answering process: the run may be open elsewhere."""

    stream: int
    about: int
    verdict: str
    value: bytes
    by: str


class WaitBegan(Record, frozen=True):
    """The run waits for a person, an event or a time. Recorded once, however often the run is resumed."""

    call: CallIdentity
    since: int
    kind: str
    """`ask`, `approve`, `event` or `sleep`."""
    text: str
    until: int = 0
    """When the wait ends by itself, in milliseconds since 1970; 0 means never."""
    choices: bytes = b""
    """The packed list of allowed answers, if they are limited."""


class WaitEnded(Record, frozen=True):
    wait: int
    """The entry that began the wait."""
    how: str
    """`answer`, `event`, `time` (of a sleep), `timeout`, or `refused` (invalid answer)."""
    value: bytes = b""
    by: str = ""
    number: int = 0
    """The number of the received event."""
