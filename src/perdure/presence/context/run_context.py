"""`run.context`: builds the next prompt for a model, from an open or a stored run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import WrongType, WrongValue
from perdure.journal.lineage import events_of
from perdure.journal.objects import unpack as unpacked
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import frame_of
from perdure.memory.arguments import check_count, check_name, parse_trust
from perdure.memory.results import MemoryQuery
from perdure.presence.context.build import ContextRequest, compose
from perdure.presence.context.context import Context
from perdure.presence.context.fill import SectionText
from perdure.presence.context.layout import ContextLayout, parse_layout
from perdure.presence.context.recorded import CONTEXT, as_record, rebuilt_in
from perdure.presence.context.sources import pieces_of
from perdure.presence.context.thread_context import (
    find_first_turn,
    prepend_earlier,
    summary_in_use,
    thread_of,
)
from perdure.presence.context.turns import RunTurns, Turns
from perdure.run.conversation import Conversation
from perdure.run.core import RunCore
from perdure.run.data_view import view_of
from perdure.run.history import effective
from perdure.run.listing import require_run, summary_of
from perdure.run.writes import decode_written, read_messages, record_value
from perdure.values.tokens import TokenCounter, counter

BUDGET = 8_000
"""The default budget, in tokens."""
QUERY_CHARACTERS = 1_000
"""How much of the last user message is used to search memories."""


class ContextQuery(msgspec.Struct, frozen=True):
    """The validated arguments of `run.context`."""

    query: MemoryQuery
    wanted: ContextRequest
    count: TokenCounter


def make_query(
    query: str | None = None,
    budget: int = BUDGET,
    layout: ContextLayout | None = None,
    tokens: TokenCounter | None = None,
    *,
    memories: int = 8,
    user: str | None = None,
    min_trust: float | str = 0.0,
) -> ContextQuery:
    """Validate the arguments of `run.context`."""
    if type(budget) is not int or budget < 1:
        raise WrongValue(f"budget={budget!r}: give a number of tokens, from 1")
    if query is not None and not isinstance(query, str):
        raise WrongType(f"query= must be a text, not {query!r}")
    count, is_estimate = counter(tokens)
    looked_for = MemoryQuery(
        query or "",
        check_count(memories, "memories"),
        user=check_name(user, "user"),
        min_trust=parse_trust(min_trust, "min_trust"),
    )
    return ContextQuery(looked_for, ContextRequest(budget, parse_layout(layout), estimated=is_estimate), count)


def context(run: RunCore, request: ContextQuery) -> Protocol[Context]:
    """Build the context of an open run; of a turn, with the turns before it.

    Outside of bodies the context is recorded, and replay rebuilds the same messages: a step that takes them is found
    again, whatever was added or changed since.
    """
    made = list[Context]()
    unrecorded = run.finished and run.ledger.find_write(frame_of(run).path, r.WriteOp.VALUE, CONTEXT, 0) is None
    if unrecorded:
        return (yield from _built(run, request))
    recorded = yield from record_value(run, CONTEXT, partial(_recorded, run, request, made))
    if made:
        return made[0]
    shown: Context | None = yield Read(_rebuilt, (run, recorded))
    return shown if shown is not None else (yield from _built(run, request))


def _recorded(run: RunCore, request: ContextQuery, made: list[Context]) -> Protocol[dict[str, Any]]:
    made.append((yield from _built(run, request)))
    return as_record(made[0])


def _built(run: RunCore, request: ContextQuery) -> Protocol[Context]:
    thread = thread_of(run)
    talk = run.parts.get(RunTurns).turns
    if talk is None or talk.count != request.count:
        name = thread.id if thread is not None else run.id
        talk = run.parts.get(RunTurns).turns = Turns(name, request.count, partial(decode_written, run))
    speech = read_messages(run)
    if thread is not None:
        summary = yield Read(summary_in_use, (run, thread))
        earliest = yield Read(find_first_turn, (thread, request.wanted.budget, summary))
        speech = yield Read(prepend_earlier, (thread, speech, earliest, summary))
    return (yield from _build_context(run.engine, talk, speech, request))


def _rebuilt(run: RunCore, recorded: dict[str, Any]) -> Context | None:
    return rebuilt_in(thread_of(run), read_messages(run), recorded, partial(decode_written, run))


def context_of(
    engine: Engine, run_id: str, request: ContextQuery, unpack: Callable[[bytes], Any] | None = None
) -> Protocol[Context]:
    """Build the context of a stored run that is not open here."""
    speech: Conversation = yield Read(_read_stored, (engine, run_id))
    talk = Turns(run_id, request.count, unpack or partial(unpacked, engine.store))
    return (yield from _build_context(engine, talk, speech, request))


def _read_stored(engine: Engine, run_id: str) -> Conversation:
    store = engine.store
    summary = summary_of(store, require_run(store, engine.name, run_id))
    return view_of(effective(events_of(store, summary.stream, fork=summary.origin > 0))).conversation()


def _build_context(engine: Engine, talk: Turns, speech: Conversation, request: ContextQuery) -> Protocol[Context]:
    pieces = yield from _pieces(engine, talk, speech, request)
    made: Context = yield Read(_compose_context, (talk, speech, request.wanted, pieces))
    return made


def _pieces(
    engine: Engine, talk: Turns, speech: Conversation, request: ContextQuery
) -> Protocol[Sequence[SectionText]]:
    words: str = yield Read(_read_query_text, (talk, speech))
    text = request.query.text or words[:QUERY_CHARACTERS]
    wanted = {slot.name for slot in request.wanted.slots if slot.text is None}
    return (yield from pieces_of(engine, msgspec.structs.replace(request.query, text=text), wanted, request.count))


def _read_query_text(talk: Turns, speech: Conversation) -> str:
    with talk.lock:
        talk.update(speech)
        return talk.last_user_text()


def _compose_context(
    talk: Turns, speech: Conversation, wanted: ContextRequest, pieces: Sequence[SectionText]
) -> Context:
    with talk.lock:
        talk.update(speech)  # another thread may have used it with a longer or shorter conversation
        return compose(talk, msgspec.structs.replace(wanted, pieces=tuple(pieces)))
