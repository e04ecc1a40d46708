"""`perdure answer [RUN]` and `perdure send RUN NAME`: answers and events for runs."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click
import msgspec

from perdure.cli.completion_values import complete_runs
from perdure.cli.output import CommandOutput, clean, format_age, format_value
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_run,
    open_engine,
    open_existing_store,
    run_argument,
    url_of,
)
from perdure.kernel.protocol import drive_sync
from perdure.run.answers import RunAnswer, find_current_user, give_answer, send_event
from perdure.run.inbox import InboxQuestion, list_inbox
from perdure.values.clock import moment


@click.command()
@click.argument("run", required=False, shell_complete=complete_runs)
@click.argument("value", required=False)
@click.option("--yes", is_flag=True, help="Approve.")
@click.option("--no", is_flag=True, help="Do not approve.")
@click.option("--question", metavar="TEXT", help="Which question, if the run asks several.")
@click.option("--done", metavar="JSON", help="The effect in doubt happened, with this result.")
@click.option("--retry", is_flag=True, help="It did not happen, or is safe to repeat: run it with the same key.")
@click.option("--fail", is_flag=True, help="Give up: the effect fails, and the run continues.")
@click.option("--key", metavar="KEY", help="Which effect, if several are in doubt.")
@click.option("--by", metavar="NAME", help="Your name, for the record. Default: user and host name.")
@agent_option
@add_common_options
def answer(
    run: str | None,
    value: str | None,
    yes: bool,
    no: bool,
    question: str | None,
    done: str | None,
    retry: bool,
    fail: bool,
    key: str | None,
    by: str | None,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Answer a question of a run, or resolve an effect in doubt.

    Without RUN, list the open questions. VALUE is JSON, else plain text. The first answer counts. A waiting process
    continues at once; otherwise start the program again.
    """
    if run is None:
        if yes or no or retry or fail or any(option is not None for option in (question, done, key, by)):
            raise click.UsageError("say which RUN; `perdure answer` alone lists the open questions")
        return _list_open_questions(CommandOutput(as_json), agent, url)
    given = _parse_answer(value, yes, no, done, retry, fail)
    located = url_of(url)
    with open_existing_store(located) as store:
        found = find_run(store, run, agent)
        [(owner, *_)] = store.read("get_agent", (found.agent,))
        for_workers = bool(store.read("get_task", (owner, found.id)))
    who = by or find_current_user()
    try:
        with open_engine(found.agent, located) as engine:
            said = give_answer(engine, found.id, given, key=key, question=question, by=who)
    except ValueError as error:
        raise click.UsageError(clean(str(error))) from error
    out = CommandOutput(as_json)
    if as_json:
        out.json({"run": found.id, "agent": found.agent, "verdict": said.verdict, "result": said.result, "by": who})
    else:
        out.line(f"answered: {_describe(said)}, by {clean(who)}")
        goes_on = "A worker continues the run." if for_workers else "Start the program again to continue the run."
        out.line("The run continues." if found.holder else goes_on)
    return 0


def _list_open_questions(out: CommandOutput, agent: str | None, url: str | None) -> int:
    """Print what a person can answer, oldest first, with the command that answers."""
    with open_existing_store(url) as store:
        questions, now = sorted(list_inbox(store, agent or ""), key=lambda one: one.asked_at), store.clock.wall_ms()
    if out.as_json:
        out.json([{**msgspec.structs.asdict(one), "asked_at": moment(one.asked_at).isoformat()} for one in questions])
    elif not questions:
        out.line("no open questions")
    else:
        rows = [(clean(one.agent), format_age(one.asked_at, now), clean(one.text), _command(one)) for one in questions]
        out.table(("AGENT", "ASKED", "QUESTION", "ANSWER WITH"), rows)
    return 0


def _command(question: InboxQuestion) -> str:
    ways = {"approve": "--yes | --no", "in_doubt": "--done JSON | --retry | --fail"}
    return clean(f"perdure answer {shlex.quote(question.run)} {ways.get(question.kind, 'VALUE')}")


@click.command()
@run_argument
@click.argument("name")
@click.argument("payload", required=False)
@click.option("--agent", metavar="NAME", help="The run's agent, if the id is ambiguous or the run does not exist yet.")
@click.option("--by", metavar="NAME", help="Your name, for the record. Default: user and host name.")
@add_common_options
def send(
    run: str, name: str, payload: str | None, agent: str | None, by: str | None, url: str | None, as_json: bool
) -> int:
    """Send an event to a run, which receives it with run.wait_event(NAME).

    PAYLOAD is JSON, else plain text. The event is stored until the run waits for it; with --agent even if the run does
    not exist yet.
    """
    located = url_of(url)
    with open_existing_store(located) as store:
        whose = agent or find_run(store, run, agent).agent
    sent, who = json_or_text(payload) if payload is not None else None, by or find_current_user()
    with open_engine(whose, located) as engine:
        drive_sync(engine.store, send_event(engine, run, name, sent, who))
    out = CommandOutput(as_json)
    if as_json:
        out.json({"run": run, "agent": whose, "name": name, "payload": sent, "by": who})
    else:
        out.line(f"sent: {clean(name)} to run {clean(run)} of agent {clean(whose)}")
    return 0


def _describe(answer: RunAnswer) -> str:
    if answer.verdict == "value":
        return format_value(answer.result)
    return f"done with result {format_value(answer.result)}" if answer.verdict == "done" else answer.verdict


def _parse_answer(value: str | None, yes: bool, no: bool, done: str | None, retry: bool, fail: bool) -> RunAnswer:
    if (value is not None) + yes + no + (done is not None) + retry + fail != 1:
        raise click.UsageError("give one of VALUE, --yes, --no; or for an effect in doubt --done JSON, --retry, --fail")
    if yes or no:
        return RunAnswer("value", yes)
    if value is not None:
        return RunAnswer("value", json_or_text(value))
    return RunAnswer("done", _json(done)) if done is not None else RunAnswer("retry" if retry else "fail")


def json_or_text(text: str) -> Any:
    """Parse JSON; anything else is plain text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not JSON; quote text twice: --done '{json.dumps(text)}'", param_hint="--done"
        ) from error
