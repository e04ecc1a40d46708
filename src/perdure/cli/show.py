"""`perdure show RUN`: one run in full."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_age, format_time, format_value
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_run,
    moment,
    open_existing_store,
    repeat_options,
    run_argument,
)
from perdure.cli.threads import has_thread, show_thread
from perdure.cli.timeline import describe
from perdure.journal.departures import describe_departure as in_words_of
from perdure.journal.trees.tolerant_read import tolerant
from perdure.records import Forked, RunStatus
from perdure.run.branches.past import read_run_at
from perdure.run.listing import EffectInDoubt, Question, RunInfo, RunSummary, find_queued, find_runs, get_run
from perdure.run.usage import Totals
from perdure.store.rows import TaskRow
from perdure.work.tasks.queues import list_queues

if TYPE_CHECKING:
    from perdure.store.base import Store

ENTRIES_SHOWN = 50

_TOLD = (RunStatus.CANCELLED, RunStatus.CANCELLING, RunStatus.PAUSED)
"""In these statuses, the error field has who gave the order, and why."""


class DoubtfulEffect(msgspec.Struct, frozen=True):
    """An effect in doubt, with its answer if there is one."""

    effect: EffectInDoubt
    verdict: str
    by: str


@click.command()
@run_argument
@agent_option
@click.option(
    "--last", type=click.IntRange(min=0), help=f"Entries to show; 0: all. Default: {ENTRIES_SHOWN}, with --json all."
)
@click.option("--at", metavar="MOMENT", help="Show the run right after this entry, step or checkpoint.")
@add_common_options
def show(run: str, agent: str | None, last: int | None, at: str | None, url: str | None, as_json: bool) -> int:
    """Show a run: its steps, data and waits, now or at an earlier moment.

    If there is no run of that id, it shows the LangGraph thread of that id: see `perdure threads`. Values of types that
    only your program knows are named, not shown.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        if _is_thread(store, run, agent):
            return show_thread(out, run, agent, at, last, url)
        summary = find_run(store, run, agent, queued=at is None)
        unpack = tolerant(store)
        if summary.status == RunStatus.QUEUED:
            _show_queued(out, store, summary)
            return 0
        if at is None:
            info = get_run(store, summary.agent, summary.id, unpack=unpack)
        else:
            info = read_run_at(store, summary.agent, summary.id, moment(at), unpack)
        told = describe(info.events, unpack)
        doubts = [_doubt(store, info, effect) for effect in info.in_doubt]
        answered = {
            question.about for question in info.questions if store.read("get_answer", (summary.stream, question.about))
        }
        now, gone = store.clock.wall_ms(), in_words_of(store, summary.agent)
    if last is None:
        last = 0 if as_json else ENTRIES_SHOWN
    if as_json:
        out.json(_as_json(info, told, doubts, last))
        return 0
    _print_facts(out, info, now)
    _print_values(out, info)
    _print_timeline(out, info, told, last)
    if at is not None:  # questions of the past cannot be answered
        for text in [
            *(question.text for question in info.questions),
            *(f"did {effect.name} happen?" for effect in info.in_doubt),
        ]:
            out.line(f"open then: {clean(text)}")
        return 0
    if gone and not summary.status.over:
        out.line(clean(gone))
        return 0
    _print_questions(out, info, answered, repeat_options(url, agent))
    _print_doubts(out, info, doubts, repeat_options(url, agent))
    return 0


def _show_queued(out: CommandOutput, store: Store, run: RunSummary) -> None:
    """Show a run that no worker has started: its task and what it waits for."""
    [(owner, *_)] = store.read("get_agent", (run.agent,))
    [task] = (TaskRow(*row) for row in store.read("get_task", (owner, run.id)))
    around = {info.name: info for info in list_queues(store, owner)}[task.queue]
    now, given = store.clock.wall_ms(), tolerant(store)(task.input)
    later = format_time(task.ready_at) if task.ready_at > now else None
    if out.as_json:
        about = {"id": run.id, "agent": run.agent, "status": run.status.value, "queued_at": format_time(run.started_at)}
        where = {"task": task.task, "queue": task.queue, "priority": task.priority, "key": task.key or None}
        out.json({**about, **where, "not_before": later, "queue_paused": around.paused, "input": given})
        return
    out.line(f"run {clean(run.id)} of agent {clean(run.agent)}", style="bold")
    begins = f"when a worker takes it; in its queue {around.running} running, {around.queued} queued"
    lines = [
        ("status", run.status.value),
        ("queued", f"{format_time(run.started_at)}, {format_age(run.started_at, now)}"),
        ("begins", f"not before {later}" if later else "not before its queue is resumed" if around.paused else begins),
        ("task", clean(task.task)),
        ("queue", clean(task.queue)),
        ("priority", str(task.priority) if task.priority else ""),
        ("key", clean(task.key)),
        ("input", format_value(given)),
    ]
    out.table(("FACT", "VALUE"), [line for line in lines if line[1]])


def _is_thread(store: Store, name: str, agent: str | None) -> bool:
    """Whether a thread has that id, and no run."""
    return not find_runs(store, name) and not find_queued(store, name) and has_thread(store, name, agent)


def _doubt(store: Store, info: RunInfo, effect: EffectInDoubt) -> DoubtfulEffect:
    rows = store.read("get_answer", (info.summary.stream, effect.about))
    verdict, by = next(((verdict, by) for verdict, _, by, _ in rows), ("", ""))
    return DoubtfulEffect(effect, verdict, by)


def _print_facts(out: CommandOutput, info: RunInfo, now: int) -> None:
    run = info.summary
    out.line(f"run {clean(run.id)} of agent {clean(run.agent)}", style="bold")
    facts = [
        ("status", f"{run.status.value} {clean(run.error)}" if run.status in _TOLD else run.status.value),
        ("started", f"{format_time(run.started_at)}, {format_age(run.started_at, now)}"),
        ("last entry", f"{format_time(info.events[-1].at)}, {format_age(info.events[-1].at, now)}"),
        ("forked", _describe_fork(info)),
        ("resumed", "once" if run.resumes == 1 else f"{run.resumes} times" if run.resumes else ""),
        ("open in", clean(run.holder)),
        ("error", "" if run.status in _TOLD else clean(run.error)),
        ("input", format_value(info.input)),
        ("result", "erased" if info.erased else format_value(info.result) if info.finished else ""),
        ("messages", str(len(info.messages))),
        ("usage", str(info.usage) if info.usage.calls else ""),
        ("saved", str(info.savings) if info.savings.steps else ""),
    ]
    out.table(("FACT", "VALUE"), [fact for fact in facts if fact[1]])


def _describe_fork(info: RunInfo) -> str:
    found = [event.record for event in info.events if isinstance(event.record, Forked)]
    return f"from run {clean(found[-1].of)} at entry {found[-1].cut}" if found else ""


def _print_values(out: CommandOutput, info: RunInfo) -> None:
    if info.state:
        out.print_heading("state")
        out.table(("KEY", "VALUE"), [(clean(key), format_value(value)) for key, value in info.state.items()])


def _print_timeline(out: CommandOutput, info: RunInfo, told: Sequence[str], last: int) -> None:
    left_off = max(0, len(told) - last) if last else 0
    out.print_heading(f"journal, the last {last} of {len(told)} entries" if left_off else "journal")
    rows = [(str(event.seq), _clock(event.at), text) for event, text in zip(info.events, told, strict=True)]
    out.table(("NO", "TIME", "ENTRY"), rows[left_off:])


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _print_questions(out: CommandOutput, info: RunInfo, answered: set[int], options: str) -> None:
    """Print what the run waits for, and the command that answers."""
    for question in info.questions:
        if question.kind == "in_doubt":
            continue
        out.print_heading(f"{'asks' if question.kind in ('ask', 'approve') else 'waits for'}: {clean(question.text)}")
        if question.about in answered:
            out.line("answered; start its program again")
            continue
        which = f" --question {shlex.quote(question.text)}" if len(info.questions) > 1 else ""
        command = clean(f"perdure answer {shlex.quote(info.id)}{which}{options}")
        if question.kind == "approve":
            out.line(f"{command} --yes | --no")
        elif question.kind == "ask":
            out.line(f"{command} VALUE")
            if question.choices is not None:
                out.line(f"one of {', '.join(format_value(choice) for choice in question.choices)}")
        elif question.kind == "event":
            out.line(clean(f"perdure send {shlex.quote(info.id)} NAME PAYLOAD{options}"))


def _print_doubts(out: CommandOutput, info: RunInfo, doubts: Sequence[DoubtfulEffect], options: str) -> None:
    """Print effects in doubt and the commands that resolve them, with `options` appended."""
    for doubt in doubts:
        effect = doubt.effect
        out.print_heading(f"in doubt: did {clean(effect.name)} happen?")
        out.line(f"key        {clean(effect.key)}")
        out.line(f"arguments  {format_value(effect.arguments)}")
        if doubt.verdict:
            out.line(f"answered   {clean(doubt.verdict)}, by {clean(doubt.by)}; start the program again to use it")
            continue
        if info.status == RunStatus.CANCELLED:
            out.line("the run was cancelled: no answer is needed")
            continue
        which = f" --key {shlex.quote(effect.key)}" if len(doubts) > 1 else ""
        command = clean(f"perdure answer {shlex.quote(info.id)}{which}{options}")
        if info.status == RunStatus.CRASHED:
            out.line("Start the program again: a check, if it has one, resolves this. Otherwise find out and answer:")
        out.line(f"it did     {command} --done RESULT")
        out.line(f"it did not {command} --retry")
        out.line(f"give up    {command} --fail")
    if info.status == RunStatus.PAUSED:
        out.line()
        out.line(f"To continue: {clean(f'perdure resume {shlex.quote(info.id)}{options}')}, then start its program.")
    if info.status == RunStatus.CRASHED and not doubts:
        out.line()
        out.line("Its process is gone. Start the program again: the run continues where it was.")


def _as_json(info: RunInfo, told: Sequence[str], doubts: Sequence[DoubtfulEffect], last: int) -> dict[str, Any]:
    run = info.summary
    entries = [
        {"seq": event.seq, "at": format_time(event.at), "kind": event.kind, "text": text}
        for event, text in zip(info.events, told, strict=True)
    ]
    return {
        "id": run.id,
        "agent": run.agent,
        "status": run.status.value,
        "started_at": format_time(run.started_at),
        "changed_at": format_time(run.changed_at),
        "last_entry_at": format_time(info.events[-1].at),
        "resumes": run.resumes,
        "holder": run.holder,
        "error": run.error,
        "forked_from": _origin(info),
        "input": info.input,
        "finished": info.finished,
        "result": info.result,
        "result_erased": info.erased,
        "state": info.state,
        "messages": info.messages,
        "usage": _totals(info.usage),
        "savings": _totals(info.savings),
        "in_doubt": [_doubt_as_json(doubt) for doubt in doubts],
        "questions": [_question_as_json(question) for question in info.questions],
        "entries": entries[-last:] if last else entries,
    }


def _origin(info: RunInfo) -> dict[str, Any] | None:
    found = [event.record for event in info.events if isinstance(event.record, Forked)]
    return {"id": found[-1].of, "at": found[-1].cut} if found else None


def _totals(totals: Totals) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(totals).items() if not name.startswith("by_")}


def _question_as_json(question: Question) -> dict[str, Any]:
    return {
        "seq": question.seq,
        "kind": question.kind,
        "text": question.text,
        "choices": question.choices,
        "at": format_time(question.at),
    }


def _doubt_as_json(doubt: DoubtfulEffect) -> dict[str, Any]:
    effect = doubt.effect
    answered = {"verdict": doubt.verdict, "by": doubt.by} if doubt.verdict else None
    return {"name": effect.name, "key": effect.key, "arguments": effect.arguments, "answered": answered}
