"""What another process, person, framework or model needs to go on with a run: one brief, for people and for models."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from .. import objects
from .. import records as r
from ..clock import moment_text
from ..runs import EffectInDoubt, Question, RunSummary, children_of, get_run
from ..store import is_postgres, without_password
from ..store.base import Store
from ..usage import Savings, Usage
from .progress import Progress, all_said

DONE_SHOWN, OF_ONE_NAME_SHOWN = 30, 3
MESSAGES_SHOWN = 10
DECISIONS_SHOWN = 20
VALUE_CHARACTERS_MAX = 300
"""Of one value: a brief is read whole. `perdure show RUN --json` has all of it."""
LABEL_CHARACTERS_MAX = 80
_WITHIN = str.maketrans("()", "[]")
_LONE = re.compile("[\ud800-\udfff]")
"""What stands for a byte that was no UTF-8, or is half of a pair: nobody can send it anywhere."""


class Finished(msgspec.Struct, frozen=True):
    """A step or an effect that will not run again."""

    what: str
    name: str
    result: Any


class Noted(msgspec.Struct, frozen=True):
    """A decision: an event whose kind begins with that word."""

    kind: str
    payload: Any
    at: int


class Handoff(msgspec.Struct, frozen=True):
    """A run as somebody needs it who is to go on with it. `str()` of it is Markdown.

    >>> print(agent.runs.handoff("trip-42"))
    """

    summary: RunSummary
    store: str
    """Its URL, without a password."""
    at: int
    last_entry_at: int
    input: Any
    result: Any
    counts: dict[str, int]
    """How often each step and effect was done."""
    items: int
    done: list[Finished]
    """The last ones of each name."""
    in_doubt: list[EffectInDoubt]
    questions: list[Question]
    state: dict[str, Any]
    messages: list[Any]
    """The last ones."""
    messages_in_all: int
    decisions: list[Noted]
    children: list[RunSummary]
    usage: Usage
    savings: Savings
    progress: Progress = Progress()
    """How far it is, as `run.progress` and people have said."""

    def __repr__(self) -> str:
        return f"<Handoff of run {self.summary.id!r} of {self.summary.agent!r}: {self.summary.status}>"

    def __str__(self) -> str:
        return self.markdown()

    def markdown(self, level: int = 1, at: int | None = None) -> str:
        """The brief; its first heading has that level. `at=0` says of no moment that it is now."""
        return "\n".join(_Page(self, level, self.at if at is None else at).lines()) + "\n"


def handoff_of(
    store: Store,
    agent: str,
    run_id: str,
    unpack: Callable[[bytes], Any] | None = None,
    progress: Progress | None = None,
) -> Handoff:
    """The brief of a run. `unpack` is for readers who do not have the types of its values."""
    decode = unpack or partial(objects.unpack, store)
    info = get_run(store, agent, run_id, unpack=decode)
    calls, decisions = list(_calls(info.events)), list(_decisions(info.events))
    return Handoff(
        summary=info.summary,
        store=without_password(store.url) if is_postgres(store.url) else store.url,
        at=store.clock.wall_ms(),
        last_entry_at=info.events[-1].at,
        input=info.input,
        result=info.result,
        counts=dict(Counter(name for _, name, _ in calls)),
        items=sum(isinstance(event.record, r.ItemDone) for event in info.events),
        done=[Finished(what, name, decode(result)) for what, name, result in _last(calls)],
        in_doubt=info.in_doubt,
        questions=[question for question in info.questions if question.kind != "in_doubt"],
        state=info.state,
        messages=info.messages[-MESSAGES_SHOWN:],
        messages_in_all=len(info.messages),
        decisions=[Noted(kind, decode(value), at) for kind, value, at in decisions[-DECISIONS_SHOWN:]],
        children=children_of(store, info.summary.stream),
        usage=info.usage,
        savings=info.savings,
        progress=progress or _said_of(store, info.summary),
    )


def _said_of(store: Store, run: RunSummary) -> Progress:
    [(owner, *_)] = store.read("get_agent", (run.agent,))
    return all_said(store, run.agent, owner, [run.stream]).get(run.id, Progress(run.id))


def _calls(events: Iterable[r.Event]) -> Iterator[tuple[str, str, bytes]]:
    """Steps and effects that are done: what, which, and the packed result."""
    intents: dict[int, r.EffectIntended] = {}
    for event in events:
        record = event.record
        if isinstance(record, r.EffectIntended):
            intents[event.seq] = record
        elif isinstance(record, r.StepDone):
            yield "step", record.call.name, record.result
        elif isinstance(record, r.EffectDone) and record.intent in intents:
            yield "effect", intents[record.intent].call.name, record.result


def _last(calls: Sequence[tuple[str, str, bytes]]) -> list[tuple[str, str, bytes]]:
    """A few of each name, the last ones, in order: a loop must not push all else out."""
    seen: Counter[str] = Counter()
    found = []
    for call in reversed(calls):
        seen[call[1]] += 1
        if seen[call[1]] <= OF_ONE_NAME_SHOWN:
            found.append(call)
    return found[DONE_SHOWN - 1 :: -1]


def _decisions(events: Iterable[r.Event]) -> Iterator[tuple[str, bytes, int]]:
    for event in events:
        record = event.record
        writes = (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())
        noted = [(write.key, write.value) for write in writes if write.op == r.Op.EVENT]
        noted += [(it.kind, it.value) for it in getattr(record, "landed", ()) if isinstance(it, r.Happened)]
        yield from ((kind, value, event.at) for kind, value in noted if is_decision(kind))


def is_decision(kind: str) -> bool:
    """Whether an event of that kind says what was decided: DECISION, decision, DECISION_MADE."""
    return kind.lower().startswith("decision")


# -- Markdown ---------------------------------------------------------------------------------------------------------


class _Page:
    """The parts of the page of one run. What is empty is left out."""

    def __init__(self, it: Handoff, level: int, at: int) -> None:
        self._it, self._run, self._level, self._at = it, it.summary, level, at

    def lines(self) -> list[str]:
        """All of it."""
        parts = (
            self._in_doubt(),
            self._questions(),
            self._asked(),
            self._progress(),
            self._done(),
            self._decisions(),
            self._state(),
            self._messages(),
            self._children(),
            self._cost(),
            self._next(),
        )
        return [*self._head(), *(line for part in parts for line in part)]

    def _heading(self, text: str, more: int = 1) -> list[str]:
        return ["", f"{'#' * (self._level + more)} {text}", ""]

    def _head(self) -> list[str]:
        run, it = self._run, self._it
        lines = [f"{'#' * self._level} Handoff: run {code(run.id)} of agent {code(run.agent)}", ""]
        how = f": {_STANDING[run.status]}" if run.status in _STANDING else ""
        where = f" ({code(run.holder)})" if run.holder else ""
        moment = f"As of {moment_text(self._at)} it is" if self._at else "It is"
        lines.append(f"{moment} **{run.status}**{how}{where}.")
        resumed = f", resumed {'once' if run.resumes == 1 else f'{run.resumes} times'}" if run.resumes else ""
        lines.append(f"Started {moment_text(run.started_at)}{resumed}; last entry {moment_text(it.last_entry_at)}.")
        return [*lines, *([f"Error: {code(run.error)}"] if run.error else [])]

    def _in_doubt(self) -> list[str]:
        if not self._it.in_doubt:
            return []
        over = self._run.status.over
        lines = self._heading("In doubt when it ended" if over else "In doubt: settle this first")
        lines.append("Nobody knows whether these happened. Find out; do not simply do them again.")
        for effect in self._it.in_doubt:
            which = f" --key {shlex.quote(effect.key)}" if len(self._it.in_doubt) > 1 else ""
            command = f"perdure answer {shlex.quote(self._run.id)}{which}{self._options()}"
            lines += ["", f"- effect {code(effect.name)}, arguments {value(effect.arguments)}, key {code(effect.key)}"]
            if over:
                continue  # nobody asks it any more
            lines.append(f"  - it happened: {code(f'{command} --done RESULT')} (RESULT is JSON)")
            lines.append(f"  - it did not: {code(f'{command} --retry')}; give up: {code(f'{command} --fail')}")
        return lines

    def _questions(self) -> list[str]:
        if not self._it.questions:
            return []
        lines = self._heading("Waits for")
        for question in self._it.questions:
            choices = f", one of {value(question.choices)}" if question.choices is not None else ""
            lines.append(f"- {question.kind}: {code(question.text)}{choices}, since {moment_text(question.at)}")
            if question.kind in _ANSWERS:
                command = f"perdure {_ANSWERS[question.kind].format(run=shlex.quote(self._run.id))}{self._options()}"
                lines.append(f"  - {code(command)}")
        return lines

    def _asked(self) -> list[str]:
        lines = [*self._heading("Asked"), f"Input: {value(self._it.input)}"]
        return [*lines, f"Result: {value(self._it.result)}"] if self._run.status == r.Status.FINISHED else lines

    def _progress(self) -> list[str]:
        lines = told(self._it.progress, whole=True)
        return [*self._heading("Progress"), *lines] if lines else []

    def _done(self) -> list[str]:
        it = self._it
        lines = self._heading("Done: will not run again")
        if not it.counts:
            return [*lines, "Nothing yet."]
        names = ", ".join(code(name) + (f" x{count}" if count > 1 else "") for name, count in it.counts.items())
        lines.append(f"{names}{f'; {it.items} items of loops' if it.items else ''}.")
        if sum(it.counts.values()) > len(it.done):
            lines.append("The last of each:")
        return [*lines, "", *(f"1. {one.what} {code(one.name)} -> {value(one.result)}" for one in it.done)]

    def _decisions(self) -> list[str]:
        noted = [f"- {moment_text(it.at)} {code(it.kind)}: {value(it.payload)}" for it in self._it.decisions]
        return [*self._heading("Decisions"), *noted] if noted else []

    def _state(self) -> list[str]:
        lines = [f"- {code(key)}: {value(it)}" for key, it in self._it.state.items()]
        return [*self._heading("State of the run"), *lines] if lines else []

    def _messages(self) -> list[str]:
        it = self._it
        if not it.messages:
            return []
        left_off = it.messages_in_all - len(it.messages)
        title = f"Messages, the last {len(it.messages)} of {it.messages_in_all}" if left_off else "Messages"
        return [*self._heading(title), *(f"- {_message(message)}" for message in it.messages)]

    def _children(self) -> list[str]:
        lines = [f"- {code(child.id)} of {code(child.agent)}: {child.status}" for child in self._it.children]
        return [*self._heading("Child runs"), *lines] if lines else []

    def _cost(self) -> list[str]:
        if not self._it.usage.calls:
            return []
        saved = [f"Not paid again by resuming: {self._it.savings}"] if self._it.savings.steps else []
        return [*self._heading("Cost"), str(self._it.usage), *saved]

    def _next(self) -> list[str]:
        if self._run.status == r.Status.FINISHED:
            return [*self._heading("Go on"), "It is finished. Read its result, or begin a run of another id."]
        if self._run.status == r.Status.CANCELLED:
            return [*self._heading("Go on"), "It is cancelled. Begin a run of another id, or fork it."]
        how = "the same id goes on where it was, in any process that reaches the store. What is done is not done again."
        return [
            *self._heading("Go on"),
            *self._resume(),
            f"Start the program that opens the run {code(self._run.id)}: {how}",
            "",
            "```python",
            f"agent = Agent({self._run.agent!r}, store={self._it.store!r})",
            f"with agent.run({self._run.id!r}) as run:  # then the same code as before",
            "```",
            "",
            f"Everything that it has recorded: {code(f'perdure show {shlex.quote(self._run.id)}{self._options()}')}",
        ]

    def _resume(self) -> list[str]:
        if self._run.status != r.Status.PAUSED:
            return []
        return [f"First {code(f'perdure resume {shlex.quote(self._run.id)}{self._options()}')}, when it may go on.", ""]

    def _options(self) -> str:
        return f" --agent {shlex.quote(self._run.agent)} --store {shlex.quote(self._it.store)}"


_STANDING = {
    r.Status.RUNNING: "a process is at work on it; leave it alone",
    r.Status.WAITING: "it waits for an answer, an event or a time",
    r.Status.INTERRUPTED: "it was stopped, and can go on",
    r.Status.FAILED: "an error ended it; started again it goes on from its last durable moment",
    r.Status.FINISHED: "all of it is done",
    r.Status.CRASHED: "its process is gone, and it can go on",
    r.Status.PAUSED: "it rests until somebody resumes it",
    r.Status.CANCELLING: "it was cancelled, and cleans up",
    r.Status.CANCELLED: "it was cancelled, for good",
}
_ANSWERS = {"ask": "answer {run} VALUE", "approve": "answer {run} --yes", "event": "send {run} NAME PAYLOAD"}


def told(it: Progress, *, whole: bool = False) -> list[str]:
    """What was said of how far something is, as a list: what it is for, what keeps it, what comes next."""
    parts = [("goal", [it.goal]), ("blocked by", it.blockers), ("next", [it.next_action]), ("to do", it.left)]
    parts += [("done", it.done[-DONE_SHOWN:]), ("context", [it.context])] if whole else []
    return [f"- {title}: {code(_short(text))}" for title, texts in parts for text in texts if text]


def _short(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 1] + "…"


def value(it: object) -> str:
    """A value in one line of Markdown, shortened. Text in it is only text."""
    return code(_short(repr(it)))


def readable(text: str) -> str:
    """A text that can be sent to a model: with a mark in place of each byte of a file that was no UTF-8."""
    return _LONE.sub("\ufffd", text)


def in_brackets(text: str) -> str:
    """Words of others (a sender, a page) as a part of what stands in round brackets: in one line, and not all of it.

    They do not end the brackets, so that nobody says more behind them in our name.
    """
    words = " ".join(text.split()).translate(_WITHIN)
    return words if len(words) <= LABEL_CHARACTERS_MAX else f"{words[:LABEL_CHARACTERS_MAX]}…"


def code(text: str) -> str:
    """A piece of code in Markdown, whatever it is: nothing in it is taken for markup, and it stays one line."""
    line = " ".join(readable(text).splitlines())
    ticks = "`"
    while ticks in line:
        ticks += "`"
    return f"{ticks} {line} {ticks}" if len(ticks) > 1 or not line.strip() else f"`{line}`"


def _message(message: object) -> str:
    """With its role in front, when it is one of a conversation."""
    if isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message:
        rest = {key: it for key, it in message.items() if key not in ("role", "content")}
        return f"**{code(message['role'])}** {value(message['content'])}" + (f" {value(rest)}" if rest else "")
    return value(message)
