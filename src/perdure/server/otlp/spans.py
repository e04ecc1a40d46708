"""The spans of a run as OTLP/JSON, with the GenAI conventions. Names, times and counts only: no content.

Ids follow from the run and the numbers of its entries, so every process of a run adds to one trace, and a span that is
sent twice has the same id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from perdure import records as r
from perdure.run.timeline import RunTimeline, SectionOpening, TimelineBuilder, TimelineRow

Span = dict[str, Any]
"""One span in the JSON form of OTLP."""

INTERNAL, CLIENT = 1, 3
OK, ERROR = 1, 2
CALLS = ("step", "effect")
WAITS = ("ask", "approve", "event", "sleep", "run")
_ENDED = {"done": "", "failed": "failed", "given up": "given up", "timed out": "timeout", "refused": "refused"}
"""The `error.type` of a row that has ended; empty for success."""
_BAD_ENDS = ("failed", "killed", "taken over", "crashed")
_ERROR_CLASS = re.compile(r"([A-Za-z_][\w.]{0,99})(?::|$)", re.ASCII)
_NUMBER_BYTES = 8


class RunOrigin(msgspec.Struct, frozen=True):
    """The run that spans belong to."""

    store: str
    """The identity of the store."""
    agent: str
    id: str

    @property
    def trace_id(self) -> str:
        """The id of the trace, which all processes of the run share."""
        named = msgspec.json.encode([self.store, self.agent, self.id])
        return blake2b(named, digest_size=16, person=b"perdure.trace").hexdigest()


def spans_of(origin: RunOrigin, entries: Sequence[r.JournalEntry], status: str) -> list[Span]:
    """Return a span for each process, call, model call and wait that has ended.

    `status` is empty while a process holds the run.
    """
    builder = TimelineBuilder(lambda entry: "")
    for entry in entries:
        builder.add(entry)
    picture = builder.picture(status, 0, items=True)
    return list(_Trace(origin, picture).spans())


class _Trace:
    """Makes the spans of one run."""

    def __init__(self, origin: RunOrigin, picture: RunTimeline) -> None:
        self._origin = origin
        self._trace_id = origin.trace_id
        self._picture = picture

    def spans(self) -> Iterator[Span]:
        """Yield all spans of what has ended."""
        for opening in self._picture.openings:
            if opening.how:
                yield self._process(opening)
        for row in self._picture.rows:
            if row.what in CALLS and row.status in _ENDED:
                yield from self._call(row)
            elif row.what in WAITS and row.status in _ENDED:
                given = {"perdure.wait": row.what}
                yield self._row(row, f"wait {row.what}", given)

    def _process(self, opening: SectionOpening) -> Span:
        agent, first = self._origin.agent, self._picture.openings[0]
        given = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": self._origin.id,
            "perdure.ended": opening.how,
            "perdure.resumed": opening.resumed,
            "perdure.steps.skipped": opening.skipped,
            "host.name": opening.host,
        }
        error = ""
        if opening.how in _BAD_ENDS:
            error = _error_class(opening.told) if opening.how == "failed" else opening.how
        parent = "" if opening is first else self._span_id("process", first.seq)
        span = self._span("process", opening.seq, f"invoke_agent {agent}", (opening.begun, opening.ended), given, error)
        return {**span, "parentSpanId": parent}

    def _call(self, row: TimelineRow) -> Iterator[Span]:
        given: dict[str, Any] = {"perdure.tries": row.tries}
        name = row.name
        if row.what == "effect":
            given |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": row.name}
            name = f"execute_tool {row.name}"
        yield self._row(row, name, given)
        for place, usage in enumerate(row.usage):
            span = self._span(f"chat {place}", row.seq, f"chat {usage.model}", (row.begun, row.ended), _chat(usage), "")
            yield {**span, "kind": CLIENT, "parentSpanId": self._span_id(row.what, row.seq)}

    def _row(self, row: TimelineRow, name: str, given: Mapping[str, Any]) -> Span:
        error = _ENDED[row.status]
        if row.status == "failed":
            error = _error_class(row.notes[-1] if row.notes else "")
        span = self._span(row.what, row.seq, name, (row.begun, row.ended), {"perdure.entry": row.seq, **given}, error)
        return {**span, "parentSpanId": self._parent_of(row)}

    def _parent_of(self, row: TimelineRow) -> str:
        """The process that held the run when the row's first entry was written."""
        before = [one.seq for one in self._picture.openings if one.seq <= row.seq]
        return self._span_id("process", before[-1]) if before else ""

    def _span(
        self, what: str, seq: int, name: str, times: tuple[int, int], given: Mapping[str, Any], error: str
    ) -> Span:
        status: dict[str, Any] = {"code": ERROR, "message": error} if error else {"code": OK}
        more = {"error.type": error} if error else {}
        return {
            "traceId": self._trace_id,
            "spanId": self._span_id(what, seq),
            "name": name,
            "kind": INTERNAL,
            "startTimeUnixNano": str(times[0] * 1_000_000),
            "endTimeUnixNano": str(times[1] * 1_000_000),
            "attributes": to_attributes({"perdure.run.id": self._origin.id, **given, **more}),
            "status": status,
        }

    def _span_id(self, what: str, seq: int) -> str:
        named = f"{self._trace_id} {what} {seq}"
        return blake2b(named.encode(), digest_size=_NUMBER_BYTES, person=b"perdure.span").hexdigest()


def _chat(usage: r.ModelUsage) -> dict[str, Any]:
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": usage.provider,
        "gen_ai.request.model": usage.model,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "perdure.calls": usage.calls,
    }
    return {name: value for name, value in given.items() if value != ""}


def _error_class(text: str) -> str:
    """Return the class in the text of an error. Its message may be content, and is left out."""
    found = _ERROR_CLASS.match(text)
    return found[1] if found is not None else "_OTHER"


def to_attributes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes in the JSON form of OTLP, where whole numbers are text."""
    return [{"key": name, "value": _to_value(value)} for name, value in given.items()]


def _to_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
