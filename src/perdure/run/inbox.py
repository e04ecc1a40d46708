"""The questions of all runs of a store that a person can answer: approvals, asks, effects in doubt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import NothingToAnswer, ValueProblem
from perdure.journal import objects
from perdure.run.answers import RunAnswer, give_answer
from perdure.store.base import Store
from perdure.store.rows import read_entry

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_ID = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)


class InboxQuestion(msgspec.Struct, frozen=True):
    """A question that waits for a person."""

    id: str
    agent: str
    run: str
    kind: str
    """`ask`, `approve` or `in_doubt`."""
    text: str
    asked_at: int
    choices: list[Any] | None = None
    """The allowed answers, if they are limited."""
    key: str = ""
    """The key of an effect in doubt."""


def list_inbox(store: Store, agent: str = "", after: str = "", limit: int = 1000) -> list[InboxQuestion]:
    """Return open questions in the order of their ids; of one agent, or of all."""
    stream, seq = _parse(after) or (0, 0)
    return [_read(store, *row) for row in store.read("question_inbox", (agent, stream, seq, limit))]


def find_question(store: Store, agent: str, id: str) -> InboxQuestion:
    """Return an open question, or raise `NothingToAnswer`."""
    stream, seq = _parse(id) or (0, 0)
    found = store.read("question_inbox", (agent, stream, seq - 1, 1)) if seq else []
    if not found or (found[0][2], found[0][3]) != (stream, seq):
        raise NothingToAnswer(
            f"question {id!r} is not open", hint="it was answered or withdrawn; list the open ones to see what is left"
        )
    return _read(store, *found[0])


def answer_question(engine: Engine, question: InboxQuestion, answer: RunAnswer, by: str) -> RunAnswer:
    """Answer a question. The first answer counts."""
    if question.kind == "in_doubt":
        return give_answer(engine, question.run, answer, key=question.key, by=by)
    return give_answer(engine, question.run, answer, question=question.text, by=by)


def _parse(id: str) -> tuple[int, int] | None:
    found = _ID.fullmatch(id)
    return (int(found[1]), int(found[2])) if found is not None else None


def _read(
    store: Store, agent: str, run: str, stream: int, seq: int, about: int, kind: str, text: str, at: int
) -> InboxQuestion:
    key = _read_key(store, stream, about) if kind == "in_doubt" else ""
    choices = _read_choices(store, stream, seq) if kind == "ask" else None
    return InboxQuestion(f"{stream}-{seq}", agent, run, kind, text, at, choices, key)


def _read_record(store: Store, stream: int, seq: int) -> r.Record | None:
    entry = read_entry(store, stream, seq)
    return r.decode(entry.kind, entry.body) if entry is not None and entry.body is not None else None


def _read_key(store: Store, stream: int, about: int) -> str:
    record = _read_record(store, stream, about)
    if isinstance(record, r.EffectAgain):
        record = _read_record(store, stream, record.intent)
    return record.key if isinstance(record, r.EffectIntended) else ""


def _read_choices(store: Store, stream: int, seq: int) -> list[Any] | None:
    record = _read_record(store, stream, seq)
    if not isinstance(record, r.WaitBegan) or not record.choices:
        return None
    try:
        return list(objects.unpack(store, record.choices))
    except ValueProblem:
        return None  # its types are unknown in this process; the run checks the answer
