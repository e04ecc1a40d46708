"""`perdure answer RUN` and `perdure send RUN NAME`: people settle what no program can know."""

from __future__ import annotations

import json
from typing import Any

import click

from ..answers import Answer, give_answer, send_event, whoever
from ..run.requests import drive_sync
from .output import Output, clean, shown
from .stores import acting_as, agent_option, common, existing_store, one_run, run_argument, url_of


@click.command()
@run_argument
@click.argument("value", required=False)
@click.option("--yes", is_flag=True, help="Approve.")
@click.option("--no", is_flag=True, help="Do not approve.")
@click.option("--question", metavar="TEXT", help="Which question, when the run asks several.")
@click.option("--done", metavar="JSON", help="Of an effect in doubt: it happened, and this is its result.")
@click.option("--retry", is_flag=True, help="It did not happen, or may happen again: run it with the same key.")
@click.option("--fail", is_flag=True, help="Give up: the effect fails, and the run goes on from there.")
@click.option("--key", metavar="KEY", help="Which effect, when several are in doubt.")
@click.option("--by", metavar="NAME", help="Who says so. Default: your user and host name.")
@agent_option
@common
def answer(
    run: str,
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
    """Answer what a run asks, or say what became of an effect in doubt.

    VALUE is JSON, or else text as it stands. The first answer counts. A run that waits goes on at once; any other
    takes the answer when it is started again.
    """
    given = _read(value, yes, no, done, retry, fail)
    located = url_of(url)
    with existing_store(located) as store:
        found = one_run(store, run, agent)
        [(owner, *_)] = store.read("get_agent", (found.agent,))
        for_workers = bool(store.read("get_task", (owner, found.id)))
    who = by or whoever()
    try:
        with acting_as(found.agent, located) as engine:
            said = give_answer(engine, found.id, given, key=key, question=question, by=who)
    except ValueError as error:
        raise click.UsageError(clean(str(error))) from error
    out = Output(as_json)
    if as_json:
        out.json({"run": found.id, "agent": found.agent, "verdict": said.verdict, "result": said.result, "by": who})
    else:
        out.line(f"answered: {_in_words(said)}, by {clean(who)}")
        goes_on = "A worker goes on with it." if for_workers else "Start the program again, and the run goes on."
        out.line("The run goes on." if found.holder else goes_on)
    return 0


@click.command()
@run_argument
@click.argument("name")
@click.argument("payload", required=False)
@click.option("--agent", metavar="NAME", help="Whose run, when several agents have one of that id, or none has it yet.")
@click.option("--by", metavar="NAME", help="Who says so. Default: your user and host name.")
@common
def send(
    run: str, name: str, payload: str | None, agent: str | None, by: str | None, url: str | None, as_json: bool
) -> int:
    """Send an event to a run, which takes it with run.wait_event(NAME).

    PAYLOAD is JSON, or else text as it stands. It is kept until the run comes to wait for it; with --agent even for a
    run that does not exist yet.
    """
    located = url_of(url)
    with existing_store(located) as store:
        whose = agent or one_run(store, run, agent).agent
    sent, who = _value(payload) if payload is not None else None, by or whoever()
    with acting_as(whose, located) as engine:
        drive_sync(engine.store, send_event(engine, run, name, sent, who))
    out = Output(as_json)
    if as_json:
        out.json({"run": run, "agent": whose, "name": name, "payload": sent, "by": who})
    else:
        out.line(f"sent: {clean(name)} to run {clean(run)} of agent {clean(whose)}")
    return 0


def _in_words(answer: Answer) -> str:
    if answer.verdict == "value":
        return shown(answer.result)
    return f"done with result {shown(answer.result)}" if answer.verdict == "done" else answer.verdict


def _read(value: str | None, yes: bool, no: bool, done: str | None, retry: bool, fail: bool) -> Answer:
    if (value is not None) + yes + no + (done is not None) + retry + fail != 1:
        raise click.UsageError("say one of VALUE, --yes, --no; or of an effect in doubt --done JSON, --retry, --fail")
    if yes or no:
        return Answer("value", yes)
    if value is not None:
        return Answer("value", _value(value))
    return Answer("done", _json(done)) if done is not None else Answer("retry" if retry else "fail")


def _value(text: str) -> Any:
    """JSON where it is some: 5 is a number, and what is no JSON is the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not JSON; text needs quotes of its own: --done '{json.dumps(text)}'", param_hint="--done"
        ) from error
