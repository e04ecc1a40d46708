"""`perdure answer RUN`: a person settles what no program can know."""

from __future__ import annotations

import getpass
import json
import os
import socket
from typing import Any

import click

from ..engine import Engine
from ..runs import Answer, give_answer
from .output import Output, clean, shown
from .stores import agent_option, common, existing_store, one_run, url_of


@click.command()
@click.argument("run")
@click.option("--done", metavar="JSON", help="It happened, and this is its result.")
@click.option("--retry", is_flag=True, help="It did not happen, or may happen again: run it with the same key.")
@click.option("--fail", is_flag=True, help="Give up: the effect fails, and the run goes on from there.")
@click.option("--key", metavar="KEY", help="Which effect, when several are in doubt.")
@click.option("--by", metavar="NAME", help="Who says so. Default: your user and host name.")
@agent_option
@common
def answer(
    run: str,
    done: str | None,
    retry: bool,
    fail: bool,
    key: str | None,
    by: str | None,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Say what became of an effect in doubt.

    The first answer counts. A run that waits goes on at once; any other takes the answer when it is started again.
    """
    given = _read(done, retry, fail)
    located = url_of(url)
    with existing_store(located) as store:
        found = one_run(store, run, agent)
    engine = Engine(found.agent, store=located, durability="full", strict=False, key=None, single_home=False)
    who = by or _whoever()
    try:
        give_answer(engine, found.id, given, key=key, by=who)
    finally:
        engine.close()
    out = Output(as_json)
    if as_json:
        out.json({"run": found.id, "agent": found.agent, "verdict": given.verdict, "result": given.result, "by": who})
    else:
        result = f" with result {shown(given.result)}" if given.verdict == "done" else ""
        out.line(f"answered: {given.verdict}{result}, by {clean(who)}")
        out.line("The run goes on." if found.holder else "Start the program again, and the run goes on.")
    return 0


def _read(done: str | None, retry: bool, fail: bool) -> Answer:
    if (done is not None) + retry + fail != 1:
        raise click.UsageError("say one of --done JSON, --retry and --fail")
    if done is None:
        return Answer("retry" if retry else "fail")
    return Answer("done", _json(done))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not JSON; text needs quotes of its own: --done '{json.dumps(text)}'", param_hint="--done"
        ) from error


def _whoever() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a container may run as a user that has no name
    return f"{user}@{socket.gethostname()}"
