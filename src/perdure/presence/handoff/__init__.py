"""Handoff briefs: what another process, person, framework or model needs to continue a run."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure import records as r
from perdure.journal import objects
from perdure.presence.handoff.progress import Progress, read_all_progress
from perdure.run.listing import EffectInDoubt, Question, RunSummary, children_of, get_run
from perdure.run.usage import Savings, Usage
from perdure.store import hide_password, is_postgres
from perdure.store.base import Store
from perdure.values.clock import moment_text

DONE_SHOWN, OF_ONE_NAME_SHOWN = 30, 3
MESSAGES_SHOWN = 10
DECISIONS_SHOWN = 20
VALUE_CHARACTERS_MAX = 300
"""Maximum length of a value in a brief. `perdure show RUN --json` has all of it."""
LABEL_CHARACTERS_MAX = 80
_WITHIN = str.maketrans("()", "[]")
_LONE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, from bytes that are not UTF-8 or from broken pairs. They cannot be encoded."""


class FinishedCall(msgspec.Struct, frozen=True):
    """A step or an effect that will not run again."""

    what: str
    name: str
    result: Any


class HandoffDecision(msgspec.Struct, frozen=True):
    """A decision: an event whose kind begins with that word."""

    kind: str
    payload: Any
    at: int


class HandoffBrief(msgspec.Struct, frozen=True):
    """A brief for whoever continues a run. `str()` of it is Markdown.

    >>> print(agent.runs.handoff("trip-42"))
    """

    summary: RunSummary
    store: str
    """The URL of the store, without a password."""
    at: int
    last_entry_at: int
    input: Any
    result: Any
    counts: dict[str, int]
    """How often each step and effect was completed."""
    items: int
    done: list[FinishedCall]
    """The last calls of each name."""
    in_doubt: list[EffectInDoubt]
    questions: list[Question]
    state: dict[str, Any]
    messages: list[Any]
    """The last messages."""
    messages_in_all: int
    decisions: list[HandoffDecision]
    children: list[RunSummary]
    usage: Usage
    savings: Savings
    progress: Progress = Progress()
    """Progress as reported with `run.progress` or edited by people."""

    def __repr__(self) -> str:
        return f"<HandoffBrief of run {self.summary.id!r} of {self.summary.agent!r}: {self.summary.status}>"

    def __str__(self) -> str:
        return self.markdown()

    def markdown(self, level: int = 1, at: int | None = None) -> str:
        """Render the brief. Its first heading has the given level. With `at=0` it does not mention the current time."""
        return "\n".join(_HandoffPage(self, level, self.at if at is None else at).lines()) + "\n"


def handoff_of(
    store: Store,
    agent: str,
    run_id: str,
    unpack: Callable[[bytes], Any] | None = None,
    progress: Progress | None = None,
) -> HandoffBrief:
    """Build the brief of a run. `unpack` is for readers without the types of its values."""
    decode = unpack or partial(objects.unpack, store)
    info = get_run(store, agent, run_id, unpack=decode)
    calls, decisions = list(_calls(info.events)), list(_decisions(info.events))
    return HandoffBrief(
        summary=info.summary,
        store=hide_password(store.url) if is_postgres(store.url) else store.url,
        at=store.clock.wall_ms(),
        last_entry_at=info.events[-1].at,
        input=info.input,
        result=info.result,
        counts=dict(Counter(name for _, name, _ in calls)),
        items=sum(isinstance(event.record, r.ItemDone) for event in info.events),
        done=[FinishedCall(what, name, decode(result)) for what, name, result in _take_last_calls(calls)],
        in_doubt=info.in_doubt,
        questions=[question for question in info.questions if question.kind != "in_doubt"],
        state=info.state,
        messages=info.messages[-MESSAGES_SHOWN:],
        messages_in_all=len(info.messages),
        decisions=[HandoffDecision(kind, decode(value), at) for kind, value, at in decisions[-DECISIONS_SHOWN:]],
        children=children_of(store, info.summary.stream),
        usage=info.usage,
        savings=info.savings,
        progress=progress or _read_progress(store, info.summary),
    )


def _read_progress(store: Store, run: RunSummary) -> Progress:
    [(owner, *_)] = store.read("get_agent", (run.agent,))
    return read_all_progress(store, run.agent, owner, [run.stream]).get(run.id, Progress(run.id))


def _calls(events: Iterable[r.JournalEntry]) -> Iterator[tuple[str, str, bytes]]:
    """Yield completed steps and effects: kind, name and packed result."""
    intents: dict[int, r.EffectIntended] = {}
    for event in events:
        record = event.record
        if isinstance(record, r.EffectIntended):
            intents[event.seq] = record
        elif isinstance(record, r.StepDone):
            yield "step", record.call.name, record.result
        elif isinstance(record, r.EffectDone) and record.intent in intents:
            yield "effect", intents[record.intent].call.name, record.result


def _take_last_calls(calls: Sequence[tuple[str, str, bytes]]) -> list[tuple[str, str, bytes]]:
    """Return the last few calls of each name, in order, so that a loop does not push out the others."""
    seen: Counter[str] = Counter()
    found = []
    for call in reversed(calls):
        seen[call[1]] += 1
        if seen[call[1]] <= OF_ONE_NAME_SHOWN:
            found.append(call)
    return found[DONE_SHOWN - 1 :: -1]


def _decisions(events: Iterable[r.JournalEntry]) -> Iterator[tuple[str, bytes, int]]:
    for event in events:
        record = event.record
        writes = (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())
        noted = [(write.key, write.value) for write in writes if write.op == r.WriteOp.EVENT]
        noted += [
            (entry.kind, entry.value) for entry in getattr(record, "landed", ()) if isinstance(entry, r.EventAppended)
        ]
        yield from ((kind, value, event.at) for kind, value in noted if is_decision(kind))


def is_decision(kind: str) -> bool:
    """Return whether an event of that kind records a decision: DECISION, decision, DECISION_MADE."""
    return kind.lower().startswith("decision")


# -- Markdown ---------------------------------------------------------------------------------------------------------


class _HandoffPage:
    """Renders the page of one run. Empty parts are left out."""

    def __init__(self, handoff: HandoffBrief, level: int, at: int) -> None:
        self._handoff, self._run, self._level, self._at = handoff, handoff.summary, level, at

    def lines(self) -> list[str]:
        """Return all lines."""
        parts = (
            self._render_in_doubt(),
            self._questions(),
            self._render_questions(),
            self._progress(),
            self._render_done(),
            self._decisions(),
            self._state(),
            self._messages(),
            self._children(),
            self._cost(),
            self._render_next(),
        )
        return [*self._head(), *(line for part in parts for line in part)]

    def _render_heading(self, text: str, more: int = 1) -> list[str]:
        return ["", f"{'#' * (self._level + more)} {text}", ""]

    def _head(self) -> list[str]:
        run, handoff = self._run, self._handoff
        lines = [f"{'#' * self._level} Handoff: run {code(run.id)} of agent {code(run.agent)}", ""]
        how = f": {_STANDING[run.status]}" if run.status in _STANDING else ""
        where = f" ({code(run.holder)})" if run.holder else ""
        moment = f"As of {moment_text(self._at)} it is" if self._at else "It is"
        lines.append(f"{moment} **{run.status}**{how}{where}.")
        resumed = f", resumed {'once' if run.resumes == 1 else f'{run.resumes} times'}" if run.resumes else ""
        lines.append(
            f"Started {moment_text(run.started_at)}{resumed}; last entry {moment_text(handoff.last_entry_at)}."
        )
        return [*lines, *([f"Error: {code(run.error)}"] if run.error else [])]

    def _render_in_doubt(self) -> list[str]:
        if not self._handoff.in_doubt:
            return []
        over = self._run.status.over
        lines = self._render_heading("In doubt when it ended" if over else "In doubt: settle this first")
        lines.append("The outcome of these is unknown. Find out; do not simply repeat them.")
        for effect in self._handoff.in_doubt:
            which = f" --key {shlex.quote(effect.key)}" if len(self._handoff.in_doubt) > 1 else ""
            command = f"perdure answer {shlex.quote(self._run.id)}{which}{self._options()}"
            lines += ["", f"- effect {code(effect.name)}, arguments {value(effect.arguments)}, key {code(effect.key)}"]
            if over:
                continue  # the run is over: nothing can answer it
            lines.append(f"  - it happened: {code(f'{command} --done RESULT')} (RESULT is JSON)")
            lines.append(f"  - it did not: {code(f'{command} --retry')}; give up: {code(f'{command} --fail')}")
        return lines

    def _questions(self) -> list[str]:
        if not self._handoff.questions:
            return []
        lines = self._render_heading("Waits for")
        for question in self._handoff.questions:
            choices = f", one of {value(question.choices)}" if question.choices is not None else ""
            lines.append(f"- {question.kind}: {code(question.text)}{choices}, since {moment_text(question.at)}")
            if question.kind in _ANSWERS:
                run = f"{shlex.quote(self._run.id)}{self._options()}"
                commands = [f"perdure {verb} {run}{what}" for verb, what in _ANSWERS[question.kind]]
                lines.append(f"  - {' or '.join(map(code, commands))}")
        return lines

    def _render_questions(self) -> list[str]:
        lines = [*self._render_heading("Asked"), f"Input: {value(self._handoff.input)}"]
        return [*lines, f"Result: {value(self._handoff.result)}"] if self._run.status == r.RunStatus.FINISHED else lines

    def _progress(self) -> list[str]:
        lines = progress_lines(self._handoff.progress, whole=True)
        return [*self._render_heading("Progress"), *lines] if lines else []

    def _render_done(self) -> list[str]:
        handoff = self._handoff
        lines = self._render_heading("Done: will not run again")
        if not handoff.counts:
            return [*lines, "Nothing yet."]
        names = ", ".join(code(name) + (f" x{count}" if count > 1 else "") for name, count in handoff.counts.items())
        lines.append(f"{names}{f'; {handoff.items} items of loops' if handoff.items else ''}.")
        if sum(handoff.counts.values()) > len(handoff.done):
            lines.append("The last of each:")
        return [*lines, "", *(f"1. {one.what} {code(one.name)} -> {value(one.result)}" for one in handoff.done)]

    def _decisions(self) -> list[str]:
        noted = [
            f"- {moment_text(note.at)} {code(note.kind)}: {value(note.payload)}" for note in self._handoff.decisions
        ]
        return [*self._render_heading("Decisions"), *noted] if noted else []

    def _state(self) -> list[str]:
        lines = [f"- {code(key)}: {value(content)}" for key, content in self._handoff.state.items()]
        return [*self._render_heading("State of the run"), *lines] if lines else []

    def _messages(self) -> list[str]:
        handoff = self._handoff
        if not handoff.messages:
            return []
        left_off = handoff.messages_in_all - len(handoff.messages)
        title = f"Messages, the last {len(handoff.messages)} of {handoff.messages_in_all}" if left_off else "Messages"
        return [*self._render_heading(title), *(f"- {_message(message)}" for message in handoff.messages)]

    def _children(self) -> list[str]:
        lines = [f"- {code(child.id)} of {code(child.agent)}: {child.status}" for child in self._handoff.children]
        return [*self._render_heading("Child runs"), *lines] if lines else []

    def _cost(self) -> list[str]:
        if not self._handoff.usage.calls:
            return []
        saved = [f"Not paid again by resuming: {self._handoff.savings}"] if self._handoff.savings.steps else []
        return [*self._render_heading("Cost"), str(self._handoff.usage), *saved]

    def _render_next(self) -> list[str]:
        if self._run.status == r.RunStatus.FINISHED:
            return [*self._render_heading("Go on"), "It is finished. Read its result, or begin a run of another id."]
        if self._run.status == r.RunStatus.CANCELLED:
            return [*self._render_heading("Go on"), "It is cancelled. Begin a run of another id, or fork it."]
        how = "the same id goes on where it was, in any process that reaches the store. What is done is not done again."
        return [
            *self._render_heading("Go on"),
            *self._resume(),
            f"Start the program that opens the run {code(self._run.id)}: {how}",
            "",
            "```python",
            f"agent = Agent({self._run.agent!r}, store={self._handoff.store!r})",
            f"with agent.run({self._run.id!r}) as run:  # then the same code as before",
            "```",
            "",
            f"Everything that it has recorded: {code(f'perdure show {shlex.quote(self._run.id)}{self._options()}')}",
        ]

    def _resume(self) -> list[str]:
        if self._run.status != r.RunStatus.PAUSED:
            return []
        return [f"First {code(f'perdure resume {shlex.quote(self._run.id)}{self._options()}')}, when it may go on.", ""]

    def _options(self) -> str:
        return f" --agent {shlex.quote(self._run.agent)} --store {shlex.quote(self._handoff.store)}"


_STANDING = {
    r.RunStatus.RUNNING: "a process is at work on it; leave it alone",
    r.RunStatus.WAITING: "it waits for an answer, an event or a time",
    r.RunStatus.INTERRUPTED: "it was stopped, and can go on",
    r.RunStatus.FAILED: "an error ended it; started again it goes on from its last durable moment",
    r.RunStatus.FINISHED: "all of it is done",
    r.RunStatus.CRASHED: "its process is gone, and it can go on",
    r.RunStatus.PAUSED: "it rests until somebody resumes it",
    r.RunStatus.CANCELLING: "it was cancelled, and cleans up",
    r.RunStatus.CANCELLED: "it was cancelled, for good",
}
_ANSWERS = {
    "ask": (("answer", " VALUE"),),
    "approve": (("answer", " --yes"), ("answer", " --no")),
    "event": (("send", " NAME PAYLOAD"),),
}


def progress_lines(progress: Progress, *, whole: bool = False) -> list[str]:
    """Render reported progress as a list: goal, blockers, next action."""
    parts = [
        ("goal", [progress.goal]),
        ("blocked by", progress.blockers),
        ("next", [progress.next_action]),
        ("to do", progress.left),
    ]
    parts += [("done", progress.done[-DONE_SHOWN:]), ("context", [progress.context])] if whole else []
    return [f"- {title}: {code(_shorten(text))}" for title, texts in parts for text in texts if text]


def _shorten(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 1] + "…"


def value(content: object) -> str:
    """Render a value on one line of Markdown, shortened and without markup."""
    return code(_shorten(repr(content)))


def readable(text: str) -> str:
    """Make a text encodable for a model: bytes that were not UTF-8 are replaced by a mark."""
    return _LONE.sub("\ufffd", text)


def format_in_brackets(text: str) -> str:
    """Render text from others (a sender, a page) inside round brackets: on one line, and shortened.

    It cannot close the brackets, so nothing after them is attributed to us.
    """
    words = " ".join(text.split()).translate(_WITHIN)
    return words if len(words) <= LABEL_CHARACTERS_MAX else f"{words[:LABEL_CHARACTERS_MAX]}…"


def code(text: str) -> str:
    """Render a text as inline code. It stays on one line, and no markup in it takes effect."""
    line = " ".join(readable(text).splitlines())
    ticks = "`"
    while ticks in line:
        ticks += "`"
    return f"{ticks} {line} {ticks}" if len(ticks) > 1 or not line.strip() else f"`{line}`"


def _message(message: object) -> str:
    """Render a message, with its role in front if it has one."""
    if isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message:
        rest = {key: content for key, content in message.items() if key not in ("role", "content")}
        return f"**{code(message['role'])}** {value(message['content'])}" + (f" {value(rest)}" if rest else "")
    return value(message)
